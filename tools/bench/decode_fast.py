"""What `--decode fast` changes and what it saves, and what simplejpeg saves in `exact`, on photographs and on noise.

    python tools/bench/decode_fast.py [--scratch DIR] [--pairs 9]

Fetches the photographs of tools/demo_photos.txt and exports EfficientNet-Lite0 with its own weights (both kept in the scratch
folder, and used again from there). Prints the errors of the prepared pictures in grey levels, the rule that decides whether
`fast` is good enough, and times of decoding and preparing as ratios of alternating passes. Ends with 1 if the rule is broken.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bulkinfer.images.decode as decode_module
import numpy as np
import onnxruntime
from bulkinfer.images.preprocess import prepare
from bulkinfer.model.card import read_card
from bulkinfer.model.recipe import Recipe
from PIL import Image

SCRIPTS = Path(sys.executable).parent
TOOLS = Path(__file__).parents[1]
NETWORK = "efficientnet_lite0"
NUM_CROPS = 1500  # about 1,000 of them are large enough to be reduced
CLEAR_LEAD = 0.05  # of the best class over the second, in probability
MIN_AGREEMENT, MAX_CHANGE = 0.99, 0.03
# What docs/how-to/decoding.md promises of prepared pictures: mean and largest difference from exact in grey levels.
BOUND_ON_PHOTOGRAPHS, BOUND_ON_NOISE = (1, 60), (10, 60)
FORMS = {"pillow": "Pillow alone", "exact": "exact, with simplejpeg", "fast": "fast"}

Prepared = np.ndarray[Any, Any]


def jpeg(image: Image.Image, quality: int = 90, subsampling: int = 2) -> bytes:
    """The bytes of a file."""
    with io.BytesIO() as file:
        image.save(file, "JPEG", quality=quality, subsampling=subsampling)
        return file.getvalue()


def crops(photos: list[Path]) -> list[bytes]:
    """Rectangles of photographs, of any size that `fast` may reduce and some that it may not, as JPEGs of many kinds."""
    random = np.random.default_rng(0)
    found = []
    while len(found) < NUM_CROPS:
        for path in photos:
            with Image.open(path) as opened:
                image = opened.convert("RGB")
            if min(image.size) < 400:
                continue
            height = int(random.integers(400, min(image.size) + 1))
            width = min(int(height * random.uniform(0.7, 1.5)), image.width)
            left, top = int(random.integers(image.width - width + 1)), int(random.integers(image.height - height + 1))
            cut = image.crop((left, top, left + width, top + height))
            found.append(jpeg(cut, int(random.integers(75, 96)), int(random.choice([0, 1, 2, 2, 2]))))
    return found[:NUM_CROPS]


def prepared(data: bytes, recipe: Recipe, *, fast: bool) -> tuple[Prepared, bool]:
    """A picture's slot, and whether it was decoded at a reduced size."""
    slot = np.zeros((recipe.height, recipe.width, 3), np.uint8)
    at_least = recipe.short_side_needed if fast else 0
    picture = decode_module.decode(data, orientation=recipe.orientation, max_pixels=10**8, at_least=at_least)
    full_size = (picture.width, picture.height)
    prepare(picture.image, recipe, slot, full_size=full_size)
    return slot, picture.image.size != full_size


def probabilities(slots: Prepared, model: Path) -> Prepared:
    """Of all classes, in fp32 on the processor."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    logits = np.concatenate([session.run(["logits"], {name: slots[at : at + 50]})[0] for at in range(0, len(slots), 50)])
    powers = np.exp(logits - logits.max(1, keepdims=True))
    found: Prepared = powers / powers.sum(1, keepdims=True)
    return found


def tell_errors(what: str, exact: Prepared, fast: Prepared, bound: tuple[int, int]) -> bool:
    """One line: how far the prepared pictures are apart. Returns whether that is within the bound."""
    errors = np.abs(exact.astype(np.int16) - fast)
    worst = errors.mean((1, 2, 3)).max()
    high = np.percentile(errors, 99.9)
    is_within = errors.mean() <= bound[0] and errors.max() <= bound[1]
    told = f"mean {errors.mean():.2f}, worst picture's mean {worst:.2f}, 99.9 % below {high:.0f}, max {errors.max()}"
    print(f"{what}: {told}; bound mean {bound[0]}, max {bound[1]}: {'ok' if is_within else 'BROKEN'}")
    return bool(is_within)


def measure_agreement(files: list[bytes], recipe: Recipe, model: Path) -> bool:
    """The rule, over the crops that were reduced. Returns whether it holds."""
    both = [(prepared(data, recipe, fast=False)[0], *prepared(data, recipe, fast=True)) for data in files]
    reduced = [(exact, fast) for exact, fast, was_reduced in both if was_reduced]
    exact, fast = np.stack([pair[0] for pair in reduced]), np.stack([pair[1] for pair in reduced])
    print(f"{len(files)} crops, {len(reduced)} of them reduced; prepared pictures, fast against exact, in grey levels")
    is_near = tell_errors("  photographs", exact, fast, BOUND_ON_PHOTOGRAPHS)
    before, after = probabilities(exact, model), probabilities(fast, model)
    rows, best = np.arange(len(before)), before.argmax(1)
    ranked = np.sort(before, 1)
    clear = ranked[:, -1] - ranked[:, -2] > CLEAR_LEAD
    agreement = float((after.argmax(1) == best)[clear].mean())
    change = float(np.abs(after[rows, best] - before[rows, best]).mean())
    holds = agreement >= MIN_AGREEMENT and change <= MAX_CHANGE
    print(f"  {clear.sum()} with a lead above {CLEAR_LEAD}: top-1 agrees on {agreement:.2%} (at least {MIN_AGREEMENT:.0%})")
    print(f"  mean change of the top-1 probability {change:.4f} (at most {MAX_CHANGE}): {'ok' if holds else 'BROKEN'}")
    return holds and is_near


def measure_noise(recipe: Recipe) -> bool:
    """Errors where neighbouring pixels have nothing to do with each other."""
    is_near = True
    for size in ((640, 480), (900, 700), (2000, 1500)):
        noise = [np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8) for seed in range(4)]
        files = [jpeg(Image.fromarray(pixels), 90, 0) for pixels in noise]
        exact, fast = (np.stack([prepared(data, recipe, fast=mode)[0] for data in files]) for mode in (False, True))
        is_near = tell_errors(f"  noise of {size[0]}x{size[1]}", exact, fast, BOUND_ON_NOISE) and is_near
    return is_near


def one_pass(files: list[bytes], recipe: Recipe, form: str) -> float:
    """Seconds of this thread for decoding and preparing all files."""
    turbo: Callable[..., Any] = decode_module.turbo_decode
    decode_module.turbo_decode = turbo if form != "pillow" else lambda *_: None
    try:
        start = time.thread_time()
        for data in files:
            prepared(data, recipe, fast=form == "fast")
        return time.thread_time() - start
    finally:
        decode_module.turbo_decode = turbo


def measure_time(what: str, files: list[bytes], recipe: Recipe, pairs: int) -> None:
    """Passes over all files in turn, their order reversed each time; medians."""
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    for number in range(pairs + 1):
        for form in list(FORMS)[:: 1 if number % 2 else -1]:
            seconds[form].append(one_pass(files, recipe, form))
    print(f"{what}, {len(files)} files, {pairs} passes of each, decoding and preparing")
    for form, text in FORMS.items():
        ratios = [before / after for before, after in zip(seconds["pillow"][1:], seconds[form][1:], strict=True)]
        each = 1000 * statistics.median(seconds[form][1:]) / len(files)
        print(
            f"  {text:<24}{each:8.2f} ms   {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f}-{max(ratios):.2f})"
        )


def resized(photos: list[Path], size: tuple[int, int]) -> list[bytes]:
    """Photographs cut to 4:3 and brought to a size."""
    found = []
    for path in photos:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
        width, height = min(image.width, image.height * 4 // 3), min(image.height, image.width * 3 // 4)
        left, top = (image.width - width) // 2, (image.height - height) // 2
        found.append(jpeg(image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BICUBIC)))
    return found


def main() -> None:
    """Fetch, export, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", help="folder that is kept; default: one that is removed")
    parser.add_argument("--pairs", type=int, default=9, help="passes of each kind")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(arguments.scratch or temporary)
        subprocess.run([sys.executable, TOOLS / "demo_photos.py", scratch / "photos"], check=True)
        folder = scratch / "models" / NETWORK
        if not (folder / "card.json").exists():
            command = [SCRIPTS / "get_model", "--model_name", NETWORK, "--model_path", scratch / "models"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        photos = sorted(path for path in (scratch / "photos").rglob("*") if path.is_file())
        recipe = read_card(folder / "card.json").recipe
        decode_module.prepare_decoder()
        print(f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, Python {platform.python_version()}")
        holds = measure_agreement(crops(photos), recipe, folder / "model.onnx")
        holds = measure_noise(recipe) and holds
        measure_time("640x480", resized(photos, (640, 480)), recipe, arguments.pairs)
        measure_time("640x427", resized(photos, (640, 427)), recipe, arguments.pairs)
        measure_time("4000x3000", resized(photos[::8], (4000, 3000)), recipe, arguments.pairs)
    if not holds:
        raise SystemExit("fast changes more than it may")


if __name__ == "__main__":
    main()
