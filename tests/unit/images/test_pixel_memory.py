"""pixel_memory.py: Pillow's pixels in a slot, bit for bit, whichever way they are copied."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bulkinfer.images import pixel_memory
from bulkinfer.images.pixel_memory import as_image, canvas_for, cut, write_rgb
from PIL import Image

from tests.pictures import noise


@pytest.fixture(params=["quick", "by tobytes()"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of copying."""
    if request.param != "quick":
        monkeypatch.setattr(pixel_memory, "_copies_in_order", lambda _num_pixels: False)
    return str(request.param)


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (3, 3), (5, 7), (64, 48), (224, 224), (299, 299)])
def test_pixels_are_written_into_their_slot_only(size: tuple[int, int], way: str) -> None:
    width, height = size
    expected = np.asarray(noise(width, height))
    batch_NHWC = np.full((5, height, width, 3), 77, np.uint8)
    for index in (3, 1):
        write_rgb(noise(width, height), batch_NHWC[index])
    for index in (1, 3):
        assert np.array_equal(batch_NHWC[index], expected)
    for index in (0, 2, 4):
        assert (batch_NHWC[index] == 77).all()


def test_a_part_of_a_slot(way: str) -> None:
    out = np.full((10, 12, 3), 9, np.uint8)
    write_rgb(noise(6, 4), out[2:6, 3:9])
    assert np.array_equal(out[2:6, 3:9], np.asarray(noise(6, 4)))
    out[2:6, 3:9] = 9
    assert (out == 9).all()


def test_any_place_in_memory(way: str) -> None:
    for shift in range(9):
        memory = np.zeros(9 + 3 * 31 * 17, np.uint8)
        out = memory[shift : shift + 3 * 31 * 17].reshape(17, 31, 3)
        write_rgb(noise(31, 17), out)
        assert np.array_equal(out, np.asarray(noise(31, 17)))
        assert not memory[:shift].any()
        assert not memory[shift + 3 * 31 * 17 :].any()


def test_both_directions() -> None:
    pixels_HWX = np.random.default_rng(0).integers(0, 256, (30, 40, 4), np.uint8)
    image = as_image(pixels_HWX)
    assert (image.mode, image.size) == ("RGB", (40, 30))
    out = np.zeros((30, 40, 3), np.uint8)
    write_rgb(image, out)
    assert np.array_equal(out, pixels_HWX[..., :3])
    pixels_HWX[3, 4, 1] ^= 255
    assert np.asarray(image)[3, 4, 1] == pixels_HWX[3, 4, 1], "the same memory"


def test_the_quick_way_is_taken_here() -> None:
    """What CI installs is what is meant; other versions would lose speed, not correctness."""
    assert pixel_memory._copies_in_order(224 * 224)
    assert pixel_memory._memory(noise(224, 224), 224 * 224) is not None


@pytest.mark.parametrize("refusal", [ValueError, AttributeError])
def test_images_that_do_not_lend_their_memory(refusal: type[Exception]) -> None:
    def refuse() -> None:
        raise refusal

    plain, out = noise(20, 10), np.zeros((10, 20, 3), np.uint8)
    image: Any = SimpleNamespace(im=SimpleNamespace(__arrow_c_array__=refuse), tobytes=plain.tobytes)
    write_rgb(image, out)
    assert np.array_equal(out, np.asarray(plain))


def test_an_image_that_is_not_loaded_yet(tmp_path: Path) -> None:
    noise(20, 10).save(tmp_path / "picture.png")
    out = np.zeros((10, 20, 3), np.uint8)
    with Image.open(tmp_path / "picture.png") as image:
        write_rgb(image, out)
    assert np.array_equal(out, np.asarray(noise(20, 10)))


def test_a_picture_in_several_pieces_of_memory() -> None:
    image = noise(64, 48).resize((2600, 2000))
    out = np.zeros((2000, 2600, 3), np.uint8)
    write_rgb(image, out)
    assert np.array_equal(out, np.asarray(image))


# -- a thread's canvas ---------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_canvas() -> None:
    """This thread has none yet."""
    pixel_memory._of_thread.__dict__.clear()


def draw(width: int, height: int, seed: int = 0) -> tuple[Image.Image, np.ndarray]:
    """A picture as it is decoded, and its pixels."""
    canvas = canvas_for(width * height)
    pixels_HWX = np.random.default_rng(seed).integers(0, 256, (height, width, 4), np.uint8)
    canvas.memory[: pixels_HWX.size] = pixels_HWX.ravel()
    return canvas.image(width, height), pixels_HWX[..., :3]


def test_one_image_per_size_is_kept_and_not_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixel_memory, "_MOST_SIZES", 3)
    first = id(draw(64, 48)[0])  # the largest: its memory is used for all
    for width in (60, 61):
        for seed in (1, 2):
            image, expected = draw(width, 48, seed)
            assert np.array_equal(np.asarray(image), expected)
            del image
    image, expected = draw(64, 48, 3)
    assert id(image) == first
    assert np.array_equal(np.asarray(image), expected)
    del image
    canvas = pixel_memory._of_thread.canvas
    assert set(canvas._images) == {(64, 48), (60, 48), (61, 48)}
    draw(62, 48)
    assert set(canvas._images) == {(62, 48)}
    assert pixel_memory._of_thread.canvas is canvas


def test_memory_is_left_to_whoever_holds_an_image_of_it() -> None:
    draw(64, 48)
    held, expected = draw(60, 48)
    draw(64, 48, 5)
    assert np.array_equal(np.asarray(held), expected)
    draw(60, 48, 6)
    assert np.array_equal(np.asarray(held), expected)


@pytest.mark.parametrize("box", [(0, 0, 64, 48), (1, 2, 64, 48), (0, 0, 1, 1), (5, 7, 40, 9), (63, 0, 64, 48)])
def test_parts_are_what_crop_makes(box: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Image.Image, "crop", None)  # not used
        for seed in (0, 1):
            image, expected = draw(64, 48, seed)
            part = cut(image, box)
            assert (part.mode, part.size) == ("RGB", (box[2] - box[0], box[3] - box[1]))
            assert np.array_equal(np.asarray(part), expected[box[1] : box[3], box[0] : box[2]])
            del image
    other = noise(64, 48)
    assert np.array_equal(np.asarray(cut(other, box)), np.asarray(other.crop(box))), "an image that is not of the canvas"


def test_parts_of_any_order_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixel_memory, "_MOST_SIZES", 4)
    monkeypatch.setattr(pixel_memory, "_MAX_CUT_BYTES", 4 * 40 * 40)
    random = np.random.default_rng(0)
    for seed in range(60):
        image, expected = draw(int(random.integers(40, 44)), 48, seed)
        left, top = (int(value) for value in random.integers(0, 3, 2))
        right, bottom = (int(value) for value in random.integers(30, 41, 2))
        part = cut(image, (left, top, right, bottom))
        assert np.array_equal(np.asarray(part), expected[top:bottom, left:right])
        assert len(pixel_memory._of_thread.canvas._cut_memory) <= 4 * 40 * 40
        assert len(pixel_memory._of_thread.canvas._cuts) <= 4
        del image, part


def test_a_thread_has_its_own_canvas() -> None:
    held, expected = draw(20, 10)
    thread = threading.Thread(target=draw, args=(20, 10, 1))
    thread.start()
    thread.join()
    assert np.array_equal(np.asarray(held), expected)


def test_an_image_that_was_changed_in_place_is_not_used_again() -> None:
    """Pillow gives it memory of its own on a write: what is decoded into ours afterwards would not be seen."""
    canvas = pixel_memory.Canvas(6)
    canvas.memory[:] = 1
    image = canvas.image(3, 2)
    image.info["dpi"] = (72, 72)
    image.putpixel((0, 0), (9, 9, 9))
    canvas.memory[:] = 2
    found = canvas.image(3, 2)
    assert np.asarray(found).tolist() == [[[2, 2, 2]] * 3] * 2
    found.info["dpi"] = (72, 72)
    assert canvas.image(3, 2).info == {}
