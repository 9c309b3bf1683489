"""A bit flips in a job, a data set, a model folder or a run: a command refuses and names the file, or nothing changes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from bulkinfer.model.card import check_graph_files
from bulkinfer.records.dataset import Dataset, open_dataset
from bulkinfer.results.reader import read_results
from bulkinfer.results.verify import verify
from bulkinfer.train.checkpoints import checkpoint

from tests import training
from tests.commands import rows, run_here
from tests.flips import Flip, called, choose, outcome, run_flips
from tests.foreign_graphs import foreign_graph, recipe_file, save
from tests.forms import long
from tests.launches import config_of, write_photos

SEED = 5
ROWS_ARE_THERE = (0, 3)  # exit codes of infer_launch and retry
LAUNCH = ("--model_name", "tiny", "--batch_size", 4, "--device", "cpu", "--precision", "fp32", "--engine", "inline",
          "--model_path", "models", "--log_path", "logs", "--data_dir", "datasets", "--output", "out", "--batches_per_step", 1,
          "--save", "topk,embedding")  # fmt: skip
JOB_FOLDERS = ("out", ".out.bulkinfer", "datasets")
RETRY = ("--data_dir", "datasets", "--model_path", "models", "--log_path", "logs", "--engine", "inline")
ADOPTED = ("--model_name", "adopted", "--batch_size", 4, "--device", "cpu", "--precision", "fp32", "--engine", "inline",
           "--model_path", "models", "--log_path", "logs", "--data_dir", "photos", "--batches_per_step", 1)  # fmt: skip
ADOPT = ("--onnx", "graph.onnx", "--name", "adopted", "--recipe", "recipe.json", "--scores", "logits", "--batch_size", 4,
         "--model_path", "models")  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job of 10 pictures in two partitions, one of which is an error row."""
    home = tmp_path_factory.mktemp("job")
    config_of(home)
    (home / "photos" / "001-red.png").write_bytes(b"no picture")
    assert (
        run_here("partition_dataset", "--data_dir", "photos", "--output", "datasets", "--partitions", 2, cwd=home).returncode
        == 0
    )
    done = run_here("infer_launch", *LAUNCH, cwd=home)
    assert done.returncode == 3, done
    return home


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network made of somebody's graph, and three pictures."""
    home = tmp_path_factory.mktemp("adopted")
    save(foreign_graph(), home).rename(home / "graph.onnx")
    recipe_file(home).rename(home / "recipe.json")
    write_photos(home / "photos", 3)
    done = run_here("get_model", *ADOPT, cwd=home)
    assert done.returncode == 0, done
    done = run_here("infer_launch", *ADOPTED, "--output", "before", cwd=home)
    assert done.returncode == 0, done
    return home


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of 12 updates with a checkpoint every 5, and as it was after 10 of them."""
    home = tmp_path_factory.mktemp("run")
    straight = training.trained(home, checkpoints_per_epoch=1, keep_last=0)
    training.cut_back(straight, 10).rename(home / "cut")
    straight.rename(home / "straight")
    return home


def files_of(*folders: Path) -> list[Path]:
    """The files of bulkinfer's in some folders, without locks and logs."""
    logs = (".csv", ".txt", ".log", ".jsonl", ".lock", "status.json")
    return sorted(
        path for folder in folders for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and not path.name.endswith(logs) and path.stat().st_size
    )  # fmt: skip


def job_files(job: Path) -> list[Path]:
    return files_of(*(job / name for name in JOB_FOLDERS))


def check_job(work: Path, flip: Flip, expected: pa.Table) -> set[str]:
    """verify, then the same launch and retry in either order: each refuses, or the rows are the same afterwards."""
    seen = set()
    if called(work, flip, "verify", "out"):
        assert rows(work / "out").equals(expected), (flip, "verify found nothing")
    else:
        seen.add("refused")
    commands = [("infer_launch", *LAUNCH), ("retry", "out", *RETRY)]
    for name, *words in commands if flip.bit % 2 else reversed(commands):
        if called(work, flip, name, *words, sound=ROWS_ARE_THERE):
            assert rows(work / "out").equals(expected), (flip, name)
            seen.add("equal")
        else:
            seen.add("refused")
    return seen


def check_adopted(work: Path, flip: Flip, expected: pa.Table) -> set[str]:
    """infer_launch, get_model again, and, if that has changed a file, infer_launch again."""
    seen = set()
    for number, again in enumerate((False, True)):
        if again:
            before = contents(work / "models")
            if not called(work, flip, "get_model", *ADOPT):
                seen.add("refused")
            if contents(work / "models") == before:
                break
        if called(work, flip, "infer_launch", *ADOPTED, "--output", f"out-{number}"):
            assert rows(work / f"out-{number}").equals(expected), flip
            seen.add("equal")
        else:
            seen.add("refused")
    return seen


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_run(work: Path, flip: Flip, expected: Path) -> set[str]:
    """train --resume of the run that was cut off, and validate."""
    seen = set()
    with training.one_thread():
        seen.add("equal" if called(work, flip, "validate", "cut", "--again") else "refused")
        if called(work, flip, "train", "--resume", "cut"):
            training.assert_same_weights(expected / "straight", work / "cut")
            seen.add("equal")
        else:
            seen.add("refused")
    return seen


# -- through the readers: some in every run of the tests ------------------------------------------------------------------


def keys_of(dataset: Dataset) -> list[bytes]:
    """The keys of a data set, in order."""
    return [record.key for partition in dataset.partitions for record in partition.manifest.records()]


def read_job(work: Path) -> Callable[[Flip], set[str]]:
    """Checks verify(), the rows, and the records of the data set."""
    keys = keys_of(open_dataset(work / "datasets"))
    table = read_results(work / "out").table()

    def check(flip: Flip) -> set[str]:
        verdict = outcome(flip, lambda: verify(work / "out").faults, [], refusals=True)
        found = outcome(flip, lambda: read_results(work / "out").table(), table)
        assert verdict == "refused" or found == "equal", flip
        return {
            verdict,
            found,
            outcome(flip, lambda: keys_of(open_dataset(work / "datasets")), keys),
        }

    return check


def read_network(work: Path) -> Callable[[Flip], set[str]]:
    """Checks card and graph of a model folder, and the classes that a graph gives for its golden pictures."""
    folder = work / "models" / "adopted"
    card, sidecar, _ = check_graph_files(folder, 4)

    def check(flip: Flip) -> set[str]:
        return {outcome(flip, lambda: check_graph_files(folder, 4)[:2], (card, sidecar))}

    return check


def read_run(work: Path) -> Callable[[Flip], set[str]]:
    """Checks the tensors and the state of the checkpoints of a run."""
    paths = checkpoint.steps_of(work / "cut")
    before = {path: checkpoint.read(path) for path in paths}

    def check(flip: Flip) -> set[str]:
        return {outcome(flip, lambda path=path: same_checkpoint(checkpoint.read(path), before[path]), True) for path in paths}

    return check


def same_checkpoint(one: checkpoint.Checkpoint, other: checkpoint.Checkpoint) -> bool:
    """True if state and tensors have the same bits."""
    tensors = [(one.weights, other.weights), (one.optimiser, other.optimiser), (one.ema, other.ema)]
    same = all(a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in tensors)
    return same and one.state == other.state


@pytest.mark.parametrize(("scene", "folders", "reader", "count"), [
    ("job", JOB_FOLDERS, read_job, 50), ("adopted", ("models",), read_network, 80), ("run", ("cut",), read_run, 70),
])  # fmt: skip
def test_c29_200_bits_through_the_readers(
    scene: str, folders: Sequence[str], reader: Callable[[Path], Callable[[Flip], set[str]]], count: int,
    tmp_path: Path, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    home, work = request.getfixturevalue(scene), tmp_path / "work"
    shutil.copytree(home, work, symlinks=True)
    check, seen = reader(work), Counter[str]()
    for flip in choose(work, files_of(*(work / name for name in folders)), count, SEED):
        flip.apply(work)
        seen["refused" if "refused" in check(flip) else "equal"] += 1
        flip.apply(work)
    assert seen.total() == count
    assert seen["refused"] > 0


# -- through the commands: 2,000 in the long form --------------------------------------------------------------------------


@long
def test_c29_800_bits_of_a_job(job: Path, tmp_path: Path) -> None:
    before = rows(job / "out")
    seen = run_flips(
        job, choose(job, job_files(job), 800, SEED), lambda work, flip: check_job(work, flip, before), tmp_path / "w"
    )
    assert_all_seen(seen, 800)


@long
def test_c29_800_bits_of_a_model_folder(adopted: Path, tmp_path: Path) -> None:
    before, places = rows(adopted / "before"), choose(adopted, files_of(adopted / "models"), 800, SEED)
    seen = run_flips(adopted, places, lambda work, flip: check_adopted(work, flip, before), tmp_path / "w")
    assert_all_seen(seen, 800)


@long
def test_c29_400_bits_of_a_training_run(run: Path, tmp_path: Path) -> None:
    places = choose(run, files_of(run / "cut"), 400, SEED)
    seen = run_flips(run, places, lambda work, flip: check_run(work, flip, run), tmp_path / "w")
    assert_all_seen(seen, 400)


def assert_all_seen(seen: Counter[str], count: int) -> None:
    """All flips were checked, and some of both outcomes were there."""
    print(f"{count} flips: {dict(seen)}")
    assert seen.total() == count
    assert min(seen["refused"], seen["equal"]) > 0, seen
