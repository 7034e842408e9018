"""The kernels that transformers' modules launch in training, and what they save, in values of 16 bits per value.

Read off traces of transformers 5.17 (`gnomon.trace`, which runs the modules themselves on tensors without values): each
tuple is one kernel by values read, values written and efficiency. `tests/engines/test_transformers.py` compares the two
where PyTorch is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.engines.training.traits import Optimizer, Update
from gnomon.graph.style import KernelStyle, Stream

RMS_SAVES = 3.0
"""An RMS norm saves its input in fp32 and what it multiplies its weight with in 16 bits."""


def style() -> KernelStyle:
    """Modules with weights in 16 bits: those of Llama, Mistral and Qwen."""
    rate = efficiencies()
    plain, gelu = rate["add.bfloat16"], (rate["gelu.bfloat16"], rate["gelu.backward.bfloat16"])
    return KernelStyle(
        norm=_rms_norm(rate),
        head_norm=_head_norm(rate),
        norm_saves=RMS_SAVES,
        rope=_rope(rate),
        residual=Stream(2, 1, 0, 0, efficiency=plain),
        gated=Stream(1, 1, 2, 1, 1, 1, rate["silu.bfloat16"], rate["silu.backward.bfloat16"]),
        plain=Stream(1, 1, 2, 1, 1, 1, *gelu),
        product=Stream(2, 1, 4, 2, 1, 2, rate["mul.bfloat16"], rate["mul.bfloat16"]),
        total=Stream(2, 1, 0, 0, efficiency=plain),
        loss=Stream.chain((2, 2, rate["softmax.float32"]), small=1).gradient(
            (0, 2, rate["loss.backward"]), (4, 2, rate["softmax.backward.float32"]), small=1
        ),
        widen=Stream(1, 2, 2, 1, 1, 1, rate["widen"], rate["narrow"]),
        embedding=Stream(1, 1, 1, 1, 1, 4, 1.0, rate["embedding.backward"]),
        joined=False,
        fused_activation=False,
        stop_early=True,
        holds_logits=True,
        overlap_by_weight=False,
    )


def _rms_norm(rate: Mapping[str, float]) -> Stream:
    """Widened, squared, averaged, scaled, narrowed, and times its weight."""
    wide, summed = rate["mul.float32"], rate["reduce.rows.float32"]
    return _normed(rate, wide, summed, (rate["mul.bfloat16"], rate["reduce.bfloat16"]))


def _head_norm(rate: Mapping[str, float]) -> Stream:
    """The same over rows as short as a head, with gradients that lie in another order."""
    wide, summed = rate["pointwise.strided.float32"], rate["reduce.short.float32"]
    return _normed(rate, wide, summed, (rate["pointwise.strided.bfloat16"], rate["reduce.tall.bfloat16"]))


def _normed(rate: Mapping[str, float], across: float, summed: float, weight: tuple[float, float]) -> Stream:
    """`across` is the efficiency of kernels that meet the gradient, `summed` of sums along a row, `weight` of the two
    kernels of the weight's gradient."""
    wide, row, spread = rate["mul.float32"], rate["broadcast.float32"], rate["broadcast.bfloat16"]
    widen, narrow, (product, down) = rate["widen"], rate["narrow"], weight
    forward = Stream.chain(
        (1, 2, widen), (2, 2, wide), (2, 0, summed), (2, 2, row), (2, 1, narrow), (1, 1, spread), small=2
    )
    return forward.gradient(
        (1, 1, spread), (2, 1, product), (1, 0, down), (1, 2, widen), (4, 2, across), (2, 2, row), (2, 0, summed),
        (0, 2, row), (2, 2, wide), (2, 2, wide), (4, 2, wide), (4, 2, across), (2, 1, narrow), small=3,
    )  # fmt: skip


def _rope(rate: Mapping[str, float]) -> Stream:
    """Queries and keys apart: times cosines, halves swapped, times sines, added across two layouts; backward the same
    with slices, and a copy into the layout of the GEMM."""
    spread, across, slices = rate["broadcast.bfloat16"], rate["pointwise.strided.bfloat16"], rate["zero.bfloat16"]
    turned = ((1, 1, spread), (0.5, 0.5, spread), (1, 1, rate["copy.bfloat16"]), (1, 1, spread), (2, 1, across))
    back = (
        (1, 1, spread), (0.5, 0.5, spread), (0.5, 1.5, slices), (0.5, 1.5, slices), (2, 1, rate["add.bfloat16"]),
        (1, 1, spread), (2, 1, across), (1, 1, rate["copy.heads.bfloat16"]),
    )  # fmt: skip
    return Stream.chain(*turned, small=len(turned)).gradient(*back, small=len(back) + 4)


def autocast() -> KernelStyle:
    """The same with fp32 weights under autocast: the residual stream and norms are fp32, GEMMs and attention narrow."""
    rate = efficiencies()
    wide, row, summed = rate["mul.float32"], rate["broadcast.float32"], rate["reduce.rows.float32"]
    norm = Stream.chain((2, 2, wide), (2, 0, summed), (2, 2, row), (2, 2, row), small=2).gradient(
        (2, 2, row), (4, 2, wide), (2, 0, rate["reduce.float32"]), (4, 2, wide), (2, 2, row), (2, 0, summed),
        (0, 2, row), (2, 2, wide), (2, 2, wide), (4, 2, wide), (4, 2, wide), small=3,
    )  # fmt: skip
    return replace(
        style(),
        norm=norm,
        wide_stream=True,
        rope=_wide_rope(rate),
        residual=Stream.chain((3, 2, rate["add.float32"])).gradient((2, 1, rate["narrow"])),
        total=Stream(4, 2, 0, 0, efficiency=rate["add.float32"]),
        embedding=Stream(2, 2, 2, 2, 1, 4, 1.0, rate["embedding.backward"] / 2),
    )


def _wide_rope(rate: Mapping[str, float]) -> Stream:
    """Cosines and sines are fp32, so that what is turned is widened and narrowed again, both ways."""
    spread, row, narrow = rate["broadcast.bfloat16"], rate["broadcast.float32"], rate["narrow"]
    slices, plain = rate["zero.bfloat16"], rate["add.bfloat16"]
    turned = (
        (1, 2, row), (0.5, 0.5, spread), (1, 1, rate["copy.bfloat16"]), (1, 2, row),
        (4, 2, rate["pointwise.strided.float32"]), (2, 1, narrow),
    )  # fmt: skip
    back = (
        (1, 2, rate["widen"]), (2, 2, row), (2, 1, narrow), (0.5, 0.5, spread), (0.5, 1.5, slices), (0.5, 1.5, slices),
        (2, 1, plain), (2, 2, row), (2, 1, narrow), (2, 1, rate["pointwise.strided.bfloat16"]),
        (1, 1, rate["copy.heads.bfloat16"]),
    )  # fmt: skip
    return Stream.chain(*turned, small=len(turned)).gradient(*back, small=len(back) + 4)


def optimizers() -> Mapping[str, Optimizer]:
    """PyTorch's fused AdamW after gradients were clipped, as the Trainer does: states in the format of the weights,
    which are 16 bits, or fp32 under autocast."""
    rate = efficiencies()
    return {
        "adamw-bf16": Optimizer(
            weight_bytes=2.0,
            gradient_bytes=2.0,
            state_bytes=4.0,
            sharded_weight_bytes=2.0,
            updates=(
                Update("optimizer.norm", 2, 0, rate["norm.bfloat16"]),
                Update("optimizer.scale", 2, 2, rate["scale.bfloat16"]),
                Update("optimizer.adamw", 8, 6, rate["adamw.bfloat16"]),
            ),
            accumulate=Update("optimizer.accumulate", 4, 2, rate["add.bfloat16"]),
            clear=Update("optimizer.zero", 0, 0),
        ),
        "adamw": Optimizer(
            weight_bytes=4.0,
            gradient_bytes=4.0,
            state_bytes=8.0,
            sharded_weight_bytes=4.0,
            updates=(
                Update("optimizer.norm", 4, 0, rate["norm.float32"]),
                Update("optimizer.scale", 4, 4, rate["scale.float32"]),
                Update("optimizer.adamw", 16, 12, rate["adamw.float32"]),
            ),
            accumulate=Update("optimizer.accumulate", 8, 4, rate["add.float32"]),
            clear=Update("optimizer.zero", 0, 0),
            casts=(Update("weights.narrow", 4, 2, rate["narrow"]), Update("gradients.widen", 2, 4, rate["widen"])),
            copy_bytes=2.0,
        ),
    }
