"""The confusion matrix as a picture, drawn with Pillow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from PIL import Image, ImageDraw, ImageFont

MOST_CLASSES = 30
_CELL, _MARGIN, _TEXT = 34, 16, 12  # pixels
_NAME_LENGTH = 26  # characters of a class
_WHITE, _BLACK, _GRID = (255, 255, 255), (20, 20, 20), (220, 220, 220)
_RIGHT, _WRONG = (31, 119, 60), (190, 40, 40)  # of a cell that holds all pictures of its class

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw_confusion(confusion: Mapping[tuple[int, int], int], name_of: Callable[[int], str]) -> Image.Image:
    """A row for each class, a column for each answer; shades are shares of the row's pictures.

    `confusion` counts (class, answer). Of more than 30 classes those that are confused most often are drawn, with a column for
    all other answers.
    """
    classes, is_all = chosen_classes(confusion)
    cells, others = _cells(confusion, classes)
    font = ImageFont.load_default(_TEXT)
    texts = [_text(number, name_of(number)) for number in classes]
    columns = texts if is_all else [*texts, "other answers"]
    side = max(int(font.getlength(text)) for text in columns) + 2 * _MARGIN
    left, top = side, 3 * _MARGIN + side
    image = Image.new("RGB", (left + _CELL * len(columns) + _MARGIN, top + _CELL * len(classes) + _MARGIN), _WHITE)
    draw = ImageDraw.Draw(image)
    chosen = "" if is_all else f"; the {len(classes)} classes that are confused most often"
    draw.text((_MARGIN, _MARGIN), f"rows: classes, columns: answers{chosen}", _BLACK, font)
    for column, text in enumerate(columns):
        _draw_upwards(image, text, (left + column * _CELL, top), font)
    for row, text in enumerate(texts):
        draw.text((left - _MARGIN // 2, top + (row + 0.5) * _CELL), text, _BLACK, font, anchor="rm")
        total = sum(cells[row]) + others[row]
        for column, count in enumerate([*cells[row], others[row]][: len(columns)]):
            corner = (left + column * _CELL, top + row * _CELL)
            _draw_cell(draw, corner, count, total, _RIGHT if column == row else _WRONG, font)
    return image


def chosen_classes(confusion: Mapping[tuple[int, int], int]) -> tuple[list[int], bool]:
    """The classes to draw, sorted, and whether these are all: at most 30, those in most wrong answers, then the largest."""
    wrong, pictures = Counter[int](), Counter[int]()
    for (number, answer), count in confusion.items():
        pictures[number] += count
        for each in {number, answer}:
            wrong[each] += count * (number != answer)
    by_wrong = sorted(wrong, key=lambda number: (-wrong[number], -pictures[number], number))
    return sorted(by_wrong[:MOST_CLASSES]), len(by_wrong) <= MOST_CLASSES


def _cells(confusion: Mapping[tuple[int, int], int], classes: list[int]) -> tuple[list[list[int]], list[int]]:
    """Counts of each class by answer, and of answers that have no column."""
    place = {number: index for index, number in enumerate(classes)}
    cells, others = [[0] * len(classes) for _ in classes], [0] * len(classes)
    for (number, answer), count in confusion.items():
        if number in place and answer in place:
            cells[place[number]][place[answer]] += count
        elif number in place:
            others[place[number]] += count
    return cells, others


def _draw_cell(
    draw: ImageDraw.ImageDraw, corner: tuple[int, int], count: int, total: int, colour: tuple[int, int, int], font: Font
) -> None:
    x, y = corner
    share = count / total if total else 0
    shade = tuple(round(255 + (channel - 255) * share) for channel in colour)
    draw.rectangle((x, y, x + _CELL, y + _CELL), shade, _GRID)
    if count:
        draw.text((x + _CELL / 2, y + _CELL / 2), _short(count), _WHITE if share > 0.5 else _BLACK, font, anchor="mm")


def _draw_upwards(image: Image.Image, text: str, corner: tuple[int, int], font: Font) -> None:
    """Text that ends above a column, read from below."""
    strip = Image.new("RGB", (int(font.getlength(text)) + 2, _CELL), _WHITE)
    ImageDraw.Draw(strip).text((0, _CELL / 2), text, _BLACK, font, anchor="lm")
    x, y = corner
    image.paste(strip.rotate(90, expand=True), (x, y - strip.width - _MARGIN // 2))


def _text(number: int, name: str) -> str:
    text = f"{name.partition(',')[0]} {number}".lstrip()
    if len(text) > _NAME_LENGTH:
        text = f"{name[: _NAME_LENGTH - len(str(number)) - 4]}... {number}"
    return "".join(character if character.isprintable() else "?" for character in text)


def _short(count: int) -> str:
    """A count of at most four characters."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size * (10 if unit == "k" else 1):
            return f"{count // size}{unit}"
    return str(count)
