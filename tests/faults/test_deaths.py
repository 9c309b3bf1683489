"""Workers that die: a picture that kills whatever touches it is found and costs one row; a broken start is given up on."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests import pictures
from tests.commands import records, run
from tests.forms import long
from tests.models import COLOURS, LABELS, tiny_graph, write_tiny_model

# put in front of the workers' modules by PYTHONPATH: a decoder that is killed by the marker, as by a broken codec
SITECUSTOMIZE = """
import os, PIL.Image
plain = PIL.Image.open
def deadly(fp, *args, **options):
    if b"DEADLY" in fp.getvalue():
        os.kill(os.getpid(), 9)
    return plain(fp, *args, **options)
PIL.Image.open = deadly
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models")
    files = {
        f"{i:03d}-{LABELS[i % 8]}.png": pictures.encode(Image.new("RGB", (40, 40), COLOURS[LABELS[i % 8]])) for i in range(90)
    }
    pictures.write_files(tmp_path / "photos", files)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    return tmp_path


@long
@pytest.mark.parametrize("deadly", [("041-red.png",), ("000-black.png", "089-red.png")])
def test_a_deadly_picture_costs_one_row(place: Path, deadly: tuple[str, ...]) -> None:
    for name in deadly:
        path = place / "photos" / name
        path.write_bytes(path.read_bytes() + b"DEADLY")
    found = run("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--num_devices", 2, "--batches_per_step", 8,
                "--output", "out", cwd=place, env={"PYTHONPATH": str(place / "site")})  # fmt: skip
    assert found.returncode == 3, found.stderr
    by_key = records(place / "out")
    assert len(by_key) == 90
    failed = {key: row for key, row in by_key.items() if row["status"] == "error"}
    assert set(failed) == set(deadly)
    for row in failed.values():
        assert row["stage"] == "decode"
        assert "SIGKILL" in row["error"]
    assert all(row["class_names"][0] in key for key, row in by_key.items() if key not in deadly)
    deaths = found.stdout.count("replaced: ")
    assert 3 <= deaths <= len(deadly) * 4, "in company, its neighbour ruled out, and twice alone"
    assert run("bulkinfer", "verify", "out", cwd=place).returncode == 0
    again = run("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--output", "out", cwd=place)
    assert "90 of 90 records are done" in again.stdout


@long
def test_b40_workers_that_cannot_start_are_given_up_on(place: Path) -> None:
    (place / "site" / "sitecustomize.py").write_text(
        "import sys\nif 'bulkinfer.worker.process' in sys.orig_argv: sys.exit('no luck')"
    )
    found = run("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--num_devices", 2, cwd=place,
                env={"PYTHONPATH": str(place / "site")})  # fmt: skip
    assert found.returncode == 1
    assert "no luck" in found.stderr
    assert "Traceback" not in found.stderr


def test_b28_a_graph_that_the_runtime_refuses_is_one_sentence(place: Path) -> None:
    graph = tiny_graph(6)
    graph.graph.node[0].op_type = "NoSuchOperator"
    write_tiny_model(place / "models", graph=graph)
    found = run(
        "infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--num_devices", 4, "--output", "out", cwd=place
    )
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "NoSuchOperator" in found.stderr


@long
def test_a_worker_that_finds_another_graph_refuses(place: Path) -> None:
    """A worker is replaced after the model was: the new graph must not add to the rows of the old one."""
    (place / "site" / "sitecustomize.py").write_text(
        SITECUSTOMIZE + "import sys\nif 'bulkinfer.worker.process' in sys.orig_argv:\n"
        "    flag = os.path.join(os.environ['PLACE'], 'flag')\n"
        "    if os.path.exists(flag):\n        from tests.models import write_tiny_model, tiny_graph\n        import pathlib\n"
        "        graph = tiny_graph(6)\n        graph.producer_name = 'another'\n"
        "        write_tiny_model(pathlib.Path(os.environ['PLACE'], 'models'), graph=graph)\n    open(flag, 'w').close()\n"
    )
    path = place / "photos" / "041-red.png"
    path.write_bytes(path.read_bytes() + b"DEADLY")
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{place / 'site'}:{root}", "PLACE": str(place)}
    found = run("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--num_devices", 1, cwd=place, env=environment)
    assert found.returncode == 1
    assert "was replaced during the run" in found.stderr
