"""types.py: what stands in commands of messages. Other types are tested where they are used."""

from __future__ import annotations

from bulkinfer.types import explained


def test_what_a_reader_replaces_is_explained_behind_the_command() -> None:
    assert explained("bulkinfer run PHOTOS") == "bulkinfer run PHOTOS (PHOTOS: a folder of pictures)"
    assert explained("bulkinfer run 'my photos'") == "bulkinfer run 'my photos'"
    both = explained("get_model --checkpoint RUN --name MY_FILE, or get_model --onnx FILE")
    assert both.endswith("--onnx FILE (RUN: the folder of a training run; FILE: an ONNX file)")
    for own in ("bulkinfer verify MY-RUNS", "bulkinfer verify /data/RUN/x", "bulkinfer run 'my PHOTOS'"):
        assert explained(own) == own
