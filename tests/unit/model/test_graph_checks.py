"""graph_checks.py: golden files that are damaged; the checks themselves are in test_torch_export.py and test_from_onnx.py."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RunError
from bulkinfer.model.graph_checks import Golden, read_golden, worst_difference, write_golden


def test_damage_anywhere_in_golden_outputs_is_one_sentence(tmp_path: Path) -> None:
    """Found by fuzzing: a broken deflate stream raised zlib.error."""
    path = tmp_path / "golden.npz"
    write_golden(path, Golden(np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3), {"logits": np.ones((2, 8), np.float32)}))
    data, refused = path.read_bytes(), 0
    for at in range(0, len(data), 2):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            read_golden(path)
        except RunError as error:
            assert "is missing or damaged" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 50


def test_objects_in_golden_outputs_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "golden.npz", images=np.array([{"a": 1}], object))
    with pytest.raises(RunError, match="is missing or damaged"):
        read_golden(tmp_path / "golden.npz")


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({"images": b"no header", "logits": None}, "not all of its entries are arrays"),
        ({"images": None, "logits": b"\0" * 40}, "not all of its entries are arrays"),
        ({"images": np.zeros((3, 4, 4, 3), np.uint8), "logits": None}, "not pictures with one row each"),
        ({"images": np.zeros((2, 4, 4, 3), np.float32), "logits": None}, "not pictures with one row each"),
    ],
)
def test_what_is_no_array_of_pictures_or_of_rows_is_damage(tmp_path: Path, arrays: dict[str, Any], what: str) -> None:
    """numpy hands out the bytes of a member that has no header; found by fuzzing."""
    sound = {"images": np.zeros((2, 4, 4, 3), np.uint8), "logits": np.zeros((2, 5), np.float32)}
    with zipfile.ZipFile(tmp_path / "golden.npz", "w") as archive:
        for name, content in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                if isinstance(content, bytes):
                    member.write(content)
                else:
                    np.save(member, sound[name] if content is None else content)
    with pytest.raises(RunError, match=rf"golden\.npz is missing or damaged \(.*{what}\)"):
        read_golden(tmp_path / "golden.npz")


def test_c34_rounding_of_small_values_is_allowed_and_more_is_not() -> None:
    source = np.full((4, 1, 8, 8), 4e-4, np.float32)
    for difference, is_right in ((9e-7, True), (1.1e-6, False), (np.nan, False)):
        worst, _, allowed = worst_difference(source + np.float32(difference), source, 1e-4)
        assert (worst <= allowed) == is_right
        assert allowed == 1e-6


def test_c34_channels_of_different_scales_are_judged_one_by_one() -> None:
    """Boxes in pixels beside scores: of 640 pixels, a tenth of a score would be rounding."""
    random = np.random.default_rng(0)
    source = np.concatenate([random.uniform(0, 640, (4, 100, 4)), random.uniform(0, 1, (4, 100, 3))], axis=2).astype(np.float32)
    for rows in (source, source[:, 0]):
        wrong = rows.copy()
        wrong[..., 5] += 0.02
        worst, largest, allowed = worst_difference(wrong, rows, 1e-4)
        assert worst == pytest.approx(0.02, rel=1e-3)
        assert largest < 1
        assert allowed == pytest.approx(6.4e-4, rel=0.1), "a millionth of the largest value is rounding everywhere"
        moved = rows.copy()
        moved[..., 2] += 0.01
        worst, largest, allowed = worst_difference(moved, rows, 1e-4)
        assert worst <= allowed


def test_c34_the_values_of_a_flat_row_share_their_scale() -> None:
    """A class that no golden picture has is small, with the rounding of the others."""
    source = np.float32(np.random.default_rng(1).normal(0, 5, (4, 1000)))
    source[:, 7] = 1e-4
    found = source.copy()
    found[:, 7] += 2e-4
    worst, _, allowed = worst_difference(found, source, 1e-4)
    assert worst <= allowed
    found[:, 7] += 1e-2
    worst, _, allowed = worst_difference(found, source, 1e-4)
    assert worst > allowed
