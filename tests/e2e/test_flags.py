"""Every rule about flags, through the installed scripts. A dry run prints a fingerprint of what was asked for, so two spellings
that mean the same print the same one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.__main__ import COMMANDS
from bulkinfer.config import LaunchConfig

from tests.commands import run, run_here
from tests.models import write_tiny_model

NEEDS_NO_PICTURES = ("--synthetic", "--dry_run")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flags")
    write_tiny_model(folder / "models", "resnext101_32x4d", batch_sizes=(2, 6))
    return folder


@pytest.fixture(scope="module")
def plain(place: Path) -> str:
    return fingerprint(place, *NEEDS_NO_PICTURES)


def fingerprint(place: Path, *words: str) -> str:
    done = run_here("infer_launch", *words, cwd=place)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("job: ")]
    return str(line.rpartition("fingerprint ")[2])


def refusal(place: Path, name: str, *words: str) -> str:
    done = run_here(name, *words, cwd=place)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    return str(done.stderr.removesuffix("\n"))


def test_dashes_underscores_and_switches_are_equal(place: Path, plain: str) -> None:
    wanted = fingerprint(place, *NEEDS_NO_PICTURES, "--batch_size", "2", "--allow_cpu_nodes", "--save", "topk", "logits")
    assert wanted != plain
    for words in (
        ("--batch-size", "2", "--allow-cpu-nodes", "--save", "topk,logits"),
        ("--batch-size=2", "--allow_cpu_nodes=True", "--save=topk,logits"),
        ("-batch_size", "2", "-allow_cpu_nodes", "True", "-save", "logits,", "topk"),
        ("--micro_batch_size", "2", "--noallow_cpu_nodes", "--allow_cpu_nodes", "true", "--save", "logits", "topk"),
    ):
        assert fingerprint(place, *NEEDS_NO_PICTURES, *words) == wanted, words


@pytest.mark.parametrize("off", [
    ("--noallow_cpu_nodes",), ("--no-allow-cpu-nodes",), ("--no_allow_cpu_nodes",), ("--allow_cpu_nodes", "False"),
    ("--allow-cpu-nodes=false",),
])  # fmt: skip
def test_switching_off(place: Path, plain: str, off: tuple[str, ...]) -> None:
    assert fingerprint(place, *NEEDS_NO_PICTURES, "--allow_cpu_nodes", *off) == plain


def test_both_names_of_the_number_of_devices(place: Path) -> None:
    for words in (("--num_ipus", "3"), ("--num-ipus=3",), ("--num_devices", "3")):
        done = run("infer_launch", *NEEDS_NO_PICTURES, *words, cwd=place)
        assert "3 workers" in done.stdout, done.stdout + done.stderr


def test_a_value_may_start_with_a_dash(place: Path) -> None:
    assert "--model_path -models" in refusal(place, "infer_launch", *NEEDS_NO_PICTURES, "--model_path", "-models")
    assert "--limit=-5: -5 is not a non-negative integer" in refusal(place, "infer_launch", "--limit", "-5")


@pytest.mark.parametrize(("words", "sentence"), [
    (("a", "resnext101_32x4d"), "word that belongs to no flag: 'resnext101_32x4d'; one word is taken for --data_dir: "),
    (("photos", "--data_dir", "photos"), "'photos' stands for --data_dir, which is given as well: leave one of them out"),
    (("--model", "resnet50"), "unknown flag: '--model'; did you mean --model_name?"),
    (("--device", "gpu"), "openvino:npu; cuda:1,3 picks by number; did you mean cuda?"),
    (("--precision", "half"), "did you mean --precision fp16?"),
    (("--dry_run", "syntetic"), "word that belongs to no flag: 'syntetic'; did you mean --synthetic?"),
    (("--batchsize", "6"), "unknown flag: '--batchsize'; did you mean --batch_size?"),
    (("--num-ipu=6",), "unknown flag: '--num-ipu'; did you mean --num_ipus?"),
    (("--device", "gpu9"), "--device gpu9: known are auto, cuda, tensorrt, cpu, openvino, openvino:gpu, openvino:npu"),
    (("--synthetic", "--save", "topk", "everything"), "--save everything: resnext101_32x4d has only topk, logits"),
    (("--batch_size",), "--batch_size needs a value"),
    (("--output", "--synthetic"), "--output needs a value"),
    (("--batch-size", "six"), "--batch_size=six: not a whole number"),
    (("--save", "none", "topk"), "--save: none cannot be combined with topk"),
])  # fmt: skip
def test_wrong_words_are_answered_in_one_sentence(place: Path, words: tuple[str, ...], sentence: str) -> None:
    answer = refusal(place, "infer_launch", *words)
    assert answer.startswith("infer_launch: ")
    assert sentence in answer


@pytest.mark.parametrize("name", ["get_model", "partition_dataset"])
def test_the_other_commands_answer_alike(place: Path, name: str) -> None:
    assert f"{name}: unknown flag: '--outputt'" in refusal(place, name, "--outputt", "x")


def test_flagfile(place: Path) -> None:
    (place / "saved.flags").write_text("# what we always run\n--batch-size 2\n--save=topk,logits\n--synthetic\n--dry_run\n")
    wanted = fingerprint(place, *NEEDS_NO_PICTURES, "--batch_size", "2", "--save", "topk", "logits")
    assert fingerprint(place, "--flagfile", "saved.flags") == wanted
    assert fingerprint(place, "--log-path", "logs", "--save", "none", "--flagfile=saved.flags") == wanted
    assert "No such file" in refusal(place, "infer_launch", "--flagfile", "lost.flags")


@pytest.mark.parametrize("word", ["--help", "-help"])
@pytest.mark.parametrize("name", ["get_model", "partition_dataset", "infer_launch"])
def test_help_of_the_scripts(place: Path, name: str, word: str) -> None:
    done = run(name, word, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{name}: ")


def test_help_lists_every_flag(place: Path) -> None:
    listed = " ".join(run("infer_launch", "--help", cwd=place).stdout.split())  # it is wrapped
    for field in dataclasses.fields(LaunchConfig):
        assert f"--{field.name}" in listed.replace("[no]", "")
        assert field.metadata["doc"] in listed


def test_every_way_to_start_a_command(place: Path) -> None:
    expected = run("infer_launch", "--help", cwd=place).stdout
    assert run("bulkinfer", "infer_launch", "--help", cwd=place).stdout == expected
    assert run("bulkinfer", "infer-launch", "--help", cwd=place).stdout == expected
    done = python_m(place, "infer_launch", "--help")
    assert (done.returncode, done.stdout) == (0, expected)
    assert python_m(place, "infer_launch", "--limit", "x").returncode == 2


def python_m(place: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "bulkinfer", *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=False)


def test_the_list_of_commands(place: Path) -> None:
    for word in ("--help", "-help", "help"):
        done = run("bulkinfer", word, cwd=place)
        assert done.returncode == 0
        assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert run("bulkinfer", cwd=place).returncode == 2
    assert refusal(place, "bulkinfer", "infer_lunch") == "bulkinfer: unknown command 'infer_lunch'; did you mean infer_launch?"
    assert "bulkinfer --help lists all" in refusal(place, "bulkinfer", "xyz")
    assert run("bulkinfer", "--version", cwd=place).stdout.startswith("bulkinfer ")
