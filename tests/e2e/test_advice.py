"""Advice is executed: a message that names a command or an option is made to come, what it names is typed, and it works."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.files.output_lock import LOCK_FILE
from bulkinfer.files.own_folder import own_folder
from bulkinfer.results.job_file import job_path

from tests.commands import command, records, run, run_here
from tests.faults.slow_site import held_at_line
from tests.foreign_graphs import foreign_graph, recipe_file, save
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model

LAUNCH = ("infer_launch", "--model_name", "tiny", "--device", "cpu", "--engine", "inline")
PROGRAMS = "get_model|infer_launch|partition_dataset|bulkinfer"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a network and 12 pictures; its name needs quotes in a shell."""
    folder = tmp_path / "a place; with #"
    write_tiny_model(folder / "models", batch_sizes=(6,))
    write_photos(folder / "photos", 12)
    return folder


def here(place: Path, *words: object) -> Any:
    """Run a command in this process."""
    return run_here(str(words[0]), *words[1:], cwd=place)


def refused(place: Path, *words: object, code: int = 2) -> str:
    """What a command that must end with `code` says: one sentence."""
    done = here(place, *words)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    return str(done.stderr)


def advised(told: str, start: str = PROGRAMS) -> list[str]:
    """The command that a message names last, as a shell splits it: from its name to the end of the clause."""
    found = list(re.finditer(rf"(?:: |run |with |; )((?:{start}) .*?)(?:$|; |, and | goes on| fills | \()", told.strip()))
    assert found, told
    return shlex.split(found[-1][1])


def works(place: Path, words: list[str], code: int = 0) -> Any:
    """Type the words: they end with `code`."""
    done = here(place, *words)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


def test_help_of_an_unknown_word(place: Path) -> None:
    assert "did you mean verify?" in refused(place, "bulkinfer", "verfy")
    assert "did you mean --batch_size?" in refused(place, *LAUNCH, "--batchsiz", 3)
    told = refused(place, *LAUNCH, "--qqqqqq")
    assert told.endswith("; see infer_launch --help\n")
    works(place, ["infer_launch", "--help"])


@pytest.mark.parametrize(("name", "told"), [("verify", "sound: every record"), ("retry", "nothing left")])
def test_without_a_word_the_newest_job_is_taken(place: Path, name: str, told: str) -> None:
    words = advised(refused(place, "bulkinfer", name), "bulkinfer")
    assert words == ["bulkinfer", "run", "photos"]
    works(place, [*words, *LAUNCH[1:]])
    assert told in works(place, ["bulkinfer", name]).stdout


def test_the_example_of_seal(place: Path) -> None:
    words = advised(refused(place, "bulkinfer", "seal"), "bulkinfer")
    (place / "models" / "resnet50").symlink_to("tiny")
    assert "nothing has changed" in works(place, words).stdout


def test_the_command_that_partition_dataset_names(place: Path) -> None:
    done = works(place, ["partition_dataset", "--data_dir", "photos", "--output", "two parts", "--partitions", "2"])
    words = shlex.split(done.stdout.splitlines()[-1].removeprefix("next: "))
    assert words == ["infer_launch", "--data_dir", "two parts", "--model_name", "tiny"]
    works(place, [*words, "--device", "cpu", "--engine", "inline"])


def test_partition_dataset_again(place: Path) -> None:
    split = ["partition_dataset", "--data_dir", "photos", "--output", "parts", "--partitions", "2"]
    works(place, split)
    for damage in ("manifest.parquet", "gone", "dataset.json"):
        if damage == "gone":
            shutil.rmtree(place / "parts" / "1")
        elif damage == "dataset.json":
            next((place / "parts").glob("*.json")).write_text("{")
        else:
            (place / "parts" / "0" / damage).write_bytes(b"x")
        told = refused(place, *LAUNCH, "--data_dir", "parts", code=1)
        assert "partition_dataset again" in told
        again = here(place, *split)
        if again.returncode == 2:  # what is damaged is not removed unasked: it is named
            assert "move it away" in again.stderr or "move that folder away" in again.stderr, again.stderr
            shutil.rmtree(place / "parts")
            works(place, split)
        else:
            assert again.returncode == 0, again.stderr
        works(place, [*LAUNCH, "--data_dir", "parts", "--overwrite"])


def test_another_job_in_the_output(place: Path) -> None:
    works(place, [*LAUNCH, "--data_dir", "photos", "--output", "out"])
    told = refused(place, *LAUNCH, "--data_dir", "photos", "--output", "out", "--save", "logits")
    assert "give another --output, or --overwrite to remove them" in told
    works(place, [*LAUNCH, "--data_dir", "photos", "--output", "other", "--save", "logits"])
    works(place, [*LAUNCH, "--data_dir", "photos", "--output", "out", "--save", "logits", "--overwrite"])
    assert "logits" in next(iter(records(place / "out").values()))


def test_pictures_that_came_later(place: Path) -> None:
    works(place, [*LAUNCH, "--data_dir", "photos", "--output", "my out"])
    write_photos(place / "more", 13)
    told = refused(place, *LAUNCH, "--data_dir", "more", "--output", "my out")
    works(place, shlex.split(told.partition("without an ok row there: ")[2]))
    assert len(records(place / "my out-2")) == 1


def test_a_repaired_picture_is_retried(place: Path) -> None:
    """docs/errors.md says so for every error row."""
    broken = place / "photos" / "000-black.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:40])
    works(place, [*LAUNCH, "--data_dir", "photos", "--output", "out"], code=3)
    broken.write_bytes(whole)
    works(place, ["bulkinfer", "retry", "out"])
    assert {row["status"] for row in records(place / "out").values()} == {"ok"}
    works(place, ["bulkinfer", "verify", "out"])


def test_an_edited_card_is_sealed(place: Path) -> None:
    card = place / "models" / "tiny" / "card.json"
    card.write_text(card.read_text().replace("made by the tests", "made by me"))
    told = refused(place, *LAUNCH, "--data_dir", "photos", "--model_path", place / "models")
    words = shlex.split(re.search(r"run: (bulkinfer seal .*?)\)", told)[1])  # type: ignore[index]
    assert "made by me" in works(place, words).stdout
    works(place, [*LAUNCH, "--data_dir", "photos"])


def test_an_edited_job_file_is_sealed(place: Path) -> None:
    works(place, [*LAUNCH, "--data_dir", "photos", "--output", "my out"])
    job = job_path(place / "my out")
    job.write_text(job.read_text().replace("pictures in", "photographs in", 1))
    told = refused(place, "bulkinfer", "verify", "my out", code=1)
    done = works(place, shlex.split(re.search(r"run: (bulkinfer seal .*?)\)", told)[1]))  # type: ignore[index]
    assert "changed: source is now" in done.stdout
    assert "sound: every record" in works(place, ["bulkinfer", "verify", "my out"]).stdout


def test_a_damaged_lock(place: Path) -> None:
    launch = [*LAUNCH, "--data_dir", "photos", "--output", "my out"]
    works(place, launch)
    (own_folder(place / "my out") / LOCK_FILE).write_text("garbage")
    told = refused(place, *launch, code=1)
    removal = re.search(r"remove it: (rm -r .*?)(?:$|, or)", told)
    assert removal, told
    subprocess.run(["bash", "-c", removal[1]], cwd=place, check=True)
    works(place, launch)


def test_a_variant_is_named_by_its_network_and_precision(place: Path) -> None:
    shutil.copytree(place / "models" / "tiny", place / "models" / "tiny" / "fp16")
    told = refused(place, *LAUNCH[:1], "--model_name", "tiny/fp16", "--device", "cpu", "--data_dir", "photos")
    assert "use --model_name tiny --precision fp16" in told


@long
def test_the_commands_that_infer_launch_and_get_model_name(tmp_path: Path) -> None:
    """The hint of infer_launch makes the network, and the next command that get_model names runs it."""
    write_photos(tmp_path / "my photos", 6)
    launch = ["infer_launch", "--model_name", "efficientnet_lite0", "--data_dir", "my photos", "--device", "cpu"]
    told = refused(tmp_path, *launch, "--model_path", "my models")
    made = works(tmp_path, advised(told, "get_model"))
    following = shlex.split(made.stdout.splitlines()[-1].removeprefix("next: "))
    assert following[-2:] == ["--data_dir", "my photos"]  # the only folder of pictures there
    works(tmp_path, following)
    works(tmp_path, [*launch, "--model_path", "my models", "--batch_size", "3"])
    weights = next((tmp_path / "my models" / "efficientnet_lite0").glob("weights-*.bin"))
    weights.write_bytes(weights.read_bytes()[:-1])
    damaged = refused(tmp_path, *launch, "--model_path", "my models")
    works(tmp_path, advised(damaged, "get_model"))
    works(tmp_path, [*launch, "--model_path", "my models", "--output", "after"])


@long
def test_a_stopped_training_goes_on(tmp_path: Path) -> None:
    words = (
        "train",
        "--dataset",
        "generated",
        "--model",
        "cifar_resnet20",
        "--steps",
        400,
        "--micro_batch_size",
        8,
        "--log_path",
        "my logs",
    )
    piped, environment = subprocess.PIPE, os.environ | held_at_line(tmp_path, "step: ", tmp_path / "held")
    process = subprocess.Popen(
        command("bulkinfer", *words), cwd=tmp_path, env=environment, stdout=piped, stderr=piped, text=True
    )
    assert process.stdout is not None
    # a signal before the first update leaves nothing to go on with
    assert any(line.startswith("step: ") for line in process.stdout), process.communicate()
    process.send_signal(signal.SIGHUP)
    (tmp_path / "held").unlink()
    _, told = process.communicate(timeout=300)
    assert process.returncode == 129, told
    goes_on = re.search(r"; (bulkinfer train --resume .*) goes on from there", told)
    assert goes_on, told
    done = run(*shlex.split(goes_on[1]), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("harm", ["card", "weights"])
def test_a_damaged_network_of_a_file_is_made_again_as_it_was(place: Path, harm: str) -> None:
    save(foreign_graph(num_classes=3), place / "graphs")
    recipe_file(place / "graphs")
    (place / "graphs" / "the labels.txt").write_text("red\ngreen\nblue\n")
    made = ["--onnx", "graphs/m.onnx", "--recipe", "graphs/recipe.json", "--labels", "graphs/the labels.txt"]
    made += ["--input", "float32", "--output_name", "y", "--scores", "logits", "--licence", "as 'is'"]
    works(place, ["get_model", *made, "--name", "mine", "--batch_size", "6"])
    card = place / "models" / "mine" / "card.json"
    before = json.loads(card.read_text())
    launch = ["infer_launch", "--model_name", "mine", "--device", "cpu", "--engine", "inline", "--data_dir", "photos"]
    works(place, [*launch, "--limit", "3", "--output", "out"])
    if harm == "card":
        card.write_text(card.read_text().replace('"num_parameters": ', '"num_parameters": 1', 1))
    else:
        (place / "models" / "mine" / before["external_data"]).unlink()
    works(place, advised(refused(place, *launch), "get_model"))
    assert json.loads(card.read_text()) == before
    works(place, [*launch, "--limit", "3", "--output", "out"])
    assert {row["class_names"][0] for row in records(place / "out").values()} <= {"red", "green", "blue"}
