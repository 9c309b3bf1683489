"""Programs of others are given a results folder, and read the rows and nothing else (docs/adr/0022)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from bulkinfer.files.atomic import temporary_path
from bulkinfer.files.output_lock import results_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch.launcher import launch
from bulkinfer.results.parquet_parts import publish_table, published_steps, set_aside
from bulkinfer.results.part_names import STAGING

from tests.launches import config_of

PHOTOS = 10
POLARS = [
    "polars.read_parquet(folder).height",
    "polars.read_parquet(folder + '/').height",
    "polars.scan_parquet(folder).collect().height",
    "polars.read_parquet(folder + '/*').height",
    "polars.scan_parquet(folder + '/*.parquet').collect().height",
    "polars.read_parquet(folder + '/**/*.parquet').height",
]
DUCKDB = "duckdb.sql(f\"from read_parquet('{folder}GLOB')\").to_arrow_table().num_rows"
DATASETS = [
    "datasets.load_dataset(folder, split='train', cache_dir=cache).num_rows",
    "datasets.load_dataset('parquet', data_dir=folder, split='train', cache_dir=cache).num_rows",
]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job, with all that may lie about a job that is running or was killed."""
    folder = tmp_path_factory.mktemp("readers")
    options = {"save": ("topk", "embedding"), "save_precision": "fp16"}
    assert launch(config_of(folder, photos=PHOTOS, engine="inline", batches_per_step=1, **options)).exit_code == 0
    output = folder / "out"
    step = published_steps(output)[0]
    part = output / f"part-{step.partition:05d}-{step.start:010d}-{step.end:010d}.parquet"
    content, table = part.read_bytes(), pq.read_table(part)
    part.write_bytes(b"damaged")
    set_aside(output, step)
    part.write_bytes(content)
    staging = own_folder(output) / STAGING
    staging.mkdir()
    publish_table(staging / part.name, table, {})

    def die() -> None:
        left = next(path for path in own_folder(output).iterdir() if path.name.startswith("_tmp-"))
        temporary_path(left).write_bytes(left.read_bytes()[:100])
        raise InterruptedError

    with pytest.raises(InterruptedError):
        publish_table(output / "part-00009-0000000000-0000000001.parquet", table, {}, before_rename=die)
    return output


def rows_read(package: str, expressions: list[str], output: Path, cache: Path) -> list[int]:
    """What each expression gives in a new process, while the output is locked by a running launcher."""
    code = f"import sys, {package}; folder, cache = sys.argv[1:]; " + "; ".join(f"print({text})" for text in expressions)
    env = {"HF_HOME": str(cache), "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    with results_lock(output):
        done = subprocess.run(
            [sys.executable, "-c", code, str(output), str(cache)], env=env, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def test_c48_polars_reads_the_rows_alone(output: Path, tmp_path: Path) -> None:
    assert rows_read("polars", POLARS, output, tmp_path) == [PHOTOS] * len(POLARS)


def test_c48_duckdb_reads_the_rows_alone(output: Path, tmp_path: Path) -> None:
    expressions = [DUCKDB.replace("GLOB", glob) for glob in ("/*", "/**", "/*.parquet", "/**/*.parquet", "")]
    assert rows_read("duckdb", expressions, output, tmp_path) == [PHOTOS] * len(expressions)


def test_c48_hugging_face_datasets_reads_the_rows_alone(output: Path, tmp_path: Path) -> None:
    assert rows_read("datasets", DATASETS, output, tmp_path) == [PHOTOS] * len(DATASETS)


def test_c48_pandas_reads_the_rows_alone(output: Path, tmp_path: Path) -> None:
    expressions = ["len(pandas.read_parquet(folder))", "len(pandas.read_parquet(folder, columns=['key']))"]
    assert rows_read("pandas", expressions, output, tmp_path) == [PHOTOS] * 2


# How many bits the numbers of an embedding have that was saved as float16: docs/how-to/read-results.md says so.
FLOAT16 = {
    "pandas": ("pandas.read_parquet(folder).embedding[0].dtype.itemsize * 8", 16),
    "polars": ("polars.read_parquet(folder)['embedding'].to_numpy().dtype.itemsize * 8", 16),
    "duckdb": ("32 * (str(duckdb.sql(f\"select embedding from '{folder}/*.parquet'\").types[0]) == 'FLOAT[]')", 32),
    "datasets": (
        "16 * (datasets.load_dataset(folder, split='train', cache_dir=cache).features['embedding'].feature.dtype == 'float16')",
        16,
    ),
}


@pytest.mark.parametrize("package", FLOAT16)
def test_how_readers_see_float16_embeddings(output: Path, tmp_path: Path, package: str) -> None:
    expression, bits = FLOAT16[package]
    assert rows_read(package, [expression], output, tmp_path) == [bits]


def test_c48_pyarrow_reads_the_rows_alone(output: Path) -> None:
    with results_lock(output):
        assert pq.read_table(output).num_rows == ds.dataset(output, format="parquet").count_rows() == PHOTOS


def test_c48_spark_reads_the_rows_alone(output: Path) -> None:
    """Spark reads every file whose name, and whose folders' names, do not begin with _ or a dot."""
    with results_lock(output):
        files = [path for path in output.rglob("*") if path.is_file() and _is_seen(path.relative_to(output))]
        assert sum(pq.read_metadata(path).num_rows for path in files) == PHOTOS


def _is_seen(path: Path) -> bool:
    return not any(name.startswith(("_", ".")) for name in path.parts)


def test_c48_the_results_folder_holds_parts_only(output: Path) -> None:
    with results_lock(output):
        assert {path.name[:5] for path in output.iterdir()} == {"part-"}
        assert {"_job.json", "_lock.json", STAGING} < {path.name for path in own_folder(output).iterdir()}
