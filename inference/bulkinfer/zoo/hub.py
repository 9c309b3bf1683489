"""Files of the Hugging Face hub, through its client's own cache and settings (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE)."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from bulkinfer.errors import DownloadError, first_line
from bulkinfer.files.addresses import public

log = logging.getLogger("bulkinfer")

WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")  # as timm's repositories name them, the safe one first


def _without_secrets(error: Exception) -> str:
    """The first line of an error, each address in it without user and password, which HF_ENDPOINT may hold."""
    text = re.sub(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>)]+", lambda found: public(found[0]), str(error))
    return first_line(RuntimeError(text or type(error).__name__))


def hub_file(repository: str) -> Path:
    """The weights of `repository` in the client's cache, fetched if need be. Raises DownloadError with the reason."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    for name in WEIGHTS_FILES:
        try:
            return Path(hf_hub_download(repository, name, local_files_only=True))
        except LocalEntryNotFoundError:
            continue
    log.info(f"fetching {repository} from the Hugging Face hub")
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of every failed try; the caller reports the reason once
    try:
        for name in WEIGHTS_FILES:
            try:
                return Path(hf_hub_download(repository, name))
            except LocalEntryNotFoundError as error:  # what the client raises when it has no connection
                raise DownloadError(f"the Hugging Face hub cannot be reached for {repository}") from error
            except EntryNotFoundError:
                continue
            except Exception as error:  # the client's HTTP library raises its own classes
                raise DownloadError(f"{repository}: {_without_secrets(error)}") from None  # the client's own text may hold some
    finally:
        logger.setLevel(level)
    raise DownloadError(f"{repository} on the Hugging Face hub has none of {', '.join(WEIGHTS_FILES)}")
