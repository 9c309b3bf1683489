"""The confusion matrix as a picture."""

from __future__ import annotations

from collections import Counter

from bulkinfer.insight.accuracy.confusion_picture import chosen_classes, draw_confusion


def test_all_classes_are_drawn_where_there_are_few() -> None:
    confusion = Counter({(1, 1): 3, (1, 4): 1, (7, 7): 2})
    assert chosen_classes(confusion) == ([1, 4, 7], True)
    image = draw_confusion(confusion, lambda number: f"name {number}, synonym")
    assert image.width > 3 * 34
    assert (31, 119, 60) in {colour for _, colour in image.getcolors(1 << 16) or []}  # all pictures of 7 are right


def test_of_many_the_most_confused_ones() -> None:
    confusion = Counter({(number, number): 100 for number in range(200)})
    confusion.update({(number, number + 1): number for number in range(100, 160, 2)})
    chosen, is_all = chosen_classes(confusion)
    assert (chosen, is_all) == (list(range(130, 160)), False)
    wide = draw_confusion(confusion, lambda number: "x" * 100 + "\n")
    assert wide.width > 31 * 34
