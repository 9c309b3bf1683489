"""shell_scripts.py: what bash completes, and that the other scripts name every option."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from bulkinfer.__main__ import COMMANDS
from bulkinfer.commands.options import SHELLS
from bulkinfer.commands.shell_scripts import command_names, config_class, script

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


@pytest.mark.parametrize("name", COMMANDS)
def test_the_config_class_is_the_one_that_the_command_runs_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[object]()
    module = importlib.import_module(f"bulkinfer.commands.{name}")
    monkeypatch.setattr(module, "run_command", lambda command, config, *_, **__: ran.append(config) or 0)
    module.main([])
    assert ran == [config_class(name)]


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


def test_bash_completes_networks_and_jobs(bash: Path, tmp_path: Path) -> None:
    """Of networks the known names, and the folders in models/; of jobs the folders in logs/."""
    assert completed(bash, "bulkinfer", "run", "--model", "mine", cwd=tmp_path) == set()
    assert completed(bash, "bulkinfer", "show", "tiny", cwd=tmp_path) == set()
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "logs" / "tiny-12345678-20261129T120000Z").mkdir(parents=True)
    (tmp_path / "tiny.txt").touch()
    for words in (("bulkinfer", "run", "--model"), ("infer_launch", "--model_name"), ("bulkinfer", "bench", "--model_name")):
        assert completed(bash, *words, "mi", cwd=tmp_path) == {"mine"}
        assert "efficientnet_lite0" in completed(bash, *words, "", cwd=tmp_path)
    assert completed(bash, "get_model", "--model_name", "resnext101_32", cwd=tmp_path) == {"resnext101_32x4d"}
    assert "cifar_resnet20" in completed(bash, "bulkinfer", "train", "--model", "cifar", cwd=tmp_path)
    for words in (("show",), ("watch",), ("clean",), ("compare", "first")):
        assert completed(bash, "bulkinfer", *words, "tin", cwd=tmp_path) == {"tiny-12345678-20261129T120000Z", "tiny.txt"}


def offered(shell: str, command: str) -> set[str]:
    """The options that a script offers for one command, without those of all commands."""
    lines = script(shell).splitlines()
    if shell == "fish":
        found = [re.findall(r" -l (\w+)", line) for line in lines if f"'__fish_seen_subcommand_from {command}'" in line]
        return {name for names in found for name in names}
    (line,) = [line for line in lines if line.startswith(f"    {command}) ")]
    return {*re.findall(r"--(\w+)", line)} - {"help", "version", "flagfile"}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_offered_all_its_options_and_no_others(shell: str, command: str) -> None:
    expected = set[str]()
    for field in dataclasses.fields(CONFIGS[command]):
        names = {field.name, *field.metadata["aliases"]}
        expected |= names | ({f"no{name}" for name in names} if isinstance(field.default, bool) else set())
    assert offered(shell, command) == expected


def test_a_zsh_script_in_fpath_completes_at_the_first_tab() -> None:
    """zsh runs the file as the body of _bulkinfer, so that it must call the function that it has just defined."""
    lines = script("zsh").splitlines()
    assert lines[0].startswith("#compdef bulkinfer ")
    assert lines[-5:-2] == ["if [[ $funcstack[1] == _bulkinfer ]]; then", '  _bulkinfer "$@"', "else"]
    assert lines[-2].startswith("  compdef _bulkinfer bulkinfer ")  # it was sourced


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_its_script(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    (tmp_path / "script").write_text(text)
    if found := shutil.which(shell):  # the others are checked where they are installed
        subprocess.run([found, "-n", tmp_path / "script"], check=True)
