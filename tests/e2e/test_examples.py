"""The examples of --help are typed, one after the other, in a folder that has `photos`; and `bulkinfer run`."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.__main__ import COMMANDS
from bulkinfer.commands.examples import EXAMPLES
from bulkinfer.commands.shell_scripts import SCRIPTS

from tests.commands import SCRIPTS as PROGRAMS
from tests.commands import records, run, run_here
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.serving import usual_ports

# In this order each finds what it needs. get_dataset is left out, as it downloads, and serve, which ends by a signal.
TYPED = (
    *("get_model", "partition_dataset", "infer_launch", "bulkinfer run", "bulkinfer verify", "bulkinfer retry"),
    *("bulkinfer show", "bulkinfer rows", "bulkinfer score", "bulkinfer compare", "bulkinfer report", "bulkinfer watch"),
    *("bulkinfer jobs", "bulkinfer merge", "bulkinfer seal", "bulkinfer bench", "bulkinfer train", "bulkinfer average"),
    *("bulkinfer validate", "bulkinfer doctor", "bulkinfer completion", "bulkinfer request"),
    *("bulkinfer clean",),
)


def test_every_command_has_two_examples() -> None:
    shown = [name if name in SCRIPTS else f"bulkinfer {name}" for name in COMMANDS]
    assert {name: len(EXAMPLES.get(name, ())) for name in shown} == dict.fromkeys(shown, 2)
    assert all(example.startswith(f"{name} ") or example == name for name, known in EXAMPLES.items() for example in known)


@long
def test_the_examples_work(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 12)
    keys = sorted(str(path.relative_to(tmp_path / "photos")) for path in (tmp_path / "photos").rglob("*") if path.is_file())
    (tmp_path / "labels.csv").write_text("".join(f"{line}\n" for line in ["key,class", *(f"{key},1" for key in keys)]))
    before = {"bulkinfer merge": ("infer_launch photos --model_name efficientnet_lite0 --batches_per_step 1 --output shards "
                                  "--shard 1/1",)}  # fmt: skip
    for name in TYPED:
        for example in (*before.get(name, ()), *EXAMPLES[name]):
            with usual_ports() if name == "bulkinfer request" else contextlib.nullcontext():
                done = subprocess.run(
                    ["bash", "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1800,
                    env={"PATH": f"{PROGRAMS}:/usr/bin:/bin", "HOME": str(tmp_path)},
                )  # fmt: skip
            assert done.returncode == 0, (example, done.stdout, done.stderr)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_photos(tmp_path / "photos", 12)
    return tmp_path


def run_it(place: Path, *words: object) -> Any:
    return run_here("bulkinfer", "run", *words, cwd=place)


def test_run_takes_what_infer_launch_takes(place: Path) -> None:
    write_tiny_model(place / "models")
    words = ("--device", "cpu", "--engine", "inline", "--output", "out")
    done = run_it(place, "photos", "--model", "tiny", *words)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert len(records(place / "out")) == 12
    again = run_here("infer_launch", "photos", "--model_name", "tiny", *words, cwd=place)
    assert "nothing left to do" in again.stdout  # it is the same job


@pytest.mark.parametrize(("words", "sentence"), [
    (("nowhere",), "nowhere does not exist: give a folder of pictures or of partitions"),
    (("photos", "--model", "efficientnet_lite9"), "no network is called 'efficientnet_lite9'; nearest are efficientnet_lite"),
    (("photos", "more"), "word that belongs to no flag: 'more'"),
    (("photos", "--dry_run"), "models/efficientnet_lite0/card.json does not exist: run get_model"),
])  # fmt: skip
def test_run_refuses_in_one_sentence_before_it_makes_anything(place: Path, words: tuple[str, ...], sentence: str) -> None:
    done = run_it(place, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr
    assert not (place / "models").exists()


def test_run_without_the_packages_of_the_zoo_names_the_command(place: Path) -> None:
    (place / "blocked").mkdir()
    (place / "blocked" / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    done = run("bulkinfer", "run", "photos", cwd=place, env={"PYTHONPATH": str(place / "blocked")})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the package torch is needed, which is not installed: pip install" in done.stderr
    assert "[zoo]" in done.stderr
