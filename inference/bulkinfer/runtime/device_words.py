"""What other tools call the devices of --device, so that an unknown word is answered with the one that is meant."""

from __future__ import annotations

DEVICE_WORDS = {
    **dict.fromkeys(("gpu", "gpus", "nvidia"), "cuda"),
    "trt": "tensorrt",
    **dict.fromkeys(("intel", "ov"), "openvino"),
    "npu": "openvino:npu",
    **dict.fromkeys(("processor", "host", "x86"), "cpu"),
}
