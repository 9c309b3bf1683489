"""shell_scripts.py: what bash completes, and that the other scripts name every option."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest
from bulkinfer.__main__ import COMMANDS
from bulkinfer.commands.shell_scripts import command_names, config_class, script
from bulkinfer.config import SHELLS

from tests.configs import CONFIGS

WRAPPER = """
source "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_bulkinfer
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shell") / "bulkinfer.bash"
    path.write_text(script("bash"))
    return path


def completed(bash: Path, *words: str, cwd: Path | None = None) -> set[str]:
    done = subprocess.run(["bash", "-c", WRAPPER, bash, *words], capture_output=True, text=True, check=True, cwd=cwd)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_the_commands_are_those_of_the_table() -> None:
    assert command_names() == sorted(COMMANDS)
    assert {name: config_class(name) for name in COMMANDS} == CONFIGS


def test_bash_completes_commands_options_and_choices(bash: Path) -> None:
    assert completed(bash, "bulkinfer", "ver") == {"verify"}
    assert completed(bash, "bulkinfer", "help", "do") == {"doctor"}
    assert completed(bash, "infer_launch", "--num_d") == {"--num_devices"}
    assert completed(bash, "bulkinfer", "infer-launch", "--nosyn") == {"--nosynthetic"}
    assert completed(bash, "/usr/bin/infer_launch", "photos", "--precision", "") == {"auto", "fp32", "bf16", "fp16", "int8"}
    assert completed(bash, "get_model", "--precision", "") == {"fp32", "fp16", "int8"}
    assert completed(bash, "bulkinfer", "run", "--mod") == {"--model", "--model_name", "--model_path"}
    assert completed(bash, "bulkinfer", "train", "--flagf") == {"--flagfile"}


def test_bash_completes_folders_and_files(bash: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "phone.onnx").touch()
    assert completed(bash, "infer_launch", "--data_dir", "ph", cwd=tmp_path) == {"photos"}
    assert completed(bash, "get_model", "--onnx", "ph", cwd=tmp_path) == {"photos", "phone.onnx"}
    assert completed(bash, "infer_launch", "ph", cwd=tmp_path) == {"photos", "phone.onnx"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_is_in_the_script(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    for name, config in CONFIGS.items():
        assert name in text
        for field in dataclasses.fields(config):
            assert (f"-l {field.name} " if shell == "fish" else f"--{field.name}") in text
    (tmp_path / "script").write_text(text)
    if found := shutil.which(shell):  # the others are checked where they are installed
        subprocess.run([found, "-n", tmp_path / "script"], check=True)
