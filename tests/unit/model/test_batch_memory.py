"""batch_memory.py: a batch that can never fit is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.model import batch_memory
from bulkinfer.model.batch_memory import require_batch_fits
from bulkinfer.model.recipe import Recipe


def test_a_batch_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(32, 48, "exact", 32, 1.0, "bilinear", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    most = (1 << 30) // (32 * 48 * 3 * 9)
    monkeypatch.setattr(batch_memory, "usable_memory", lambda: 1 << 30)
    require_batch_fits(most, recipe)
    with pytest.raises(
        UsageError, match=rf"--batch_size {2 * most}: .* take 2\.0 GiB, and there are 1\.0 GiB of memory: give {most} or fewer$"
    ):
        require_batch_fits(2 * most, recipe)
    large = replace(recipe, height=4096, width=4096)  # 432 MiB a picture: 64 of them, which often fit, do not
    with pytest.raises(UsageError, match=r"--batch_size 3: .* take 1\.3 GiB, .* of memory: give 2 or fewer$"):
        require_batch_fits(3, large)
    require_batch_fits(2, large)
    huge = replace(recipe, height=8192, width=8192)
    with pytest.raises(
        UsageError, match=r"--batch_size 1: .* take 1\.7 GiB, .*: this network needs a machine with more memory$"
    ):
        require_batch_fits(1, huge)
    monkeypatch.setattr(batch_memory, "usable_memory", lambda: None)
    require_batch_fits(2 * most, recipe)
