"""ranks/agreement.py: ranks that would train something else are named, with what differs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.datasets.types import ArrayPictures, PathTable
from bulkinfer.errors import UsageError
from bulkinfer.train.data.opening import with_data_found
from bulkinfer.train.defaults import with_defaults
from bulkinfer.train.ranks.agreement import compare, facts_of
from bulkinfer.train.ranks.group import ALONE
from bulkinfer.train.ranks.world import World
from bulkinfer.train.setup import set_up

from tests.training import config_of, trained, write_digits


def test_the_first_rank_that_differs_is_named() -> None:
    same = {"pictures": "48, ab", "--seed": "0"}
    compare([("a", same), ("b", same), ("b", dict(same))])
    with pytest.raises(UsageError) as error:
        compare([("a", same), ("b", same), ("c", {**same, "pictures": "40, cd", "--seed": "1"}), ("d", {})])
    assert str(error.value) == (
        "rank 2 on c would train something else than rank 0 on a: it has other pictures (40, cd, not 48, ab), --seed: give all "
        "ranks the same data and options"
    )


def facts(home: Path, **options: Any) -> dict[str, str]:
    config = with_defaults(with_data_found(config_of(home, **options)))
    return facts_of(set_up(config, World(), ALONE)[0], None)


def test_what_must_be_equal(tmp_path: Path) -> None:
    """Data and options, wherever they lie; not how fast they are read."""
    first = facts(tmp_path, validation="after")
    shutil.copytree(tmp_path / "data", tmp_path / "elsewhere" / "data")
    assert facts(tmp_path / "elsewhere", validation="after", num_workers=3) == first
    write_digits(tmp_path / "other" / "data", 48)
    other = facts(tmp_path / "other", validation="after", seed=7)
    differing = {name for name, value in first.items() if other[name] != value}
    assert differing == {
        "training pictures", "training labels", "validation pictures", "validation labels", "--seed",
    }  # fmt: skip
    assert other["training pictures"].startswith("48, ")


def test_weights_of_another_run_must_be_equal(tmp_path: Path) -> None:
    """Those that the seed gives need not: rank 0 sends its own, as another processor may round otherwise."""
    one, other = trained(tmp_path, steps=1), trained(tmp_path, steps=1, seed=1)
    first = facts(tmp_path, init_checkpoint=str(one))
    shutil.copytree(one, tmp_path / "copy")
    assert facts(tmp_path, init_checkpoint=str(tmp_path / "copy")) == first
    assert facts(tmp_path, init_checkpoint=str(other))["first weights"] != first["first weights"]
    assert "first weights" not in facts(tmp_path)


def test_digests_of_pictures() -> None:
    """Pixels of those in memory; names of files below the folder of the set, where names that run together differ."""
    images = np.zeros((2, 1, 1, 1), np.uint8)
    black, white = (ArrayPictures(pixels, np.array([0, 1]), ("a", "b")).digest() for pixels in (images, images + 255))
    assert black != white
    paths = [PathTable.of(b"/one", [b"ab", b"c"]), PathTable.of(b"/two", [b"ab", b"c"]), PathTable.of(b"/one", [b"a", b"bc"])]
    first, second, third = (table.digest() for table in paths)
    assert first == second != third
