"""predictor.py: an open network makes rows of paths, files and pixels, in any number and from any thread."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.model.card import graph_path, read_card, read_sidecar
from bulkinfer.results.rows import task_for
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.worker import predictor as module
from bulkinfer.worker.loader import Limits
from bulkinfer.worker.predictor import Predictor
from PIL import Image

from tests import pictures
from tests.graphs import MARKER, grows_on, overflows_on_marker, raises_on_marker
from tests.models import COLOURS, LABELS, SIZE, colour_logits, write_tiny_model

PATIENCE_S = 60.0
LIMITS = Limits(max_pixels=1_000_000, max_file_bytes=1_000_000)


def make(
    folder: Path, *save: str, graph: onnx.ModelProto | None = None, input: str = "uint8", limits: Limits = LIMITS
) -> Predictor:
    """The tiny network with batches of 4, two streams and three loader threads."""
    network = write_tiny_model(folder, batch_sizes=(4,), graph=graph, input=input)
    card, path = read_card(network / "card.json"), graph_path(network, 4)
    task = task_for(card, save or ("topk",), 2, read_sidecar(path).outputs)
    return Predictor(card, SessionSpec(str(path), "cpu", "fp32", 2, 1), task, limits, 3)


@pytest.fixture
def predictor(tmp_path: Path) -> Iterator[Predictor]:
    with make(tmp_path) as opened:
        yield opened


def png(name: str) -> bytes:
    return pictures.encode(Image.new("RGB", (40, 50), COLOURS[name]))


def pixels(name: str) -> np.ndarray[Any, Any]:
    return np.full((50, 40, 3), COLOURS[name], np.uint8)


def best(table: Any) -> list[str | None]:
    return [names and names[0] for names in table["class_names"].to_pylist()]


def test_what_it_says_of_itself(predictor: Predictor) -> None:
    assert (predictor.card.name, predictor.batch_size) == ("tiny", 4)
    assert (predictor.provider, predictor.precision) == ("cpu", "fp32")
    assert predictor.proof["nodes"].keys() == {"CPUExecutionProvider"}


@pytest.mark.parametrize("count", [1, 3, 4, 5, 23])
def test_paths_files_and_pixels_give_the_same_rows(tmp_path: Path, predictor: Predictor, count: int) -> None:
    names = [LABELS[number % 8] for number in range(count)]
    paths = [tmp_path / f"{number}-{name}.png" for number, name in enumerate(names)]
    for path, name in zip(paths, names, strict=True):
        path.write_bytes(png(name))
    tables = [
        predictor.predict(paths),
        predictor.predict(str(path) for path in paths),
        predictor.predict([png(name) for name in names]),
        predictor.predict([pixels(name) for name in names]),
    ]
    for table in tables:
        assert best(table) == names
        assert table["scores"].to_pylist() == tables[0]["scores"].to_pylist()
        assert table.schema == tables[0].schema
    assert tables[0]["key"].to_pylist() == tables[1]["key"].to_pylist() == list(map(str, paths))
    assert tables[2]["key"].to_pylist() == tables[3]["key"].to_pylist() == list(map(str, range(count)))
    assert tables[0]["size_bytes"].to_pylist() == [path.stat().st_size for path in paths]
    assert tables[0]["format"].to_pylist() == ["PNG"] * count
    facts = {name: tables[3][name].to_pylist()[0] for name in ("format", "frames", "width", "height", "size_bytes", "flags")}
    assert facts == {"format": "array", "frames": 1, "width": 40, "height": 50, "size_bytes": None, "flags": []}
    assert set(tables[0]["partition"].to_pylist()) == {0}


def test_a_mix_keeps_its_order_and_its_names(tmp_path: Path, predictor: Predictor) -> None:
    odd = tmp_path / "h\udcff.png"  # a name that is not UTF-8
    odd.write_bytes(png("blue"))
    table = predictor.predict([pixels("red"), odd, bytearray(png("cyan")), memoryview(png("lime")), str(odd)])
    assert best(table) == ["red", "blue", "cyan", "lime", "blue"]
    shown = f"{tmp_path}/h\\xff.png"
    assert table["key"].to_pylist() == ["0", shown, "2", "3", shown]
    assert table["key_bytes"].to_pylist()[1] == bytes(tmp_path) + b"/h\xff.png"


def test_a_single_picture_may_stand_alone(tmp_path: Path, predictor: Predictor) -> None:
    path = tmp_path / "one.png"
    path.write_bytes(png("magenta"))
    for picture in (path, str(path), png("magenta"), bytearray(png("magenta")), pixels("magenta")):
        assert best(predictor.predict(picture)) == ["magenta"]
    assert best(predictor.predict(np.stack([pixels("red"), pixels("lime")]))) == ["red", "lime"], "an array of pictures"


def test_no_pictures_give_an_empty_table(predictor: Predictor) -> None:
    empty = predictor.predict([])
    assert empty.num_rows == 0
    assert empty.schema == predictor.predict([pixels("red")]).schema


def test_bad_pictures_become_error_rows(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(pictures.encode(Image.new("RGB", (120, 100))))
    (tmp_path / "heavy.png").write_bytes(pictures.encode(pictures.noise(60, 60)))
    given = [pictures.cut(pictures.jpeg()), tmp_path / "gone.png", b"", tmp_path / "large.png", tmp_path / "heavy.png",
             (tmp_path / "heavy.png").read_bytes(), np.zeros((120, 100, 3), np.uint8), pixels("red"), tmp_path, "a\0b",
             *pictures.NOT_PICTURES.values()]  # fmt: skip
    with make(tmp_path, limits=Limits(10_000, 10_000)) as predictor:
        table = predictor.predict(given)
    status, errors = table["status"].to_pylist(), list(zip(table["stage"].to_pylist(), table["error"].to_pylist(), strict=True))
    assert [number for number, value in enumerate(status) if value == "ok"] == [7]
    size = (tmp_path / "heavy.png").stat().st_size
    assert errors[0][0] == "decode"
    assert errors[0][1].startswith("truncated JPEG")
    assert errors[1:10] == [
        ("read", "file not found (or a link to a file that is not there)"),
        ("decode", "empty file"),
        ("decode", "too large: 120x100 = 12000 pixels, limit 10000"),
        ("read", f"too large: {size} bytes, limit 10000"),
        ("read", f"too large: {size} bytes, limit 10000"),
        ("decode", "too large: 100x120 = 12000 pixels, limit 10000"),
        (None, None),
        ("read", "is a directory"),
        ("read", "a path with a zero byte in it names no file"),
    ]
    assert [stage for stage, _ in errors[10:]] == ["decode"] * len(pictures.NOT_PICTURES)
    assert best(table)[7] == "red"
    assert table["scores"].to_pylist()[0] is None


def test_pixels_without_any_are_an_error_row(predictor: Predictor) -> None:
    table = predictor.predict([np.zeros((0, 5, 3), np.uint8), pixels("red")])
    assert table["status"].to_pylist() == ["error", "ok"]
    assert table["stage"].to_pylist()[0] == "preprocess"


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 0, 3)])
def test_a_single_array_without_pixels_is_an_error_row(predictor: Predictor, shape: tuple[int, ...]) -> None:
    table = predictor.predict(np.zeros(shape, np.uint8))
    assert table["status"].to_pylist() == ["error"]
    assert table["error"].to_pylist() == [f"no pixels: an array of {shape[0]} x {shape[1]}"]


@pytest.mark.parametrize("reduce_to", [0, 60])
def test_c27_pixel_data_that_end_early_are_an_error_row(tmp_path: Path, reduce_to: int) -> None:
    short = pictures.cut(pictures.jpeg(256, 256)) + pictures.EOI
    with make(tmp_path, limits=Limits(1_000_000, 1_000_000, reduce_to)) as predictor:
        table = predictor.predict([short, pictures.jpeg(256, 256)])
    assert table["status"].to_pylist() == ["error", "ok"]
    assert table["stage"].to_pylist()[0] == "decode"
    assert table["error"].to_pylist()[0] == "corrupt JPEG: premature end of data segment"


@pytest.mark.parametrize(
    ("picture", "told"),
    [
        (3, r"pictures\[1\] is a int; a path, the bytes of a picture file, or an array uint8 H x W x 3 \(RGB\) is needed"),
        (np.zeros((4, 4, 3), np.float32), r"pictures\[1\] is an array float32 4 x 4 x 3; a path"),
        (np.zeros((3, 4, 4), np.uint8), r"pictures\[1\] is an array uint8 3 x 4 x 4; a path"),
        ("\ud800", r"pictures\[1\] is no path"),
        (None, r"pictures\[1\] is a NoneType"),
    ],
)
def test_what_is_no_picture_is_refused(predictor: Predictor, picture: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        predictor.predict([pixels("red"), picture])
    assert best(predictor.predict([pixels("red")])) == ["red"]


def test_pixels_need_not_be_contiguous(predictor: Predictor) -> None:
    wide = np.zeros((60, 80, 6), np.uint8)
    wide[..., 1::2] = COLOURS["yellow"]
    assert best(predictor.predict(wide[::2, ::-1, 1::2])) == ["yellow"]


@pytest.mark.parametrize("input", ["uint8", "float32"])
@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_run_gives_all_outputs_for_any_number(tmp_path: Path, input: str, count: int) -> None:
    images = np.random.default_rng(count).integers(0, 256, (count, SIZE, SIZE, 3), np.uint8)
    with make(tmp_path, input=input) as predictor:
        found = predictor.run(images)
    means = images.mean(axis=(1, 2), dtype=np.float64) / 255
    assert {name: values.shape for name, values in found.items()} == {"logits": (count, 8), "embedding": (count, 3)}
    assert all(values.dtype == np.float32 for values in found.values())
    np.testing.assert_allclose(found["embedding"], means, atol=1e-5)
    np.testing.assert_allclose(found["logits"], colour_logits(means), atol=1e-4)


def test_run_refuses_other_arrays(predictor: Predictor) -> None:
    with pytest.raises(UsageError, match="tiny runs on prepared pictures, uint8 N x 32 x 32 x 3; given was an array float32"):
        predictor.run(np.zeros((1, SIZE, SIZE, 3), np.float32))  # type: ignore[arg-type]
    for shape in ((SIZE, SIZE, 3), (1, 3, SIZE, SIZE), (1, SIZE, SIZE + 1, 3)):
        with pytest.raises(UsageError, match="given was an array uint8"):
            predictor.run(np.zeros(shape, np.uint8))
    with pytest.raises(UsageError, match="given was a list"):
        predictor.run([])  # type: ignore[arg-type]


def test_a_picture_on_which_the_network_fails_costs_its_row_only(tmp_path: Path) -> None:
    with make(tmp_path, graph=raises_on_marker(4)) as predictor:
        table = predictor.predict([pixels(name) for name in ("red", "blue", "white", "lime", "cyan")])
        assert table["stage"].to_pylist() == [None, None, "infer", None, None]
        assert [name for name in best(table) if name] == ["red", "blue", "lime", "cyan"]
        with pytest.raises(RunError, match="the network fails on a batch of 4: "):
            predictor.run(np.full((2, SIZE, SIZE, 3), MARKER, np.uint8))
        assert predictor.run(np.zeros((2, SIZE, SIZE, 3), np.uint8))["logits"].shape == (2, 8)


def test_c01_an_output_that_grows_costs_one_row(tmp_path: Path) -> None:
    with make(tmp_path, "embedding", graph=grows_on(4, MARKER)) as predictor:
        table = predictor.predict([pixels(name) for name in ("red", "blue", "white", "lime", "cyan")])
        assert table["stage"].to_pylist() == [None, None, "infer", None, None]
        assert table["embedding"].to_pylist()[3] == [0, 1, 0]
        with pytest.raises(RunError, match=r"embedding has the shape .* its size depends on the pictures"):
            predictor.run(np.full((2, SIZE, SIZE, 3), MARKER, np.uint8))


@pytest.mark.parametrize("save", ["topk", "embedding"])
def test_values_that_are_not_finite_are_flagged(tmp_path: Path, save: str) -> None:
    with make(tmp_path, save, graph=overflows_on_marker(4)) as predictor:
        table = predictor.predict([pixels("red"), pixels("white")])
    assert table["flags"].to_pylist() == [[], ["non_finite"]]
    assert ("embedding" in table.column_names) == (save == "embedding")


def test_threads_may_share_it(predictor: Predictor) -> None:
    def one(number: int) -> bool:
        names = [LABELS[(number + place) % 8] for place in range(number % 7 + 1)]
        images = np.stack([np.full((SIZE, SIZE, 3), COLOURS[name], np.uint8) for name in names])
        is_right = best(predictor.predict([pixels(name) for name in names])) == names
        return is_right and [LABELS[place] for place in predictor.run(images)["logits"].argmax(axis=1)] == names

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(100)))


def test_a_forked_process_is_refused_and_does_not_wait(predictor: Predictor) -> None:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            predictor.predict([pixels("red")])
        except UsageError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        assert told.read().startswith("this Predictor was opened in another process")
    assert best(predictor.predict([pixels("red")])) == ["red"]


@pytest.mark.parametrize("pictures", [None, 5])
def test_what_holds_no_pictures_is_refused(predictor: Predictor, pictures: Any) -> None:
    with pytest.raises(UsageError, match="give a picture, or a list of pictures"):
        predictor.predict(pictures)


def test_after_close_it_refuses(predictor: Predictor) -> None:
    predictor.close()
    predictor.close()
    for call in (lambda: predictor.predict([]), lambda: predictor.run(np.zeros((0, SIZE, SIZE, 3), np.uint8))):
        with pytest.raises(UsageError, match="this Predictor is closed: open the network again with open_model"):
            call()


def its_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"predictor", "stream-0", "stream-1", "loader-0", "loader-2"}


def wait_until_threads_end() -> None:
    until = time.monotonic() + PATIENCE_S
    while its_threads():
        assert time.monotonic() < until, its_threads()
        time.sleep(0.01)


def test_calls_under_way_finish_before_it_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    load_bytes = module.load_bytes

    def slow(*values: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return load_bytes(*values)

    monkeypatch.setattr(module, "load_bytes", slow)
    predictor = make(tmp_path)
    with ThreadPoolExecutor(2) as threads:
        call = threads.submit(predictor.predict, [png("red")] * 9)
        assert begun.wait(PATIENCE_S)
        closing = threads.submit(predictor.close)
        time.sleep(0.05)
        assert not closing.done()
        go_on.set()
        assert best(call.result(PATIENCE_S)) == ["red"] * 9
        closing.result(PATIENCE_S)
    wait_until_threads_end()


def test_a_fault_of_ours_reaches_every_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("by design")

    with make(tmp_path) as predictor:
        monkeypatch.setattr(module, "load_bytes", broken)
        for _ in range(2):
            with pytest.raises(RunError, match=r"cannot go on \(ZeroDivisionError: by design\): open it again") as caught:
                predictor.predict([png("red")])
            assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_pictures_are_let_go_when_their_rows_are_there(predictor: Predictor) -> None:
    picture = pixels("red").copy()
    others = [pixels("red").copy() for _ in range(9)]
    seen = [weakref.ref(one) for one in (picture, *others)]
    assert best(predictor.predict([picture, *others])) == ["red"] * 10
    del picture, others
    deadline = time.monotonic() + 60
    while any(one() is not None for one in seen) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [number for number, one in enumerate(seen) if one() is not None] == []


def test_one_that_nobody_closes_ends_its_threads(tmp_path: Path) -> None:
    predictor = make(tmp_path)
    assert best(predictor.predict([pixels("red")])) == ["red"]
    assert its_threads() == {"predictor", "stream-0", "stream-1", "loader-0", "loader-2"}
    del predictor
    gc.collect()
    wait_until_threads_end()
