"""request.py: what is refused before a network is exported or gets a batch size, and so before minutes of work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import UsageError
from bulkinfer.export.get_model import make_network
from bulkinfer.export.variants.request import check_request
from bulkinfer.model.card import variant_folder
from bulkinfer.model.integrity import variant_damage

from tests.foreign_graphs import deep_graph, foreign_graph, recipe_file, save
from tests.variants import Home, listing


@pytest.fixture
def home(tmp_path: Path, int8_photos: Path, cpu_judges: None) -> Home:
    return Home(tmp_path, int8_photos, "int8")


def onnx_config(home: Home, model: onnx.ModelProto, **flags: object) -> GetModelConfig:
    """As get_model --onnx --precision int8, without pictures."""
    given = {"onnx": str(save(model, home.folder)), "name": "net", "recipe": str(recipe_file(home.folder)), "scores": "logits"}
    return GetModelConfig(
        **{"model_path": str(home.folder / "models"), "precision": "int8", **given, **flags}  # type: ignore[arg-type]
    )


def test_the_folder_of_pictures_is_looked_at_before_the_network_is_made(home: Home) -> None:
    with pytest.raises(UsageError, match=r"^--calibration_dir: .*nowhere is no folder"):
        check_request(home.config(calibration_dir="nowhere"))


@pytest.mark.parametrize("precision", ["int8", "fp16"])
@pytest.mark.parametrize("what", ["a file", "a link to nothing"])
def test_something_else_in_the_place_of_the_variant(home: Home, precision: str, what: str) -> None:
    folder = home.folder / "models" / "net" / precision
    folder.parent.mkdir(parents=True)
    folder.touch() if what == "a file" else folder.symlink_to("nowhere")
    with pytest.raises(UsageError, match=rf"^{folder} is no folder, but the variant belongs in {folder}: move it away$"):
        check_request(home.config(precision=precision))


@pytest.mark.parametrize("there", ["models/net/int8", "models/net", "models", "."])
def test_a_place_that_may_not_be_written_to(home: Home, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of the path exists already decides. Root may write anywhere, so the answer is made up."""
    (home.folder / there).mkdir(parents=True, exist_ok=True)
    asked: list[Path] = []

    def access(path: Path, mode: int) -> bool:
        asked.append(path)
        return mode != os.W_OK | os.X_OK

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(UsageError, match=rf"^{home.folder / there} is not writable, but the variant belongs in .*int8"):
        check_request(home.config())
    assert asked == [home.folder / there]


def test_a_place_that_is_writable(home: Home) -> None:
    check_request(home.config())


@pytest.mark.parametrize(("graph", "flags", "told"), [
    (deep_graph(gain=41.0), {}, "int8 was made of another export of the network: give --calibration_dir PHOTOS"),
    (deep_graph(), {"scores": "none", "batch_size": 3}, "net has no class values"),
    (foreign_graph(dtype="float16"), {}, "the graph of net already computes in fp16"),
])  # fmt: skip
def test_a_changed_file_is_not_adopted_where_its_variant_will_be_refused(
    home: Home, graph: onnx.ModelProto, flags: dict[str, object], told: str
) -> None:
    home.adopt(deep_graph())
    home.make()
    before = listing(home.variant.parent)
    config = onnx_config(home, graph, **flags)
    check_request(config)  # the graph has not been looked at yet
    with pytest.raises(UsageError, match=told):
        make_network(config)
    assert listing(home.variant.parent) == before


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("harm", [cut, Path.unlink])
@pytest.mark.parametrize("name", ["card.json", "golden.npz", "model.onnx"])
def test_no_batch_size_is_added_to_the_network_where_it_cannot_be_added_to_the_variant(
    home: Home, name: str, harm: Callable[[Path], None]
) -> None:
    home.adopt(deep_graph())
    home.make()
    harm(home.variant / name)
    before = listing(home.variant.parent)
    config = home.config(calibration_dir="", batch_size=3)
    reason = "does not exist" if (name, harm) == ("card.json", Path.unlink) else r"is damaged \(.*\)"
    for refuse in (check_request, make_network):
        with pytest.raises(UsageError, match=rf"int8 {reason}: give --calibration_dir PHOTOS"):
            refuse(config)
    with pytest.raises(UsageError, match=rf"int8 {reason}: give --calibration_dir PHOTOS"):
        make_network(onnx_config(home, deep_graph(), batch_size=3))
    assert listing(home.variant.parent) == before


def test_a_damaged_card_of_the_network_hides_nothing_of_the_variant(home: Home) -> None:
    home.adopt(deep_graph())
    home.make()
    cut(home.variant.parent / "card.json")
    check_request(home.config(calibration_dir=""))
    cut(home.variant / "golden.npz")
    with pytest.raises(UsageError, match=r"int8 is damaged \(.*golden"):
        check_request(home.config(calibration_dir=""))


def test_what_is_made_of_the_graph_alone_needs_no_pictures(home: Home) -> None:
    home.adopt(deep_graph())
    check_request(home.config(precision="fp16", calibration_dir=""))
    assert home.network is not None
    assert variant_damage(variant_folder(home.network.folder, "fp16"), home.network.card) == "does not exist"
