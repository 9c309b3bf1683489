"""One record that the network, or the process, cannot bear: it gets its error row, and every other record keeps its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests import pictures
from tests.commands import records, run
from tests.forms import long
from tests.graphs import MARKER, raises_on_marker
from tests.launches import write_photos
from tests.models import COLOURS, LABELS, write_tiny_model

# put in front of the workers' modules by PYTHONPATH: a decoder that never comes back from the marker. `sleep` by ctypes.PyDLL
# holds the interpreter's lock meanwhile, as native code may: no thread of the worker can report anything.
HANGS = """
import ctypes, time, PIL.Image
plain = PIL.Image.open
def hangs(fp, *args, **options):
    if b"HANGS" in fp.getvalue():
        {hang}
    return plain(fp, *args, **options)
PIL.Image.open = hangs
"""


@long
def test_one_poisoned_record_in_a_thousand_costs_one_row(tmp_path: Path) -> None:
    """Its index leads a Gather out of range: the runtime refuses the whole batch, which is bisected."""
    write_tiny_model(tmp_path / "models", graph=raises_on_marker(6))
    names = [LABELS[number % 7] for number in range(1000)]  # all colours but the last, white
    files = {
        f"{number:04d}-{name}.png": pictures.encode(Image.new("RGB", (40, 40), COLOURS[name]))
        for number, name in enumerate(names)
    }
    poisoned = "0613-magenta.png"
    files[poisoned] = pictures.encode(Image.new("RGB", (40, 40), MARKER))
    pictures.write_files(tmp_path / "photos", files)
    found = run("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--precision", "fp32",
                "--num_devices", 2, "--batches_per_step", 20, "--output", "out", cwd=tmp_path)  # fmt: skip
    assert found.returncode == 3, found.stderr
    by_key = records(tmp_path / "out")
    assert set(by_key) == set(files)
    failed = [key for key, row in by_key.items() if row["status"] == "error"]
    assert failed == [poisoned]
    assert by_key[poisoned]["stage"] == "infer"
    assert "out of" in by_key[poisoned]["error"], by_key[poisoned]["error"]
    assert all(row["class_names"][0] in key for key, row in by_key.items() if key != poisoned)
    assert "replaced: " not in found.stdout, "no process had to die for it"
    assert run("bulkinfer", "verify", "out", cwd=tmp_path).returncode == 0


@long
@pytest.mark.parametrize("hang", ["time.sleep(1000)", "ctypes.PyDLL(None).sleep(1000)"], ids=["waits", "holds_the_lock"])
def test_a_picture_that_hangs_the_decoder_costs_one_row(tmp_path: Path, hang: str) -> None:
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 90)
    hanging = tmp_path / "photos" / "041-red.png"
    hanging.write_bytes(hanging.read_bytes() + b"HANGS")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HANGS.format(hang=hang))
    found = run("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--num_devices", 2, "--batches_per_step", 8,
                "--stall_timeout_s", 10, "--precision", "fp32", "--output", "out", cwd=tmp_path,
                env={"PYTHONPATH": str(tmp_path / "site")})  # fmt: skip
    assert found.returncode == 3, found.stderr
    by_key = records(tmp_path / "out")
    assert len(by_key) == 90
    assert [key for key, row in by_key.items() if row["status"] == "error"] == ["041-red.png"]
    assert by_key["041-red.png"]["stage"] == "decode"
    assert "making no progress in 10 s" in by_key["041-red.png"]["error"]
    assert all(row["class_names"][0] in key for key, row in by_key.items() if row["status"] == "ok")
    assert 3 <= found.stdout.count("replaced: ") <= 4
    assert run("bulkinfer", "verify", "out", cwd=tmp_path).returncode == 0
