"""integrity.py: it needs no onnx; what it finds, is tested in test_model_folder.py and test_request.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bulkinfer.model.card import read_card, readable_card
from bulkinfer.model.integrity import damage, variant_damage

from tests.models import write_tiny_model


def test_it_needs_no_onnx() -> None:
    code = "import sys, bulkinfer.model.integrity; sys.exit(sorted({'torch', 'onnx', 'onnxruntime'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_network_and_its_variant_are_judged_alike(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, batch_sizes=(0, 6))
    card = read_card(folder / "card.json")
    told = damage(folder, card)
    assert told.startswith(f"{folder / 'golden.npz'} is missing or damaged (")
    assert "run" not in told, "whoever asks knows what to do"
    assert variant_damage(folder, card) == variant_damage(folder, None) == f"is damaged ({told})"
    (folder / "card.json").write_text("{")
    assert readable_card(folder) is None
    assert variant_damage(folder, card) == "is damaged (its card cannot be read)"
