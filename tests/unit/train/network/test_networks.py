"""Networks to train: parameter counts to the last one, shapes, norms, shortcuts, options that fit and those that do not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.export.torch_export import outputs_of
from bulkinfer.model.recipe import Recipe
from bulkinfer.train.network.network_names import TRAINABLE, find_trainable, image_size
from bulkinfer.train.network.networks import NetworkOptions, build_network
from torch import nn

from tests.forms import long, only_first
from tests.networks import published, run

# Published counts: torchvision's documentation, timm's results table and the papers' code; 1000 classes and 3 input channels.
COUNTS = {
    "resnet10": 5_418_792,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext14": 9_411_880,
    "resnext50": 25_028_904,
    "resnext101": 44_177_704,
    "efficientnet_b0": 5_288_548,
    "efficientnet_b1": 7_794_184,
    "efficientnet_b2": 9_109_994,
    "efficientnet_b3": 12_233_232,
    "efficientnet_b4": 19_341_616,
    "efficientnet_b5": 30_389_784,
    "efficientnet_b6": 43_040_704,
    "efficientnet_b7": 66_347_960,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
    "mobilenet_v3_large": 5_483_032,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small gain nothing from more threads, which would wait for each other beside other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# One of each family and block, for what must hold with every norm; all at 64 pixels or less, so that they are quick.
SMALL = {
    "cifar_resnet8": 32, "cifar_resnet11_bottleneck": 32, "cifar_resnext11": 32, "resnet10": 64, "resnext14": 64,
    "efficientnet_cifar": 32, "mobilenet_v2": 64, "mobilenet_v3_small": 64,
}  # fmt: skip
# Of the spatial convolutions of EfficientNet-B0, in order: input channels of the block, channels inside, side of the kernel.
B0_BLOCKS = [
    (32, 32, 3), (16, 96, 3), (24, 144, 3), (24, 144, 5), (40, 240, 5), (40, 240, 3), *[(80, 480, 3)] * 2, (80, 480, 5),
    *[(112, 672, 5)] * 3, *[(192, 1152, 5)] * 3, (192, 1152, 3),
]  # fmt: skip


def meta(model: str, num_classes: int = 1000, **options: object) -> nn.Module:
    """The network without memory or work: shapes alone."""
    with torch.device("meta"):
        return build_network(NetworkOptions(model, num_classes, **options))  # type: ignore[arg-type]


def small(model: str, **options: object) -> nn.Module:
    torch.manual_seed(5)
    return build_network(NetworkOptions(model, 7, **options))  # type: ignore[arg-type]


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def pictures(side: int, batch: int = 4, channels: int = 3) -> torch.Tensor:
    return torch.randn(batch, channels, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("model", COUNTS)
def test_parameters_of_large_networks(model: str) -> None:
    assert count(meta(model)) == COUNTS[model]


@pytest.mark.parametrize(
    ("model", "printed"), [("resnext14", 9_415_016), ("efficientnet_b0", 5_288_836), ("mobilenet_v2", 3_504_872 + 32 * 9)]
)
def test_a_fourth_input_channel_adds_its_share_of_the_first_convolution(model: str, printed: int) -> None:
    assert count(meta(model, input_channels=4)) == printed


def cifar_count(blocks: int, shortcut_type: str) -> int:
    """6n+2 layers: every 3 x 3 convolution, every norm's pair of values, ten classes."""
    total, channels = 3 * 16 * 9 + 2 * 16 + 64 * 10 + 10, 16
    for planes in (16, 32, 64):
        for _ in range(blocks):
            total += 9 * channels * planes + 9 * planes * planes + 4 * planes
            if shortcut_type == "C" or (shortcut_type == "B" and channels != planes):
                total += channels * planes + 2 * planes
            channels = planes
    return total


@pytest.mark.parametrize("depth", [8, 14, 20, 32, 44, 56, 110])
def test_parameters_of_cifar_resnets_counted_by_hand(depth: int) -> None:
    for shortcut_type in "ABC":
        network = meta(f"cifar_resnet{depth}", 10, shortcut_type=shortcut_type)
        assert count(network) == cifar_count((depth - 2) // 6, shortcut_type)
        assert sum(isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) for m in network.modules()) == depth - 1


def test_cifar_resnet20_is_the_published_network() -> None:
    assert cifar_count(3, "A") == 269_722
    assert count(meta("cifar_resnet20", 10)) == 269_722  # A is the default


def cifar_bottleneck_count(blocks: int, planes: int, cardinality: int, width: int) -> int:
    """9n+2 layers with projections where the shape changes, ten classes."""
    total, channels = 3 * planes * 9 + 2 * planes, planes
    for stage in range(3):
        inner, out = 2**stage * planes * width // 64 * cardinality, 4 * planes * 2**stage
        for place in range(blocks):
            total += channels * inner + 9 * inner * inner // cardinality + inner * out + 4 * inner + 2 * out
            total += channels * out + 2 * out if place == 0 else 0
            channels = out
    return total + channels * 10 + 10


@pytest.mark.parametrize("depth", [11, 29, 38, 47, 56, 65])
def test_parameters_of_cifar_bottlenecks_counted_by_hand(depth: int) -> None:
    network = meta(f"cifar_resnet{depth}_bottleneck", 10)
    assert count(network) == cifar_bottleneck_count((depth - 2) // 9, 16, 1, 64)


@pytest.mark.parametrize(("cardinality", "width"), [(32, 4), (8, 64), (16, 64)])
def test_parameters_of_cifar_resnext29_counted_by_hand(cardinality: int, width: int) -> None:
    found = count(meta("cifar_resnext29", 10, cardinality=cardinality, width=width))
    assert found == cifar_bottleneck_count(3, 64, cardinality, width)
    if width == 64:  # the paper, table 7: 34.4 and 68.1 million
        assert found / 1e6 == pytest.approx({8: 34.4, 16: 68.1}[cardinality], abs=0.1)


def test_cardinality_and_width_make_other_resnexts() -> None:
    assert count(meta("resnet50", cardinality=32, width=4)) == 25_028_904
    assert count(meta("resnext101", width=8)) == 88_791_336  # torchvision's 32x8d
    assert count(meta("resnet50", width=128)) == 68_883_240  # torchvision's wide_resnet50_2


def test_the_stride_of_a_bottleneck_is_on_its_3x3_convolution() -> None:
    block = meta("resnet50").get_submodule("layer2.0")
    assert block.get_submodule("conv1").stride == (1, 1)
    assert block.get_submodule("conv2").stride == (2, 2)


@pytest.mark.parametrize("model", only_first(TRAINABLE, 12))
def test_logits_at_the_networks_own_size(model: str) -> None:
    side = image_size(model)
    network = meta(model, 11).eval()
    assert network(torch.empty(2, 3, side, side, device="meta")).shape == (2, 11)


def test_sizes_are_the_published_ones() -> None:
    sides = [image_size(f"efficientnet-b{size}") for size in range(8)]
    assert sides == [224, 240, 260, 300, 380, 456, 528, 600]
    assert (image_size("cifar_resnet56"), image_size("efficientnet_cifar"), image_size("ResNet50")) == (32, 32, 224)


def test_small_networks_keep_the_size_of_small_pictures() -> None:
    features = small("efficientnet_cifar").eval().forward_features(pictures(32))  # type: ignore[operator]
    assert features.shape == (4, 640, 4, 4)
    assert small("cifar_resnet8").get_submodule("layer1")(torch.zeros(1, 16, 32, 32)).shape == (1, 16, 32, 32)


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("model", SMALL)
def test_every_norm_trains_every_parameter(model: str, norm: str) -> None:
    network = small(model, norm=norm, dropout=0.0)
    assert network.training
    nn.functional.cross_entropy(network(pictures(SMALL[model])), torch.arange(4)).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name
    kinds = {"batch": nn.BatchNorm2d, "group": nn.GroupNorm}
    for kind, layer in kinds.items():
        assert any(isinstance(module, layer) for module in network.modules()) == (kind == norm)


@pytest.mark.parametrize("model", SMALL)
def test_evaluation_is_deterministic_and_independent_of_the_batch(model: str) -> None:
    network = small(model)
    network(pictures(SMALL[model]))
    network.eval()
    images = pictures(SMALL[model])
    with torch.inference_mode():
        first, again, alone = network(images), network(images), network(images[1:2])
    assert torch.equal(first, again)
    assert torch.allclose(first[1:2], alone, atol=1e-4 * float(first.abs().max()))


@pytest.mark.parametrize("model", SMALL)
def test_a_seed_reproduces_the_weights(model: str) -> None:
    first, again = small(model).state_dict(), small(model).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_without_a_norm_every_convolution_has_a_bias() -> None:
    network = meta("resnet50", norm="none")
    norm_channels = 26_560  # of resnet50: 53,120 values in pairs
    assert count(network) == 25_557_032 - norm_channels
    convolution = nn.Conv2d(3, 16, 3, padding=1)
    stem = small("cifar_resnet8", norm="none").get_submodule("stem")[:2]  # type: ignore[index]
    with torch.no_grad():
        stem[0].weight.copy_(convolution.weight)
        stem[1].bias.copy_(convolution.bias)
    assert torch.allclose(stem(pictures(8)), convolution(pictures(8)), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {16: 16, 32: 16, 64: 16}),
        ({"norm_groups": 8}, {16: 8, 32: 8, 64: 8}),
        ({"norm_groups": 12}, {16: 8, 32: 8, 64: 8}),
        ({"norm_groups": 1000}, {16: 16, 32: 32, 64: 64}),
        ({"norm_channels_per_group": 8}, {16: 2, 32: 4, 64: 8}),
        ({"norm_channels_per_group": 24}, {16: 1, 32: 1, 64: 2}),
    ],
)
def test_groups_that_do_not_divide_become_fewer(options: dict[str, int], expected: dict[int, int]) -> None:
    network = meta("cifar_resnet8", 10, norm="group", **options)
    groups = {module.num_channels: module.num_groups for module in network.modules() if isinstance(module, nn.GroupNorm)}
    assert groups == expected


def test_groups_of_channels_without_small_divisors() -> None:
    network = meta("efficientnet_b0", norm="group", norm_groups=32)
    groups = {module.num_channels: module.num_groups for module in network.modules() if isinstance(module, nn.GroupNorm)}
    assert all(channels % number == 0 and number <= 32 for channels, number in groups.items())
    assert (groups[24], groups[40], groups[144], groups[112]) == (24, 20, 24, 28)


def test_eps_and_momentum_are_the_networks_own_unless_given() -> None:
    def found(model: str, **options: object) -> set[tuple[float, float | None]]:
        modules = meta(model, **options).modules()
        return {(module.eps, module.momentum) for module in modules if isinstance(module, nn.BatchNorm2d)}

    assert found("resnet18") == {(1e-5, 0.1)}
    assert found("efficientnet_b0") == {(1e-3, 0.1)}
    assert found("mobilenet_v3_small") == {(1e-3, 0.1)}
    for model in ("resnet18", "efficientnet_b0", "mobilenet_v2", "cifar_resnet8"):
        assert found(model, norm_eps=0.5, norm_momentum=0.25) == {(0.5, 0.25)}
    groups = meta("efficientnet_b0", norm="group", norm_eps=0.5).modules()
    assert {module.eps for module in groups if isinstance(module, nn.GroupNorm)} == {0.5}


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("model", [*SMALL, "resnet26"])
def test_zero_gamma_makes_every_block_its_shortcut_at_first(model: str, norm: str) -> None:
    network = small(model, norm=norm, zero_gamma=True).eval()
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    blocks = [module for module in network.modules() if is_plain_residual(module)]
    for block in blocks:
        block.register_forward_hook(lambda _block, inputs, output: seen.append((inputs[0].clone().relu(), output.relu())))
    with torch.inference_mode():
        logits = network(pictures(64))
    assert len(seen) == len(blocks)
    assert blocks or model in ("resnext14", "resnet10", "cifar_resnet11_bottleneck", "cifar_resnext11")
    assert all(torch.equal(before, after) for before, after in seen)
    assert float(logits.std()) > 0
    zeros = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm) and not m.weight.any()]
    assert len(zeros) >= max(1, len(blocks))
    assert not any(m.bias.any() for m in zeros)
    plain = [m for m in small(model, norm=norm).modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm)]
    assert all(m.weight.all() for m in plain)


def is_plain_residual(module: nn.Module) -> bool:
    """A block whose shortcut is the input itself, in timm's or torchvision's classes."""
    if hasattr(module, "downsample") and hasattr(module, "conv1"):
        return module.downsample is None
    return bool(getattr(module, "has_skip", False) or getattr(module, "use_res_connect", False))


def test_shortcut_a_takes_every_second_pixel_and_pads_with_zeros() -> None:
    shortcut = small("cifar_resnet8", shortcut_type="A").get_submodule("layer2.0.downsample")
    images = pictures(6, channels=16)
    found = shortcut(images)
    assert found.shape == (4, 32, 3, 3)
    assert torch.equal(found[:, :16], images[:, :, ::2, ::2])
    assert not found[:, 16:].any()


@pytest.mark.parametrize(("shortcut_type", "projections"), [("A", 0), ("B", 4), ("C", 16)])
def test_shortcuts_of_resnet50(shortcut_type: str, projections: int) -> None:
    network = meta("resnet50", shortcut_type=shortcut_type).eval()
    found = [m for name, m in network.named_modules() if name.endswith("downsample.0") and isinstance(m, nn.Conv2d)]
    assert len(found) == projections
    assert network(torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 1000)


def test_group_width_widens_the_spatial_convolutions() -> None:
    network = meta("efficientnet_b0", group_width=16)
    assert count(network) == 5_288_548 + sum(15 * inner * kernel**2 for _, inner, kernel in B0_BLOCKS)
    widths = {m.in_channels // m.groups for m in network.modules() if isinstance(m, nn.Conv2d) and m.groups > 1}
    assert widths == {16}


def test_groups_get_wider_where_they_do_not_divide_the_channels() -> None:
    network = meta("efficientnet_b4", group_width=16)  # the second block of the first stage has 24 channels
    convolutions = [m for name, m in network.named_modules() if name.endswith("conv_dw")]
    widths = {m.in_channels: m.in_channels // m.groups for m in convolutions}  # type: ignore[operator]
    assert widths.pop(24) == 24
    assert set(widths.values()) == {16}


def test_se_off_leaves_out_its_layers() -> None:
    of_se = sum(2 * inner * (before // 4) + before // 4 + inner for before, inner, _ in B0_BLOCKS)
    assert count(meta("efficientnet_b0", se=False)) == 5_288_548 - of_se
    assert not any("se." in name for name, _ in meta("efficientnet_b0", se=False).named_parameters())


def test_options_of_efficientnet_do_what_they_say() -> None:
    network = meta("efficientnet_b0", 10, expand_ratio=4, top_width=640, depth_factor=2.0, width_factor=0.5, depth_divisor=4)
    assert network.get_submodule("classifier").in_features == 320
    assert network.get_submodule("conv_stem").out_channels == 16
    assert [len(stage) for stage in network.get_submodule("blocks")] == [2, 4, 4, 6, 6, 8, 2]  # type: ignore[arg-type,union-attr]
    block = network.get_submodule("blocks.2.0")
    assert (block.get_submodule("conv_pw").in_channels, block.get_submodule("conv_pw").out_channels) == (12, 48)
    relu = {type(m) for m in meta("efficientnet_b0", relu=True).modules()}
    assert nn.ReLU in relu
    assert nn.SiLU not in relu
    assert nn.SiLU in {type(m) for m in meta("efficientnet_b0").modules()}


@pytest.mark.parametrize("model", ["cifar_resnet20", "resnet18", "efficientnet_cifar"])
def test_block_survival_drops_more_towards_the_end(model: str) -> None:
    def probabilities(**options: object) -> list[float]:
        return [m.drop_prob for m in meta(model, **options).modules() if type(m).__name__ == "DropPath"]

    found = probabilities(block_survival=0.6)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(0.4 if "resnet" in model else 0.4 * 15 / 16)
    assert probabilities(block_survival=1.0) == []
    assert bool(probabilities()) == model.startswith("efficientnet")


@pytest.mark.parametrize("model", SMALL)
def test_dropout_acts_in_training_only(model: str) -> None:
    others = {} if model.startswith("mobilenet") else {"block_survival": 1.0}
    network = small(model, norm="group", dropout=0.5, **others)
    images = pictures(SMALL[model])
    with torch.no_grad():
        assert not torch.equal(network(images), network(images))
        network = small(model, norm="group", dropout=0.0, **others)
        assert torch.equal(network(images), network(images))


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("efficientnet_b0", {"shortcut_type": "A"}, ("--shortcut_type", "efficientnet_b0")),
        ("resnet18", {"cardinality": 32}, ("--cardinality", "resnet18")),
        ("resnet50", {"se": False}, ("--se", "resnet50")),
        ("cifar_resnet20", {"width": 4}, ("--width", "cifar_resnet20")),
        ("cifar_resnet20", {"relu": True}, ("--relu", "cifar_resnet20", "efficientnet_b0")),
        ("mobilenet-v2", {"block_survival": 0.9}, ("--block_survival", "mobilenet_v2")),
        ("timm:test_resnet", {"norm": "group"}, ("--norm ", "timm_test_resnet")),
        ("timm:test_resnet", {"zero_gamma": True}, ("--zero_gamma", "timm_test_resnet")),
        ("timm:vgg11", {"block_survival": 0.9}, ("--block_survival", "timm_vgg11")),
        ("resnet18", {"norm_groups": 8}, ("--norm_groups", "--norm group", "--norm batch")),
        ("resnet18", {"norm": "group", "norm_momentum": 0.1}, ("--norm_momentum", "--norm batch", "--norm group")),
        ("resnet18", {"norm": "none", "norm_eps": 0.1}, ("--norm_eps", "--norm none")),
        ("resnet18", {"norm": "none", "zero_gamma": True}, ("--zero_gamma", "--norm none")),
        ("resnet18", {"norm": "group", "norm_groups": 8, "norm_channels_per_group": 8}, ("--norm_groups", "per_group")),
        ("resnet18", {"norm": "layer"}, ("--norm layer", "batch, group, none")),
        ("resnet18", {"shortcut_type": "D"}, ("--shortcut_type D", "A, B, C")),
        ("resnet18", {"dropout": 1.0}, ("--dropout 1.0", "below 1")),
        ("resnet18", {"block_survival": 0.0}, ("--block_survival 0.0", "above 0")),
        ("resnext50", {"cardinality": -1}, ("--cardinality -1", "from 0 to 1024")),
        ("efficientnet_b0", {"group_width": 0}, ("--group_width 0", "from 1 to 4096")),
        ("efficientnet_b0", {"depth_factor": math.nan}, ("--depth_factor nan", "from 0 to 100")),
        ("resnet18", {"norm_momentum": 1.5}, ("--norm_momentum 1.5", "from 0 to 1")),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(model: str, options: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as raised:
        meta(model, **options)
    assert all(word in str(raised.value) for word in words), raised.value


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("resnet50", "resnet50"),
        ("ResNet-50", "resnet50"),
        ("efficientnet-b0", "efficientnet_b0"),
        ("EfficientNet_B7", "efficientnet_b7"),
        ("mobilenet-v3-small", "mobilenet_v3_small"),
        ("CIFAR_ResNet-20", "cifar_resnet20"),
        ("timm:test_resnet", "timm_test_resnet"),
        ("timm_test_resnet", "timm_test_resnet"),
        ("test_resnet", "timm_test_resnet"),
        ("timm:resnet50", "timm_resnet50"),
        ("timm:resnet50.a1_in1k", "timm_resnet50.a1_in1k"),
    ],
)
def test_names_are_found_however_they_are_written(spelling: str, name: str) -> None:
    assert find_trainable(spelling) == name
    assert find_trainable(name) == name


@pytest.mark.parametrize(
    ("model", "near"),
    [
        ("cifar_resnet21", "cifar_resnet20"),
        ("resnet51", "resnet50"),
        ("timm:resnet5o", "timm:resnet50"),
        ("resnet50.a1_in2k", "timm:resnet50.a1_in1k"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(model: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"--model: no network is called '{model}'; nearest are .*{near}"):
        find_trainable(model)


def test_a_name_like_no_other_is_answered_with_ours() -> None:
    with pytest.raises(UsageError, match="known are cifar_resnet8, "):
        find_trainable("0?!")


def test_any_network_of_timm_is_built_with_its_own_norms() -> None:
    assert image_size("timm:test_resnet") == 160
    network = build_network(NetworkOptions("timm:test_resnet", 5, input_channels=4, dropout=0.3, block_survival=0.75))
    assert network.training
    assert (network.drop_rate, network(pictures(64, channels=4)).shape) == (0.3, (4, 5))
    assert max(m.drop_prob for m in network.modules() if type(m).__name__ == "DropPath") == pytest.approx(0.25)


def test_a_network_of_timm_for_pictures_that_are_not_square_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--model timm_vit_base_patch16_sapiens2 is made for 1024 x 768 pixels, .*not square"):
        image_size("timm:vit_base_patch16_sapiens2")


@long
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("cifar_resnet8", {"norm": "group"}),
        ("cifar_resnet20", {}),
        ("efficientnet_cifar", {"depth_factor": 0.1}),  # one block in each stage
    ],
)
def test_exported_networks_give_the_numbers_of_torch(model: str, options: dict[str, object], tmp_path: Path) -> None:
    torch.manual_seed(2)
    network = build_network(NetworkOptions(model, 3, **options))  # type: ignore[arg-type]
    with torch.no_grad():
        for _ in range(3):
            network(3 * torch.randn(8, 3, 32, 32) + 1)  # running means and variances that are not 0 and 1
    side = image_size(model)
    recipe = Recipe(
        height=side, width=side, resize="exact", resize_size=side, crop_fraction=1.0, interpolation="bilinear",
        mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25),
    )  # fmt: skip
    folder = published(network, tmp_path / "net", recipe, "float32", batch_size=2)
    images = torch.randn(2, 3, side, side)
    found = run(folder / "model_2.onnx", images.numpy())
    with torch.inference_mode():
        logits, embedding = outputs_of(network.eval(), images)
    for name, expected in (("logits", logits.numpy()), ("embedding", embedding.numpy())):
        assert np.allclose(found[name], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max()), name
