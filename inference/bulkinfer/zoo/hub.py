"""Files of the Hugging Face hub, through its client's own cache and settings (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE)."""

from __future__ import annotations

import logging
from pathlib import Path

from bulkinfer.errors import DownloadError, first_line

log = logging.getLogger("bulkinfer")

WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")  # as timm's repositories name them, the safe one first


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
                raise DownloadError(f"{repository}: {first_line(error)}") from error
    finally:
        logger.setLevel(level)
    raise DownloadError(f"{repository} on the Hugging Face hub has none of {', '.join(WEIGHTS_FILES)}")
