"""devices.py: what --device asks for, what it becomes, and which worker gets which device. GPUs are fakes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import AbsentError, UsageError
from bulkinfer.host.cores import CoreBudget
from bulkinfer.runtime.devices import Candidates, Choice, Request, as_begun, choose, find_candidates, parse_device, plan_workers
from bulkinfer.runtime.providers import PROVIDERS

pytestmark = pytest.mark.usefixtures("openvino")
FIND_SPEC = importlib.util.find_spec
FOUR_CORES = CoreBudget((0, 1, 2, 3), None)


def gpus(monkeypatch: pytest.MonkeyPatch, *names: str, provider: str = "cuda") -> None:
    """As if the host had these."""
    monkeypatch.setitem(PROVIDERS, provider, replace(PROVIDERS[provider], find_devices=lambda: list(names)))


def without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """As if the package `missing` were not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else FIND_SPEC(name))


def native(monkeypatch: pytest.MonkeyPatch, provider: str, precision: str, why: str = "") -> None:
    """As if the devices of the provider computed in this natively, and in nothing cheaper."""
    monkeypatch.setitem(PROVIDERS, provider, replace(PROVIDERS[provider], native=lambda numbers: (precision, why)))


def never(found: tuple[Choice, ...]) -> dict[str, float | str]:
    raise AssertionError("nothing is to be measured")


def asked(device: str, precision: str = "fp32") -> Choice:
    (choice,) = find_candidates(parse_device(device, precision)).choices
    return choice


# -- what is asked for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "provider", "numbers"),
    [
        ("auto", "auto", ()),
        ("cpu", "cpu", ()),
        ("CUDA", "cuda", ()),
        ("cuda:1,3", "cuda", (1, 3)),
        ("openvino", "openvino", ()),
        ("openvino:gpu", "openvino:gpu", ()),
        ("OpenVINO:GPU:1", "openvino:gpu", (1,)),
        ("openvino:npu:0", "openvino:npu", (0,)),
        ("tensorrt:10", "tensorrt", (10,)),
    ],
)
def test_what_is_asked_for(text: str, provider: str, numbers: tuple[int, ...]) -> None:
    assert parse_device(text, "fp32") == Request(provider, numbers, "fp32")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpu", r"--device gpu: known are auto, cuda, tensorrt, cpu, openvino, openvino:gpu, openvino:npu; cuda:1,3 picks"),
        ("", r"--device : known are auto"),
        ("cudax", r"--device cudax: known are auto"),
        ("cpu:0", r"--device cpu:0: cpu has no devices to pick by number: use --device cpu$"),
        ("openvino:1", r"openvino has no devices to pick by number"),
        ("auto:0", r"auto has no devices to pick by number"),
        ("cuda:x", r"--device cuda:x: devices are picked by number, as in cuda:1,3$"),
        ("cuda:", r"--device cuda:: devices are picked by number"),
        ("cuda:" + "1" * 5000, r"--device cuda:1{75}\.\.\.: devices are picked by number"),
        ("cuda:1,", r"devices are picked by number"),
        ("cuda:-1", r"devices are picked by number"),
        ("cuda:\u0663", r"devices are picked by number"),
        ("cuda:1,3,1", r"a device is named twice; --processes_per_device runs several workers on each$"),
    ],
)
def test_what_cannot_be_meant(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_device(text, "fp32")


# -- what is here --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_processors(device: str) -> None:
    backend = {"cpu": "", "openvino": "onnxruntime-ep-openvino"}[device]
    assert asked(device) == Choice(device, "as asked", (0,), ("the processor",), backend=backend)
    assert str(asked(device)) == f"{device} (as asked)"


def test_a_precision_that_a_provider_lacks_names_who_has_it() -> None:
    with pytest.raises(
        UsageError, match=r"--device cpu runs fp32 or int8, not --precision bf16, which runs on tensorrt, openvino$"
    ):
        asked("cpu", "bf16")
    with pytest.raises(
        UsageError, match=r"--device openvino runs fp32 or bf16 or int8, not --precision fp16, which runs on cuda, tensorrt"
    ):
        asked("openvino", "fp16")


@pytest.mark.parametrize(
    ("missing", "device", "command"),
    [
        ("onnxruntime", "cpu", "pip install '.[cpu]'"),
        ("onnxruntime", "openvino", "pip install '.[openvino]'"),
        ("onnxruntime_ep_openvino", "openvino", "pip install '.[openvino]'"),
        ("onnxruntime_ep_openvino", "openvino:gpu", "pip install '.[openvino]'"),
        ("onnxruntime", "cuda", "pip install '.[gpu]'"),
    ],
)
def test_a_missing_package_comes_with_its_command(
    monkeypatch: pytest.MonkeyPatch, missing: str, device: str, command: str
) -> None:
    without(monkeypatch, missing)
    with pytest.raises(UsageError) as caught:
        asked(device)
    assert str(caught.value) == f"--device {device} needs the package {missing}: {command}"


def test_devices_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, "A", "B", "C", "D")
    assert asked("cuda") == Choice("cuda", "as asked", (0, 1, 2, 3), ("A", "B", "C", "D"))
    assert asked("cuda:3,1") == Choice("cuda", "as asked", (3, 1), ("D", "B"))
    assert str(asked("cuda:3,1")) == "cuda (as asked); 3: D, 1: B"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UsageError, match=r"--device cuda:4 is not here; there are 0: A, 1: B, 2: C, 3: D$"):
        asked("cuda:1,4")


def test_auto_takes_what_is_here_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(precision: str = "fp32") -> list[str]:
        return [choice.provider for choice in find_candidates(parse_device("auto", precision)).choices]

    assert found() == ["cpu", "openvino"]
    native(monkeypatch, "openvino", "bf16")
    assert found("bf16") == ["openvino"]
    gpus(monkeypatch, "A")
    gpus(monkeypatch, "A", provider="tensorrt")
    assert found("fp16") == ["cuda"]
    assert found() == ["cuda", "cpu", "openvino"], "an engine that takes minutes to build is not what one gets unasked"
    without(monkeypatch, "onnxruntime_ep_openvino")
    assert found() == ["cuda", "cpu"]


def test_no_second_runtime_is_advised_beside_the_one_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "onnxruntime_ep_openvino")
    monkeypatch.setattr("bulkinfer.runtime.devices.versions", lambda: {"onnxruntime-gpu": "1.31.1"})
    with pytest.raises(UsageError, match=r"overwrites the onnxruntime-gpu here; in an environment of its own: pip install"):
        asked("openvino")


def test_auto_where_nothing_can(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "onnxruntime_ep_openvino")
    with pytest.raises(UsageError, match=r"--device openvino needs the package onnxruntime_ep_openvino: pip install"):
        find_candidates(parse_device("auto", "bf16"))
    nothing = r"^--precision fp16 runs on cuda, tensorrt, openvino:gpu, openvino:npu"
    with pytest.raises(UsageError, match=rf"{nothing}, and none of them is here: use --precision auto or fp32$"):
        find_candidates(parse_device("auto", "fp16"))
    gpus(monkeypatch, "A", provider="tensorrt")
    with pytest.raises(UsageError, match=rf"{nothing}; or ask for what auto does not take: --device tensorrt$"):
        find_candidates(parse_device("auto", "fp16"))

    def half_here() -> list[str]:
        raise UsageError("--device cuda: a library is missing: get it")

    monkeypatch.setitem(PROVIDERS, "cuda", replace(PROVIDERS["cuda"], find_devices=half_here))
    with pytest.raises(UsageError, match=r"^--device cuda: a library is missing: get it; or ask for .*: --device tensorrt$"):
        find_candidates(parse_device("auto", "fp16"))


@pytest.mark.parametrize(("device", "precision", "way_out"), [
    ("openvino", "bf16", "--precision fp32"), ("auto", "bf16", "--precision fp32"),
    ("openvino:gpu", "fp16", "--precision fp32"), ("openvino:npu", "fp16", "another --device"),
])  # fmt: skip
def test_what_would_only_be_emulated_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, device: str, precision: str, way_out: str
) -> None:
    name = "openvino" if device == "auto" else device
    gpus(monkeypatch, "A", provider=name)
    native(monkeypatch, name, "fp32", "this one has no units for it")
    refused = rf"^--precision {precision}: --device {name} does not emulate it, and this one has no units for it: use {way_out}"
    with pytest.raises(UsageError, match=f"{refused}$"):
        asked(device, precision)
    assert asked(name, "auto").precision == "auto"
    begun = rf"; out was begun on {name} in {precision}: give another --output to start a new job$"
    with pytest.raises(UsageError, match=refused + begun):
        as_begun(name, precision, parse_device("auto", "auto"), "out")
    native(monkeypatch, name, precision)
    assert asked(device, precision).precision == precision


def test_what_a_gpu_of_nvidia_has_no_units_for_it_computes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, precision in (("cuda", "fp16"), ("tensorrt", "bf16")):
        gpus(monkeypatch, "A", provider=name)
        native(monkeypatch, name, "fp32", "it is old")
        assert asked(name, precision).precision == precision


def test_what_a_job_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    began = "as the job began, in out"
    native(monkeypatch, "openvino", "bf16")
    assert as_begun("openvino", "bf16", parse_device("auto", "auto"), "out") == Choice(
        "openvino", began, (0,), ("the processor",), "bf16", began, "onnxruntime-ep-openvino"
    )
    assert as_begun("openvino", "bf16", parse_device("openvino", "bf16"), "out") == asked("openvino", "bf16")
    gpus(monkeypatch, "A", "B")
    assert as_begun("cuda", "fp32", parse_device("cuda:1", "fp32"), "out").numbers == (1,)
    assert as_begun("cuda", "fp32", parse_device("auto", "fp32"), "out").numbers == (0, 1)
    without(monkeypatch, "onnxruntime_ep_openvino")
    with pytest.raises(UsageError, match=r"--device openvino needs the package"):
        as_begun("openvino", "fp32", parse_device("auto", "fp32"), "out")
    with pytest.raises(UsageError, match=r"--device cpu runs fp32 or int8, not --precision bf16, which runs on"):
        as_begun("cpu", "bf16", parse_device("auto", "auto"), "out")


def test_auto_for_both_leaves_the_precision_to_the_launch() -> None:
    found = find_candidates(parse_device("auto", "auto")).choices
    assert [(choice.provider, choice.precision) for choice in found] == [("cpu", "auto"), ("openvino", "auto")]
    assert asked("openvino", "auto").precision == "auto"


# -- what is taken -------------------------------------------------------------------------------------------------------


def of(*providers: str, passed_over: tuple[str, ...] = ()) -> Candidates:
    return Candidates(tuple(Choice(provider, "", (0,), ("one",)) for provider in providers), passed_over)


def giving(**rates: float | str) -> Callable[[tuple[Choice, ...]], dict[str, float | str]]:
    return lambda found: {choice.provider: rates[choice.provider] for choice in found}


def test_nothing_is_measured_where_there_is_no_choice() -> None:
    assert choose(Candidates((asked("openvino"),)), never) == asked("openvino")
    assert choose(of("cpu"), never) == Choice("cpu", "auto: no other provider is available", (0,), ("one",))


@pytest.mark.parametrize(
    ("rates", "taken"),
    [
        ({"cpu": 100.0, "openvino": 99.0}, "cpu"),
        ({"cpu": 100.0, "openvino": 109.0}, "cpu"),  # noise: the earlier one, so that jobs do not differ by chance
        ({"cpu": 100.0, "openvino": 111.0}, "openvino"),
        ({"cuda": 5000.0, "cpu": 100.0, "openvino": 111.0}, "cuda"),
        ({"cuda": 50.0, "cpu": 100.0, "openvino": 105.0}, "cpu"),
        ({"cuda": "--device cuda: a library is missing", "cpu": 100.0, "openvino": 90.0}, "cpu"),
    ],
)
def test_the_clearly_faster_one_is_taken(rates: dict[str, Any], taken: str) -> None:
    choice = choose(of(*rates), giving(**rates))
    assert choice.provider == taken
    assert choice.reason.startswith("auto: ")
    assert "cpu 100.0 images/sec" in choice.reason
    assert ("cuda does not run: a library is missing" in choice.reason) == isinstance(rates.get("cuda"), str)


def test_auto_where_all_fail() -> None:
    with pytest.raises(UsageError, match=r"--device auto: none can run the network; --device openvino cannot run m.onnx: so$"):
        choose(of("cpu", "openvino"), giving(cpu="no", openvino="--device openvino cannot run m.onnx: so"))


def test_a_host_of_gpus_is_weighed_as_a_whole() -> None:
    eight = Candidates((replace(of("cuda").choices[0], numbers=tuple(range(8)), names=("one",) * 8), *of("cpu").choices))
    choice = choose(eight, giving(cuda=100.0, cpu=120.0))
    assert (choice.provider, choice.reason) == ("cuda", "auto: cuda 800.0 images/sec; cpu 120.0 images/sec")


def test_what_is_partly_here_is_told_and_what_is_absent_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(error: UsageError) -> Candidates:
        def fails() -> list[str]:
            raise error

        monkeypatch.setitem(PROVIDERS, "cuda", replace(PROVIDERS["cuda"], find_devices=fails))
        return find_candidates(parse_device("auto", "fp32"))

    assert find(AbsentError("--device cuda: nothing of it is here")).passed_over == ()
    found = find(UsageError("--device cuda: the NVIDIA driver fails (cuInit gives 803): try nvidia-smi"))
    told = "cuda does not run: the NVIDIA driver fails (cuInit gives 803): try nvidia-smi"
    assert found.passed_over == (told,)
    assert choose(found, giving(cpu=10.0, openvino=10.0)).reason.endswith(f"; {told}")
    without(monkeypatch, "onnxruntime_ep_openvino")
    alone = find(UsageError("--device cuda: the NVIDIA driver fails (cuInit gives 803): try nvidia-smi"))
    assert choose(alone, never).reason == f"auto: no other provider is available; {told}"


def test_where_nothing_may_be_measured_it_is_said() -> None:
    choice = choose(of("cpu", "openvino"), lambda found: {})
    assert (choice.provider, choice.reason) == ("cpu", "auto: a launch would first measure cpu, openvino")


# -- who gets what -------------------------------------------------------------------------------------------------------


def plan(choice: Choice, **flags: Any) -> Any:
    return plan_workers(LaunchConfig(**flags), choice, FOUR_CORES)


TWO_GPUS = Choice("cuda", "as asked", (1, 3), ("B", "D"))
PROCESSOR = Choice("cpu", "as asked", (0,), ("the processor",))


@pytest.mark.parametrize(
    ("flags", "devices"),
    [
        ({}, (1, 3)),
        ({"num_devices": 1}, (1,)),
        ({"num_devices": 2}, (1, 3)),
        ({"processes_per_device": 2}, (1, 3, 1, 3)),
        ({"processes_per_device": 2, "num_devices": 3}, (1, 3, 1)),
    ],
)
def test_a_worker_for_each_gpu(flags: dict[str, int], devices: tuple[int, ...]) -> None:
    planned = plan(TWO_GPUS, **flags)
    assert (planned.num_devices, planned.devices) == (len(devices), devices)
    assert planned.streams == 2
    assert plan(TWO_GPUS, streams=5).streams == 5


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 1), (8, 1), (15, 1), (16, 2), (96, 12)])
def test_a_worker_for_every_eight_cores_of_processors(cores: int, workers: int) -> None:
    budget = CoreBudget(tuple(range(cores)), None)
    planned = plan_workers(LaunchConfig(), PROCESSOR, budget)
    assert (planned.num_devices, planned.streams, planned.num_workers) == (workers, cores // workers, cores // workers)
    assert plan_workers(LaunchConfig(num_devices=3), PROCESSOR, budget).num_devices == 3
    assert plan_workers(LaunchConfig(engine="inline"), PROCESSOR, budget).num_devices == 1
    assert plan_workers(LaunchConfig(), replace(TWO_GPUS, numbers=(0,), names=("A",)), budget).num_devices == 1


def test_more_workers_than_gpus_are_refused_with_the_count() -> None:
    with pytest.raises(UsageError, match=r"--num_devices 3: cuda has 2 here; --processes_per_device N runs several workers"):
        plan(TWO_GPUS, num_devices=3)
    with pytest.raises(UsageError, match=r"--num_devices 7: cuda has 2 here, 3 processes each;"):
        plan(TWO_GPUS, num_devices=7, processes_per_device=3)


def test_devices_that_no_worker_gets_are_not_told() -> None:
    assert TWO_GPUS.only((3,)) == Choice("cuda", "as asked", (3,), ("D",))
    assert TWO_GPUS.only((1, 3, 1, 3)) == TWO_GPUS


def test_the_inline_engine_has_one_worker_whatever_is_here() -> None:
    assert plan(TWO_GPUS, engine="inline").devices == (1,)


def test_loader_processes_are_for_pictures_that_workers_load() -> None:
    budget = CoreBudget(tuple(range(16)), None)

    def processes(**flags: Any) -> int:
        return plan_workers(LaunchConfig(num_devices=1, **flags), PROCESSOR, budget).loader_processes

    assert processes() == 4
    assert processes(loader_processes=2) == 2
    assert processes(loader_processes=-1) == processes(num_workers=5) == 0
    assert processes(synthetic=True) == processes(generated=True) == processes(engine="inline") == 0
    with pytest.raises(UsageError, match="--engine inline runs one worker: it cannot take --loader_processes 1"):
        LaunchConfig(engine="inline", loader_processes=1)


def test_processes_for_each_device_beside_their_number_mean_nothing_on_a_processor() -> None:
    with pytest.raises(UsageError, match=r"--processes_per_device beside --num_devices is for GPUs: cpu takes one of them"):
        plan(PROCESSOR, num_devices=4, processes_per_device=2)


@pytest.mark.parametrize(
    ("flags", "workers", "streams"),
    [({}, 1, 4), ({"num_devices": 8}, 8, 1), ({"processes_per_device": 2}, 2, 2), ({"num_devices": 2, "streams": 1}, 2, 1)],
)
def test_workers_of_a_processor(flags: dict[str, int], workers: int, streams: int) -> None:
    planned = plan(PROCESSOR, **flags)
    assert (planned.num_devices, planned.devices, planned.streams) == (workers, (0,) * workers, streams)
