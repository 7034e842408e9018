"""Megatron-LM's kernels by version: attention in parts and dropout in 2021 and 2022, one fused kernel since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines.training.traits import Optimizer, Update
from gnomon.graph.style import KernelStyle, Stream

_COMMON: dict[str, Any] = {
    "norm": Stream(1, 1, 4, 1, 1, 2),
    "rope": Stream(1, 1, 1, 1),
    "gated": Stream(2, 1, 3, 2),
    "plain": Stream(1, 1, 3, 1),
    "embedding": Stream(1, 1, 1, 1),
    "total": Stream(2, 1, 0, 0),
}
"""Layer norm, rotary embedding, gate, and GELU with its bias each have a kernel of their own."""
WITH_DROPOUT = Stream(2, 1.5, 1.5, 1)
"""Bias, dropout and residual in one kernel, which leaves a mask of one byte per value."""
VOCABULARY_LOSS = Stream(10, 6, 4, 4, 5, 2)
"""Largest value, difference, exponential, sum and quotient of the fp32 logits are passes of their own."""


ROUTING_KERNELS = (45, 55)
"""Tokens counted by expert and by rank and the all-gather of that, maps of rows there and back, shares that travel
beside tokens, the loss that balances experts, padding for narrow GEMMs, copies of counts to the host, and what autograd
adds: counted in its code. `python -m tools.training_software experts` finds three quarters and 1.75 times as many
within 0.03 of each other in the mean logarithm of errors, so that runs do not tell it better."""
ATOMIC_BYTES_S = 3.2e9
"""Of a processor, in `scatter_add_` and the gradient of `index_select` over values of 16 bits: fitted by the same
command to Megatron-Bridge's runs with tokens dropped to an equal share (release 25.09), of those that fits may see. As
plain kernels they make such runs 25% to 35% too fast."""


def parted(overlap: bool, gradient_dtype: str) -> KernelStyle:
    """Scores, softmax, dropout and context as kernels of their own, as before fused attention."""
    return KernelStyle(
        **_COMMON,
        residual=WITH_DROPOUT,
        loss=VOCABULARY_LOSS,
        softmax=Stream(1, 1, 2, 1),
        dropout=Stream(1, 1.5, 1.5, 1),
        overlap_by_weight=overlap,
        gradient_dtype=gradient_dtype,
    )


def fused() -> KernelStyle:
    """Fused attention, no dropout, a loss that reads the logits twice; the flex dispatcher across nodes."""
    return KernelStyle(
        **_COMMON,
        residual=Stream(2, 1, 0, 0),
        loss=Stream(4, 2, 4, 2),
        gradient_dtype="fp32",
        routing_kernels=ROUTING_KERNELS,
        separate_experts=True,
        awaits_counts=True,
        routes_once=True,
    )


def optimizers(fp32_sum: bool) -> Mapping[str, Optimizer]:
    """AdamW over fp32 weights and moments. `fp32_sum`: the GEMM by weight accumulates into fp32 gradients; else each
    micro-batch adds to gradients in the working format, widened once before the update."""
    widen = () if fp32_sum else (Update("optimizer.widen", 2, 4),)
    clean = (Update("optimizer.unscale", 4, 4), Update("optimizer.norm", 4, 0), Update("optimizer.scale", 4, 4))
    adamw = Optimizer(
        weight_bytes=2.0,
        gradient_bytes=4.0,
        state_bytes=12.0,
        sharded_weight_bytes=2.0,
        updates=(*widen, *clean, Update("optimizer.adamw", 16, 12), Update("optimizer.copy_back", 4, 2)),
        accumulate=Update("optimizer.accumulate", 0, 4) if fp32_sum else Update("optimizer.accumulate", 4, 2),
        clear=Update("optimizer.zero", 0, 4),
    )
    low = Optimizer(
        weight_bytes=2.0,
        gradient_bytes=2.0,
        state_bytes=4.0,
        sharded_weight_bytes=2.0,
        updates=(Update("optimizer.norm", 2, 0), Update("optimizer.scale", 2, 2), Update("optimizer.adamw", 8, 6)),
        accumulate=Update("optimizer.accumulate", 4, 2),
        clear=Update("optimizer.zero", 0, 2),
    )
    kinds = {name: _with_fp32_weights(adamw, *figures) for name, figures in _KINDS.items()}
    kinds["muon"] = replace(kinds["muon"], newton_steps=NEWTON_STEPS, ends=adamw)
    return {"adamw": adamw, "adamw-bf16": low, **kinds}


def narrow_sums() -> Mapping[str, Optimizer]:
    """The same with gradients summed and reduced in 16 bits."""
    return {name: replace(one, gradient_bytes=2.0) for name, one in optimizers(fp32_sum=True).items()}


MOMENTS_BF16 = "adamw-moments-bf16"
"""`--use-precision-aware-optimizer` with `--exp-avg-dtype` and `--exp-avg-sq-dtype` bf16, as Megatron-Bridge's recipes
of DeepSeek-V3, Moonlight and Kimi K2 have it."""
NEWTON_STEPS = 5
"""Jordan et al. 2024, and Megatron-LM's own default."""


_KINDS = {
    MOMENTS_BF16: (4.0, 12.0, 8.0),
    "adam8bit": (2.03, 10.03, 6.03),
    "sgd": (4.0, 12.0, 8.0),
    "adafactor": (0.0, 12.0, 4.0),
    "lion": (4.0, 12.0, 8.0),
    "muon": (4.0, 16.0, 10.0),
}
"""Bytes per parameter of moments beside the fp32 weights, and those an update reads and writes. A moment of eight bits
has an fp32 scale for every 256 (Dettmers et al. 2022: blocks of 2,048, of 256 in bitsandbytes), two of them 2.03 bytes.
Adafactor reads its gradient twice for the sums of rows and columns, which are next to nothing themselves. Muon's
momentum is read and written, and the result of its GEMMs read."""


def _with_fp32_weights(adamw: Optimizer, moments: float, reads: float, writes: float) -> Optimizer:
    *before, _, copied = adamw.updates
    return replace(
        adamw,
        state_bytes=4.0 + moments,
        updates=(*before, Update("optimizer.update", reads, writes), copied),
    )
