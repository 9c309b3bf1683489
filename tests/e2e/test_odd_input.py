"""infer_launch on what people really have: broken, oversized, wrongly named pictures; odd names; tails of every size."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests import pictures
from tests.commands import UNPRIVILEGED, command, records, rows, run, summary
from tests.forms import long, long_param, only_first
from tests.models import COLOURS, LABELS, tiny_graph, write_tiny_model
from tests.sealed import write_sealed

ON_CPU = ("--model_name", "tiny", "--device", "cpu")
LAUNCH = (*ON_CPU, "--data_dir", "photos")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models", batch_sizes=(1, 4, 6))
    (tmp_path / "photos").mkdir()
    return tmp_path


def solid(colour: str, format: str = "PNG", **options: Any) -> bytes:
    return pictures.encode(Image.new("RGB", (40, 36), COLOURS[colour]), format, **options)


def write(place: Path, files: dict[str, bytes]) -> None:
    pictures.write_files(place / "photos", files)


def launch(place: Path, *words: object, code: int = 0, **options: Any) -> Any:
    found = run("infer_launch", *LAUNCH, "--output", "out", *words, cwd=place, **options)
    assert found.returncode == code, found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    return found


def test_b01_b02_one_cut_picture_costs_one_row(place: Path) -> None:
    files = {f"{i:02d}.jpg": pictures.encode(pictures.noise(64, 48, i), "JPEG") for i in range(20)}
    files["07.jpg"] = pictures.cut(files["07.jpg"])
    files |= {"cut.png": pictures.cut(pictures.encode(pictures.noise(64, 48))), "page.jpg": pictures.HTML_PAGE}
    write(place, files)
    launch(place, "--batch_size", 4, code=3)
    found = records(place / "out")
    assert len(found) == 22
    failed = {key: row["error"] for key, row in found.items() if row["status"] == "error"}
    assert set(failed) == {"07.jpg", "cut.png", "page.jpg"}
    assert "truncated JPEG" in failed["07.jpg"]
    assert "PNG" in failed["cut.png"]
    assert "HTML" in failed["page.jpg"]
    assert len(set(failed.values())) == 3


def test_b04_content_decides_and_the_real_format_is_recorded(place: Path) -> None:
    write(place, {"png.JPEG": solid("red"), "webp.png": solid("red", "WEBP", lossless=True), "jpeg.heic": solid("red", "JPEG"),
                  "stub.jpg": pictures.HEIC_STUB})  # fmt: skip
    launch(place, code=3)
    found = records(place / "out")
    assert {key: row["format"] for key, row in found.items()} == {
        "png.JPEG": "PNG", "webp.png": "WEBP", "jpeg.heic": "JPEG", "stub.jpg": None,
    }  # fmt: skip
    assert found["stub.jpg"]["error"] == "corrupt HEIC: its header cannot be read"
    assert {row["class_names"][0] for row in found.values() if row["status"] == "ok"} == {"red"}


def raw_and_renamed() -> dict[str, bytes]:
    """Camera raw and other pictures, each under names that say something else, and what becomes of them."""
    return {
        **{name: pictures.camera_raw() for name in ("raw.NEF", "raw.dng", "raw.tif", "raw.jpg", "raw")},
        "jpeg.dng": solid("red", "JPEG"), "tiff.nef": solid("red", "TIFF"), "page.png": pictures.HTML_PAGE,
    }  # fmt: skip


def check_raw_and_renamed(found: dict[str, Any]) -> None:
    assert found.keys() == raw_and_renamed().keys()
    assert {row["error"] for key, row in found.items() if key.startswith("raw")} == {"camera raw: only a thumbnail"}
    assert (found["jpeg.dng"]["format"], found["tiff.nef"]["format"]) == ("JPEG", "TIFF")
    assert found["page.png"]["error"] == "not a picture: HTML page"


def test_c02_a_folder_is_judged_by_content(place: Path) -> None:
    write(place, raw_and_renamed() | {"notes.dng": b"a text"})
    assert "not pictures: 1 (1 .dng)" in launch(place, code=3).stdout
    check_raw_and_renamed(records(place / "out"))


@long
@pytest.mark.parametrize("way", ["list", "coco", "partitions"])
def test_c02_every_way_in_gives_the_same_rows(place: Path, way: str) -> None:
    write(place, raw_and_renamed())
    names = list(raw_and_renamed())
    (place / "list.txt").write_text("\n".join(names))
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    (place / "coco.json").write_text(json.dumps({"images": images, "annotations": [], "categories": []}))
    words = {"list": ["--list_file", "list.txt"], "coco": ["--annotations", "coco.json"], "partitions": []}[way]
    made = run("partition_dataset", "--data_dir", "photos", "--partitions", 1, "--output", "parts", *words, cwd=place)
    assert made.returncode == 0, made.stderr
    ended = run("infer_launch", *ON_CPU, "--data_dir", "parts", "--output", "out", cwd=place)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    check_raw_and_renamed(records(place / "out"))


def test_b05_b10_b11_modes_are_three_channels_and_nothing_is_printed(place: Path) -> None:
    grey = Image.new("L", (40, 36), 255)
    write(place, {
        "grey.jpg": pictures.encode(grey, "JPEG"), "one_bit.png": pictures.encode(grey.convert("1")),
        "grey16.png": pictures.grey16_png(), "cmyk.jpg": pictures.cmyk_jpeg(),
        "cmyk_bare.jpg": pictures.cmyk_jpeg(adobe_marker=False),
        "palette.png": pictures.encode(Image.new("RGB", (40, 36), COLOURS["cyan"]).convert("P")),
        "alpha.png": pictures.encode(Image.new("RGBA", (40, 36), (*COLOURS["blue"], 0))),
        **{f"exif_{name}.jpg": pictures.with_app1(solid("red", "JPEG"), exif) for name, exif in pictures.BROKEN_EXIF.items()},
    })  # fmt: skip
    found = launch(place, "--save", "topk,embedding")
    assert "warn" not in found.stdout.lower().replace("warm", "")
    assert found.stderr == ""
    rows_by_key = records(place / "out")
    best = {key: row["class_names"][0] for key, row in rows_by_key.items()}
    assert (best["grey.jpg"], best["one_bit.png"]) == ("white", "white")
    assert (best["palette.png"], best["alpha.png"]) == ("cyan", "blue")
    assert all(best[key] == "red" for key in best if key.startswith("exif_"))
    assert rows_by_key["grey16.png"]["flags"] == ["scaled_16bit"]
    assert np.allclose(rows_by_key["grey16.png"]["embedding"], 0.5, atol=0.05)  # a ramp: clipped it would be nearly 1
    assert rows_by_key["cmyk.jpg"]["embedding"] == rows_by_key["cmyk_bare.jpg"]["embedding"]


def test_b08_oversized_pictures_are_rows_and_neighbours_unaffected(place: Path) -> None:
    write(place, {"a.png": solid("red"), "huge.png": pictures.bit_png(14000, 14000), "z.png": solid("lime")})
    launch(place, code=3)
    found = records(place / "out")
    assert "too large: 14000x14000" in found["huge.png"]["error"]
    assert (found["a.png"]["class_names"][0], found["z.png"]["class_names"][0]) == ("red", "lime")
    launch(place, "--max_pixels", 1000, "--overwrite", code=3)
    assert {row["status"] for row in records(place / "out").values()} == {"error"}


@long
def test_b13_first_frame_one_row(place: Path) -> None:
    write(place, {"two.jpg": pictures.animated("MPO"), "a.gif": pictures.animated("GIF"), "b.webp": pictures.animated("WEBP"),
                  "c.png": pictures.animated("PNG")})  # fmt: skip
    launch(place)
    found = records(place / "out")
    assert len(found) == 4
    assert {row["class_names"][0] for row in found.values()} == {"red"}
    assert all(row["frames"] > 1 for row in found.values())


@long
def test_b14_junk_is_counted_as_ignored(place: Path) -> None:
    write(place, {"001.jpg": solid("red", "JPEG"), "._001.jpg": pictures.APPLE_DOUBLE, ".DS_Store": b"x", "Thumbs.db": b"x",
                  "__MACOSX/001.jpg": pictures.APPLE_DOUBLE, ".hidden/002.jpg": solid("red", "JPEG"),
                  "notes.txt": b"hello"})  # fmt: skip
    launch(place)
    assert set(records(place / "out")) == {"001.jpg"}
    assert any("ignored" in line for line in summary(place / "logs")["ignored"])


ODD_NAMES = [
    "set[1]/a.png",
    "a*b/a.png",
    "q?x/a.png",
    "100% #1/a.png",
    "-v/a.png",
    "a b/a.png",
    "line\nbreak.png",
    'comma,"quote".png',
]


@pytest.mark.parametrize("environment", only_first([{}, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}]))
def test_b16_b17_b19_odd_names_keep_their_rows(place: Path, environment: dict[str, str]) -> None:
    names = [os.fsencode(name) for name in ODD_NAMES]
    names += [b"caf\xe9.png", "café.png".encode(), "cafe\u0301.png".encode(), b"n" * 251 + b".png", b"sub/n.png", b"n.png"]
    for number, name in enumerate(names):
        path = place / "photos" / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(solid(LABELS[number % 8]))
    launch(place, env=environment)
    table = rows(place / "out").to_pylist()
    found = {row["key_bytes"] or row["key"].encode(): row["class_names"][0] for row in table}
    assert found == {name: LABELS[number % 8] for number, name in enumerate(names)}
    assert run("bulkinfer", "verify", "out", cwd=place, env=environment).returncode == 0


@long
def test_b16_a_folder_called_like_a_flag(place: Path) -> None:
    shutil.move(place / "photos", place / "-v")
    (place / "-v" / "a.png").write_bytes(solid("red"))
    found = run("infer_launch", *ON_CPU, "--data_dir", "-v", "--output", "out", cwd=place)
    assert found.returncode == 0, found.stderr
    assert set(records(place / "out")) == {"a.png"}


@pytest.mark.parametrize("count", only_first([10, 1, 4, 5]))
def test_b25_tails_give_the_rows_of_a_batch_of_one(place: Path, count: int) -> None:
    files = {f"{i}.png": pictures.encode(pictures.noise(50, 40, i)) for i in range(count)}
    if count == 5:
        files["4.png"] = pictures.cut(files["4.png"])  # alone in the tail, and broken
    write(place, files)
    code = 3 if count == 5 else 0
    for batch_size in (4, 1):
        launch(place, "--batch_size", batch_size, "--save", "topk,logits", "--output", f"out{batch_size}", code=code)
    four, one = rows(place / "out4"), rows(place / "out1")
    assert four.num_rows == one.num_rows == count
    for a, b in zip(four["logits"].to_pylist(), one["logits"].to_pylist(), strict=True):
        assert (a is None and b is None) or np.allclose(a, b, atol=1e-5)


@long
def test_b47_equal_contents_keep_their_rows_and_a_swapped_model_is_refused(place: Path) -> None:
    write(place, {f"{i}.png": solid("red" if i < 3 else LABELS[i]) for i in range(8)})
    launch(place)
    assert len(records(place / "out")) == 8
    other = tiny_graph(6)
    other.graph.initializer[0].float_data[:] = []
    other.producer_name = "another"
    write_tiny_model(place / "models", graph=other)
    found = launch(place, code=2)
    assert "differs in graph_sha256" in found.stderr


def test_b49_empty_files_do_not_shift_their_neighbours(place: Path) -> None:
    write(place, {f"{i}-{LABELS[i]}.png": b"" if i in (2, 5) else solid(LABELS[i]) for i in range(6)})
    launch(place, code=3)
    found = records(place / "out")
    for key, row in found.items():
        if row["status"] == "ok":
            assert row["class_names"][0] in key
        else:
            assert row["error"] == "empty file"
    assert [key[0] for key, row in sorted(found.items()) if row["status"] == "error"] == ["2", "5"]


@long
def test_b49_labels_stay_with_their_names(place: Path) -> None:
    """Also those of empty files, which give no values; the annotations name them in another order."""
    write(place, {f"{i}-{LABELS[i]}.png": b"" if i in (2, 5) else solid(LABELS[i]) for i in range(6)})
    images = [{"id": 100 + i, "file_name": f"{i}-{LABELS[i]}.png"} for i in (3, 0, 5, 1, 4, 2)]
    annotations = [{"image_id": 100 + i, "category_id": i + 1} for i in range(6)]
    (place / "instances.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    words = ("--data_dir", "photos", "--annotations", "instances.json", "--partitions", 2)
    assert run("partition_dataset", *words, cwd=place).returncode == 0
    found = run("infer_launch", *ON_CPU, "--output", "out", cwd=place)
    assert found.returncode == 3, found.stderr
    by_key = records(place / "out")
    assert {key: row["label_ids"] for key, row in by_key.items()} == {f"{i}-{LABELS[i]}.png": [i + 1] for i in range(6)}
    assert [key[0] for key, row in sorted(by_key.items()) if row["error"] == "empty file"] == ["2", "5"]
    assert all(row["class_names"][0] in key for key, row in by_key.items() if row["status"] == "ok")


@long
def test_b23_results_and_logs_inside_the_pictures_are_not_taken_for_pictures(place: Path) -> None:
    write(place, {f"{i}.png": solid(LABELS[i]) for i in range(6)})
    for told in ("records: 6 = 6 ok + 0 errors", "6 of 6 records are done, 0 to do"):
        found = run("infer_launch", *LAUNCH, "--output", "photos/out", "--log_path", "photos/logs", cwd=place)
        assert found.returncode == 0, found.stderr
        assert told in found.stdout
        assert set(records(place / "photos" / "out")) == {f"{i}.png" for i in range(6)}
    launch(place)
    assert len(records(place / "out")) == 6


def test_pictures_that_vanish_after_the_partitioning_are_rows(place: Path) -> None:
    write(place, {f"{i}.png": solid(LABELS[i]) for i in range(8)})
    assert run("partition_dataset", "--data_dir", "photos", "--partitions", 2, cwd=place).returncode == 0
    (place / "photos" / "3.png").unlink()
    found = run("infer_launch", *ON_CPU, "--output", "out", cwd=place)
    assert found.returncode == 3, found.stderr
    row = records(place / "out")["3.png"]
    assert (row["status"], row["stage"]) == ("error", "read")
    assert "not found" in row["error"]


@long
def test_gaps_and_foreign_manifests_are_refused(place: Path) -> None:
    write(place, {f"{i}.png": solid(LABELS[i]) for i in range(8)})
    assert run("partition_dataset", "--data_dir", "photos", "--partitions", 3, cwd=place).returncode == 0
    shutil.copytree(place / "datasets", place / "copy", symlinks=True)
    shutil.rmtree(place / "datasets" / "1")
    found = run("infer_launch", "--model_name", "tiny", cwd=place)
    assert found.returncode != 0
    assert "1" in found.stderr
    assert found.stderr.count("\n") == 1
    shutil.copy(place / "copy" / "0" / "manifest.parquet", place / "copy" / "1" / "manifest.parquet")
    found = run("infer_launch", "--model_name", "tiny", "--data_dir", "copy", cwd=place)
    assert found.returncode != 0
    assert "does not match" in found.stderr


def test_no_pictures_is_an_error(place: Path) -> None:
    found = launch(place, code=2)
    assert "holds no pictures" in found.stderr


def test_float32_graphs_get_normalised_input(place: Path) -> None:
    write_tiny_model(place / "models", "floats", input="float32")
    write(place, {f"{i}.png": solid(LABELS[i]) for i in range(8)})
    found = run("infer_launch", *LAUNCH, "--model_name", "floats", "--output", "out", cwd=place)
    assert found.returncode == 0, found.stderr
    assert {int(key[0]): row["class_ids"][0] for key, row in records(place / "out").items()} == {i: i for i in range(8)}


@long
def test_random_weights_are_warned_about_and_recorded(place: Path) -> None:
    write_tiny_model(place / "models", weights="random")
    write(place, {"a.png": solid("red")})
    found = launch(place)
    assert "random" in found.stderr
    assert summary(place / "logs")["weights"]["source"] == "random"


def launch_without_privileges(place: Path, output: str) -> Any:
    words = [*UNPRIVILEGED, *command("infer_launch", *LAUNCH, "--output", output)]
    return subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=300, check=False)


@long
def test_b20_unreadable_folders_and_files_are_told(place: Path) -> None:
    write(place, {"a.png": solid("red"), "closed.png": solid("red"), "sub/b.png": solid("red")})
    (place / "photos" / "closed.png").chmod(0)
    (place / "photos" / "sub").chmod(0)
    found = launch_without_privileges(place, "out")
    assert found.returncode == 3, found.stdout + found.stderr
    assert "sub" in found.stderr
    assert found.stderr.endswith("1 file or folder could not be read, see above: the pictures there have no rows\n")
    by_key = records(place / "out")
    assert {key: row["status"] for key, row in by_key.items()} == {"a.png": "ok", "closed.png": "error"}
    assert by_key["closed.png"]["stage"] == "read"


@long
def test_an_output_that_cannot_be_written_is_one_sentence(place: Path) -> None:
    write(place, {"a.png": solid("red")})
    (place / "closed").mkdir(mode=0o555)
    found = launch_without_privileges(place, "closed/out")
    assert found.returncode == 1
    assert found.stderr.count("\n") == 1
    assert "Permission denied" in found.stderr
    assert "closed" in found.stderr


@pytest.mark.usefixtures("openvino")
@long
def test_the_runtime_leaves_nothing_in_the_home_folder(place: Path) -> None:
    """Its telemetry would write a device id and a store of events there."""
    write(place, {"a.png": solid("red")})
    home = place / "home"
    home.mkdir()
    for device in ("cpu", "openvino"):
        launch(place, "--device", device, "--output", f"out-{device}", env={"HOME": str(home)})
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("infer_launch", *LAUNCH),
        long_param(("partition_dataset", "--data_dir", "photos")),
        long_param(("infer_launch", "--help")),
    ],
)
def test_closed_stdout_and_stderr_change_nothing(place: Path, words: tuple[str, ...]) -> None:
    write(place, {"a.png": solid("red")})
    line = " ".join(command(*words))
    assert subprocess.run(["sh", "-c", f"{line} >&-"], cwd=place, timeout=300, check=False).returncode == 0
    assert subprocess.run(["sh", "-c", f"{line} >&- 2>&-"], cwd=place, timeout=300, check=False).returncode == 0


@pytest.mark.parametrize("field", only_first(["labels", "recipe"]))
def test_a_card_that_does_not_fit_its_graph_is_refused(place: Path, field: str) -> None:
    """Not found out picture by picture: that would make error rows of good pictures."""
    write(place, {"a.png": solid("red")})
    path = place / "models" / "tiny" / "card.json"
    card = json.loads(path.read_text())
    if field == "labels":
        card["labels"].pop()
    else:
        card["recipe"]["height"] += 1
    write_sealed(path, card)
    found = launch(place, code=2)
    assert "card.json does not fit model_6.onnx" in found.stderr
    assert found.stderr.count("\n") == 1
