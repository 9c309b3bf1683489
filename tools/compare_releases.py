"""Compares what two commits make of the same input; see tools/compare_releases."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests import pictures
from tests.foreign_graphs import foreign_graph, recipe_file, save
from tools import demo_photos

ROOT = Path(__file__).resolve().parents[1]
NETWORK = "efficientnet_lite0"
RUN = ("--model_name", NETWORK, "--batch_size", 6, "--device", "cpu", "--precision", "fp32", "--num_devices", 2)
ALL_OUTPUTS = ("--save", "topk,logits,embedding")
SIZES = ((640, 480), (480, 640), (500, 333), (224, 224), (1001, 257), (200, 150), (97, 311), (333, 334))
NEW_FLAGS = {"icc_profile"}  # of rows, which later releases added: reported, and no difference; everything else of a row is
BROKEN = 5  # of the pictures of a retry, every so many
ERROR_ROWS = 3  # the exit code of a run that has some


@dataclass(frozen=True)
class Release:
    """A checkout and how its commands are started: `python -m package`, with `source` on PYTHONPATH."""

    name: str
    package: str
    source: Path

    @classmethod
    def of(cls, name: str, root: Path) -> Release:
        """The release in a checkout; the package was named `inference` before it was `bulkinfer` in the folder inference/."""
        if (root / "inference" / "bulkinfer").is_dir():
            return cls(name, "bulkinfer", root / "inference")
        return cls(name, "inference", root)

    def run(self, home: Path, *words: object, code: int = 0) -> None:
        """Run a command in `home`. Exits with the command's output if it ends with another exit code than `code`."""
        environment = {name: value for name, value in os.environ.items() if name != "DATA_DIR"}
        environment["PYTHONPATH"] = str(self.source)
        command = [sys.executable, "-m", self.package, *map(str, words)]
        ended = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode != code:
            sys.exit(
                f"{self.name}: {' '.join(command)} ended with {ended.returncode}, not {code}:\n{ended.stdout}{ended.stderr}"
            )


def checkout(name: str, folder: Path) -> Release:
    """The release of a commit, its files put into `folder`, or that of the folder `name`."""
    if Path(name).is_dir():
        return Release.of(name, Path(name).resolve())
    folder.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", name], stdout=subprocess.PIPE, check=False)
    if archive.returncode:
        sys.exit(f"compare_releases: {name} is no folder, and no commit of {ROOT}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return Release.of(name, folder)


# -- what is made --------------------------------------------------------------------------------------------------------


def export_zoo(release: Release, home: Path) -> dict[str, str]:
    """sha256 of the files of a network with its published weights."""
    release.run(home, "get_model", "--model_name", NETWORK, "--batch_size", 6)
    return graph_files(home / "models" / NETWORK)


def export_random(release: Release, home: Path) -> dict[str, str]:
    """The same of a small network with random weights."""
    release.run(home, "get_model", "--model_name", "squeezenet1_1", "--weights", "random", "--batch_size", 4)
    return graph_files(home / "models" / "squeezenet1_1")


def export_adopted(release: Release, home: Path) -> dict[str, str]:
    """The same of an adopted ONNX graph."""
    graph, recipe = save(foreign_graph(), home), recipe_file(home)
    release.run(home, "get_model", "--onnx", graph, "--name", "adopted", "--recipe", recipe, "--scores", "logits")
    return graph_files(home / "models" / "adopted")


def run_demo(release: Release, home: Path) -> pa.Table:
    """Rows of tools/demo: two partitions of its photographs."""
    photographs = ROOT / "datasets" / "demo-photos"
    release.run(home, "partition_dataset", "--data_dir", photographs, "--partitions", 2, "--output", home / "demo")
    release.run(home, "infer_launch", *RUN, "--data_dir", home / "demo", "--output", home / "demo-rows")
    return read_rows(home / "demo-rows")


def run_walk(release: Release, home: Path) -> pa.Table:
    """Rows of 103 made-up photographs of many sizes, one turned and one cut, in 8 partitions."""
    files = {f"{n % 3}/{n:03d}.jpg": pictures.jpeg(*SIZES[n % 8], seed=n, quality=90) for n in range(101)}
    files["turned.jpg"] = pictures.oriented(pictures.photo(640, 480, seed=101), 6)
    files["cut.jpg"] = pictures.cut(pictures.jpeg(640, 480, seed=102))
    pictures.write_files(home / "walk-photos", files)
    release.run(home, "partition_dataset", "--data_dir", home / "walk-photos", "--partitions", 8, "--output", home / "walk")
    words = ("--data_dir", home / "walk", "--output", home / "walk-rows", *ALL_OUTPUTS)
    release.run(home, "infer_launch", *RUN, *words, code=ERROR_ROWS)
    return read_rows(home / "walk-rows")


def run_retry(release: Release, home: Path) -> pa.Table:
    """Rows after a retry: every fifth picture could not be decoded at first."""
    folder, output = home / "retry-photos", home / "retry-rows"
    files = {f"{n:03d}.jpg": pictures.jpeg(*SIZES[n % 8], seed=200 + n) for n in range(30)}
    broken = {name: pictures.cut(data, 0.3) for name, data in list(files.items())[::BROKEN]}
    pictures.write_files(folder, {**files, **broken})
    words = ("--data_dir", folder, "--output", output, "--batches_per_step", 2, *ALL_OUTPUTS)
    release.run(home, "infer_launch", *RUN, *words, code=ERROR_ROWS)
    pictures.write_files(folder, {name: files[name] for name in broken})
    release.run(home, "retry", output)
    return read_rows(output)


def run_skip_done(release: Release, home: Path) -> pa.Table:
    """Rows of the pictures that came after a first run, which --skip_done leaves out."""
    folder, first, then = home / "grown-photos", home / "first-rows", home / "then-rows"
    for output, numbers, more in ((first, range(12), ()), (then, range(8, 30), ("--skip_done", first))):
        pictures.write_files(folder, {f"{n:03d}.jpg": pictures.jpeg(*SIZES[n % 8], seed=300 + n) for n in numbers})
        release.run(home, "infer_launch", *RUN, "--data_dir", folder, "--output", output, *ALL_OUTPUTS, *more)
    return read_rows(then)


def train_digits(release: Release, home: Path) -> dict[str, str]:
    """sha256 of the weights after training on scikit-learn's digits."""
    import sklearn

    data = Path(sklearn.__file__).parent / "datasets" / "data"
    release.run(home, "train", "--config", "digits_resnet8", "--data_dir", data, "--log_path", home / "runs")
    return tensors(max((home / "runs").glob("*/checkpoints/*/*.safetensors")))


MADE: Mapping[str, Callable[[Release, Path], pa.Table | dict[str, str]]] = {
    f"export of {NETWORK}": export_zoo,
    "export of squeezenet1_1 with random weights": export_random,
    "export of an adopted graph": export_adopted,
    "rows of the demo": run_demo,
    "rows of the walk-through": run_walk,
    "rows after a retry": run_retry,
    "rows with --skip_done": run_skip_done,
    "weights trained on digits": train_digits,
}


# -- what the new release does with what the old one made ------------------------------------------------------------------


def go_on(release: Release, home: Path) -> None:
    """Verify, resume, retry, export, adopt and validate in the home of the old release; exits if a command refuses."""
    for output in ("demo-rows", "walk-rows", "retry-rows", "first-rows", "then-rows"):
        release.run(home, "verify", output)
    release.run(home, "infer_launch", *RUN, "--data_dir", home / "demo", "--output", home / "demo-rows")
    words = ("--data_dir", home / "walk", "--output", home / "walk-rows", *ALL_OUTPUTS)
    part = max((home / "walk-rows").glob("part-*"))
    before = read_rows(home / "walk-rows")
    part.unlink()
    release.run(home, "infer_launch", *RUN, *words, code=ERROR_ROWS)
    if found := difference(before, read_rows(home / "walk-rows")):
        sys.exit(f"{release.name}: the rows of a part that was missing are others: {found}")
    release.run(home, "retry", "walk-rows", code=ERROR_ROWS)
    release.run(home, "get_model", "--model_name", NETWORK, "--batch_size", 2)
    run = max((home / "runs").glob("*/checkpoints")).parent
    release.run(home, "validate", run, "--again")
    release.run(home, "train", "--resume", run, "--epochs", 16)
    release.run(home, "get_model", "--checkpoint", run, "--name", "digits")


# -- how it is compared --------------------------------------------------------------------------------------------------


def read_rows(output: Path) -> pa.Table:
    """All rows of an output folder with all columns, sorted by key, without the metadata (versions, names of jobs)."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(output.glob("part-*.parquet"))])
    return table.replace_schema_metadata(None).sort_by("key")


def graph_files(folder: Path) -> dict[str, str]:
    """sha256 of a model folder's graphs and weights, by name."""
    found = [path for path in folder.iterdir() if path.suffix in (".onnx", ".bin")]
    assert {path.suffix for path in found} == {".onnx", ".bin"}, found
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(found)}


def tensors(file: Path) -> dict[str, str]:
    """sha256 of the tensors in a safetensors file, by name."""
    from safetensors.numpy import load_file

    return {name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in sorted(load_file(file).items())}


def difference(old: pa.Table | Mapping[str, str], new: pa.Table | Mapping[str, str]) -> str:
    """The first difference in words; empty if both are the same bit for bit."""
    if isinstance(old, Mapping):
        names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        return f"{len(names)} differ, the first is {names[0]}" if names else ""
    if old.schema != new.schema:
        return f"columns {shown(old.schema)} became {shown(new.schema)}"
    keys = old["key"].to_pylist(), new["key"].to_pylist()
    if keys[0] != keys[1]:
        changed = Counter(keys[0])
        changed.subtract(keys[1])
        return (
            f"{len(keys[0])} rows became {len(keys[1])}, keys differ: {next(key for key, count in changed.items() if count)!r}"
        )
    for before, after in zip(old.to_pylist(), new.to_pylist(), strict=True):
        for name, value in before.items():
            if repr(value) != repr(after[name]):  # exact for floats, and NaN is NaN
                return f"{name} of {before['key']!r} was {value!r:.80}, is {after[name]!r:.80}"
    return ""


def without_new_flags(old: pa.Table, new: pa.Table) -> tuple[pa.Table, int]:
    """The new rows without the flags that later releases added and the old rows lack; and how many rows have such a flag."""
    if old.schema != new.schema or old["key"] != new["key"]:
        return new, 0
    before, after = old["flags"].to_pylist(), new["flags"].to_pylist()
    kept = [[flag for flag in now if flag not in NEW_FLAGS or flag in then] for then, now in zip(before, after, strict=True)]
    column = pa.chunked_array([pa.array(kept, new["flags"].type)])
    changed = sum(one != other for one, other in zip(kept, after, strict=True))
    return new.set_column(new.column_names.index("flags"), new.schema.field("flags"), column), changed


def shown(schema: pa.Schema) -> str:
    """Columns with their types, in one line."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def contents(made: pa.Table | Mapping[str, str]) -> str:
    """What was compared: counts, and the beginning of a sha256 over everything."""
    if isinstance(made, Mapping):
        digest = hashlib.sha256(repr(sorted(made.items())).encode())
        return f"{len(made)} sha256, together {digest.hexdigest()[:12]}"
    digest = hashlib.sha256(repr(made.to_pylist()).encode())
    counts = Counter(made["status"].to_pylist())
    told = f"{made.num_rows} rows ({counts['ok']} ok, {counts['error']} errors) x {made.num_columns} columns"
    return f"{told}, sha256 {digest.hexdigest()[:12]}"


def main() -> int:
    """Make everything with both releases, and compare; 1 at a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default="f6aa8a8", help="commit or folder of a checkout")
    parser.add_argument("--new", default=str(ROOT), help="the same")
    parser.add_argument("--only", default="", help="only comparisons whose name holds this word; exports are made all the same")
    words = parser.parse_args()
    demo_photos.main(ROOT / "datasets" / "demo-photos")
    folder, failed = Path(tempfile.mkdtemp(prefix="compare-releases-")), 0
    try:
        releases = [checkout(name, folder / f"checkout-{side}") for side, name in (("old", words.old), ("new", words.new))]
        homes = [folder / "old", folder / "new"]
        for home in homes:
            home.mkdir()
        for name, make in MADE.items():
            if words.only not in name and not name.startswith("export"):
                continue
            old, new = (make(release, home) for release, home in zip(releases, homes, strict=True))
            compared, flagged = without_new_flags(old, new) if isinstance(new, pa.Table) else (new, 0)
            found = difference(old, compared)
            failed += bool(found)
            said = f", but for a flag that is new ({', '.join(NEW_FLAGS)}) in {flagged} row(s)" if flagged else ""
            print(f"{name}: {contents(new)}: {f'DIFFERENT: {found}' if found else f'the same{said}'}", flush=True)
        if not words.only:
            go_on(releases[1], homes[0])
            print("what the old release made is verified, resumed, retried, exported, validated and trained on", flush=True)
    finally:
        shutil.rmtree(folder)
    print(f"{words.old} and {words.new}: {f'{failed} differences' if failed else 'bit-equal'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
