"""Suggestions for an option or a value that a command does not know: by meaning first, then by letters."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from bulkinfer.runtime.device_words import DEVICE_WORDS

# Words of other tools -> options that mean it, some with a value, the best first. A command suggests the first one that it has.
_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("model", "net", "network", "arch", "architecture", "backbone", "m"), ("model_name", "model")),
    **dict.fromkeys(("models", "model_dir", "model_folder", "models_dir", "weights_dir"), ("model_path",)),
    **dict.fromkeys(
        ("input", "inputs", "in", "i", "images", "image", "imgs", "img", "photos", "pictures", "data", "dir", "folder", "path",
         "image_dir", "img_dir", "images_dir", "input_dir", "input_path", "data_path", "image_folder", "source", "src", "root",
         "dataset_dir", "data_root", "files"),
        ("data_dir", "path", "output", "file"),
    ),
    **dict.fromkeys(
        ("out", "o", "output_dir", "output_path", "out_dir", "outdir", "save_dir", "results", "result_dir", "results_dir",
         "dest", "destination", "target", "save_path"),
        ("output", "data_dir", "log_path"),
    ),
    **dict.fromkeys(
        ("bs", "b", "batch", "batchsize", "batch_sizes", "minibatch", "mini_batch_size", "per_device_batch_size"),
        ("batch_size", "micro_batch_size", "valid_batch_size"),
    ),
    **dict.fromkeys(
        ("workers", "j", "jobs", "threads", "num_threads", "nproc", "n_jobs", "loaders", "num_loaders", "dataloader_workers"),
        ("num_workers",),
    ),
    **dict.fromkeys(("gpu", "cuda", "use_gpu", "use_cuda", "nvidia"), ("device cuda",)),
    **dict.fromkeys(("cpu", "use_cpu", "no_cuda", "nocuda"), ("device cpu",)),
    **dict.fromkeys(("accelerator", "provider", "providers", "backend", "ep", "gpu_id"), ("device",)),
    **dict.fromkeys(
        ("gpus", "num_gpus", "n_gpus", "ngpu", "devices", "n_devices", "processes", "num_processes", "nproc_per_node",
         "world_size"),
        ("num_devices", "replicas", "device"),
    ),
    **dict.fromkeys(
        ("half", "fp16", "amp", "bf16", "float16", "bfloat16", "fp32", "float32", "int8", "quantize", "quantise", "dtype",
         "mixed_precision", "use_fp16"),
        ("precision",),
    ),
    **dict.fromkeys(("learning_rate", "rate", "base_lr", "initial_lr", "max_lr", "learningrate"), ("lr",)),
    **dict.fromkeys(("wd", "decay"), ("weight_decay",)),
    **dict.fromkeys(("optim", "opt"), ("optimizer",)),
    **dict.fromkeys(("scheduler", "sched", "schedule", "lr_scheduler"), ("lr_schedule",)),
    **dict.fromkeys(("warmup", "warm_up", "warmup_steps"), ("warmup_epochs",)),
    **dict.fromkeys(("num_epoch", "max_epochs", "e"), ("epochs",)),
    **dict.fromkeys(("max_iter", "num_steps", "iters"), ("steps", "iterations")),
    **dict.fromkeys(("accum", "accumulation", "accumulate", "grad_accum", "accumulation_steps"), ("gradient_accumulation",)),
    **dict.fromkeys(("resume_from", "restart", "checkpoint", "ckpt"), ("resume", "path")),
    **dict.fromkeys(("force", "f", "clobber", "replace", "clean", "y", "yes"), ("overwrite", "force")),
    **dict.fromkeys(("classes", "names", "class_names", "label", "classes_file", "label_file"), ("labels",)),
    **dict.fromkeys(("topk", "k", "top", "num_classes"), ("top_k",)),
    **dict.fromkeys(("n", "max_images", "num_images", "max_samples", "num_samples", "head", "count"), ("limit",)),
    **dict.fromkeys(("img_size", "imgsz", "size", "resolution", "input_size"), ("image_size",)),
    **dict.fromkeys(("logdir", "log_dir", "logs", "log", "log_folder", "project"), ("log_path",)),
    **dict.fromkeys(("parts", "shards", "splits", "num_partitions", "num_shards", "num_parts"), ("partitions",)),
    **dict.fromkeys(("annotation", "ann", "ann_file", "coco", "annotation_file"), ("annotations",)),
    **dict.fromkeys(("list", "file_list", "filelist", "image_list", "manifest"), ("list_file",)),
    **dict.fromkeys(("onnx_file", "onnx_path", "graph"), ("onnx",)),
    **dict.fromkeys(("pretrained", "weight", "weights_file", "state_dict"), ("weights", "init_checkpoint")),
    **dict.fromkeys(("license",), ("licence",)),
    **dict.fromkeys(("calib", "calibration", "calibration_data", "calib_dir"), ("calibration_dir",)),
    **dict.fromkeys(("embeddings", "embedding", "features", "logits", "columns", "column", "save_logits"), ("save",)),
    **dict.fromkeys(("dry", "plan", "simulate", "whatif"), ("dry_run",)),
    **dict.fromkeys(("conf", "config_file", "settings", "options", "cfg"), ("config", "flagfile")),
    **dict.fromkeys(("timeout", "stall_timeout", "timeout_s"), ("stall_timeout_s",)),
    **dict.fromkeys(("max_errors", "errors"), ("max_failures",)),
    **dict.fromkeys(("max_size", "max_bytes"), ("max_file_bytes",)),
    **dict.fromkeys(("fake", "dummy", "random"), ("synthetic", "generated_data")),
    **dict.fromkeys(("hidden", "all"), ("include_hidden",)),
}  # fmt: skip
# Words of other tools -> values that mean it.
_VALUES: dict[str, tuple[str, ...]] = {
    **{word: (device,) for word, device in DEVICE_WORDS.items()},
    "cuda:all": ("cuda",),
    **dict.fromkeys(("default", "best", "any"), ("auto",)),
    **dict.fromkeys(("half", "float16", "f16", "16"), ("fp16", "float16", "16.16")),
    **dict.fromkeys(("bfloat16", "b16", "bfloat"), ("bf16", "bfloat16", "16.16")),
    **dict.fromkeys(("full", "single", "float", "float32", "f32", "32"), ("fp32", "float32", "32.32")),
    **dict.fromkeys(("mixed", "amp", "fp16", "bf16"), ("fp16", "16.32")),
    **dict.fromkeys(("8", "int", "quantized", "quantised", "uint8", "i8"), ("int8",)),
    **dict.fromkeys(("link", "links", "ln", "soft"), ("symlink",)),
    **dict.fromkeys(("hard",), ("hardlink",)),
    **dict.fromkeys(("cp",), ("copy",)),
    **dict.fromkeys(("top", "top5", "top_k", "topk", "classes"), ("topk",)),
    **dict.fromkeys(("softmax", "scores"), ("probabilities",)),
    **dict.fromkeys(("slow", "pillow"), ("exact",)),
    **dict.fromkeys(("turbo", "simplejpeg"), ("fast",)),
    **dict.fromkeys(("sgdm",), ("momentum",)),
    **dict.fromkeys(("linear", "poly"), ("polynomial",)),
    **dict.fromkeys(("step", "multistep"), ("stepped",)),
}
_ALIKE, _ALIKE_VALUES = 0.6, 0.75  # of difflib, for a misspelt letter or two; values are short


def nearest_option(word: str, known: Mapping[str, tuple[str, ...]]) -> str:
    """The option that somebody who typed `word` most likely means, with its value if the word says it: `precision fp16`.

    `known` has the spellings of options with their accepted values. Empty if none is near.
    """
    name = word.lower().replace("-", "_")
    for meant in _OPTIONS.get(name, ()):
        option, _, value = meant.partition(" ")
        if option in known:
            value = value or (name if name in known[option] else _meant(name, _VALUES, known[option]))
            return f"{option} {value}".rstrip()
    return _alike(name, known, _ALIKE)


def nearest_value(word: str, known: Collection[str]) -> str:
    """The value of `known` that somebody who typed `word` most likely means; empty if none is near."""
    return _meant(word.lower(), _VALUES, known) or _alike(word.lower(), known, _ALIKE_VALUES)


def continues_by_itself(word: str, known: Collection[str]) -> bool:
    """True if somebody who typed `word` wants what a command with these options does without being asked: continue a job."""
    return word in ("resume", "continue") and "skip_done" in known and word not in known


def _meant(word: str, meanings: Mapping[str, tuple[str, ...]], known: Collection[str]) -> str:
    return next((found for found in meanings.get(word, ()) if found in known), "")


def _alike(word: str, known: Collection[str], least: float) -> str:
    """The known word with the most letters in common. Words of one or two letters have too few to tell."""
    near = difflib.get_close_matches(word, known, 1, least) if len(word) > 2 else []
    return near[0] if near else ""
