"""PyTorch's eager kernels for the layers and optimizers of the built-in runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.engines.training.traits import Optimizer, Update
from gnomon.graph.style import KernelStyle, Stream
from gnomon.spec import Model, MoeFfn

CHOICE_KERNELS = (17, 9)
"""A router's scores to fp32, their softmax, the highest, their shares, rows sorted by expert, their ends, the way back;
and the gradient of shares."""
CHOICE_BYTES = 30.0
"""Of an expert that a token visits: its number, and its row there and back, in eight bytes each; its
share in fp32 and in the working format."""

BLOCK = 256
"""Moments of eight bits that share a scale (`eight_bits.py`)."""


def style(model: Model) -> KernelStyle:
    """The kernels of `gnomon.engines.torch.model`, which fuses nothing."""
    efficiency = efficiencies()

    def stream(
        name: str, reads: float, writes: float, back_reads: float, back_writes: float, kernels: tuple[int, int] = (1, 1)
    ) -> Stream:
        efficiencies = efficiency[name], efficiency.get(f"{name}.backward", efficiency[name])
        return Stream(reads, writes, back_reads, back_writes, *kernels, *efficiencies)

    topk = max((block.ffn.topk for block in model.blocks if isinstance(block.ffn, MoeFfn)), default=1)
    routing = routing_streams(topk)
    return KernelStyle(
        choose=routing["choose"],
        permute=routing["permute"],
        unpermute=routing["unpermute"],
        choice_bytes=CHOICE_BYTES,
        norm=stream("layer_norm" if model.norm_bias else "rms_norm", 1, 1, 4, 1, kernels=(1, 2)),
        rope=stream("rope", 5, 4, 5.5, 4.5, kernels=(7, 8)),
        residual=stream("add", 2, 1, 0, 0),
        gated=stream("silu", 1, 1, 2, 1),
        plain=stream("gelu", 1, 1, 2, 1),
        product=stream("mul", 2, 1, 4, 2, kernels=(1, 2)),
        total=stream("add", 2, 1, 0, 0),
        loss=stream("loss", 2, 2, 4, 4, kernels=(2, 3)),
        widen=Stream(1, 2, 2, 1, 1, 1, efficiency["widen"], efficiency["narrow"]),
        embedding=Stream(1, 1, 1, 1, 1, 1, 1.0, efficiency["embedding.backward"]),
        joined=False,
        fused_activation=False,
        stop_early=True,
        keeps_gathered=True,
        overlap_by_weight=False,
    )


def routing_streams(topk: int) -> dict[str, Stream]:
    """What `gnomon.engines.torch.experts` does around experts: rows are indexed, and summed in a kernel apart."""
    found = {
        "choose": Stream(5, 4, 6, 5, *CHOICE_KERNELS),
        "permute": Stream(1, 1, 2, 1 + 1 / topk, 1, 2),
        "unpermute": Stream(3, 2 + 1 / topk, 3 + 2 / topk, 3, 3, 4),
    }
    each = efficiencies()
    for name in ("permute", "unpermute"):
        there, back = each[f"experts.{name}"], each[f"experts.{name}.backward"]
        found[name] = replace(found[name], efficiency=there, gradient_efficiency=back)
    return found


def magnitudes() -> Stream:
    """A result times a vector of magnitudes (DoRA), and both gradients."""
    rate = efficiencies()
    row, product, summed = rate["broadcast.bfloat16"], rate["mul.bfloat16"], rate["reduce.bfloat16"]
    return Stream.chain((1, 1, row)).gradient((1, 1, row), (2, 1, product), (1, 0, summed))


def optimizers() -> Mapping[str, Optimizer]:
    """AdamW with fp32 weights and moments beside bf16 weights, AdamW with all of them in bf16, with moments of eight
    bits, and Muon, of which the passes over each value are counted (`orthogonal.py`)."""
    efficiency = efficiencies()

    def update(name: str, reads: float, writes: float, kernel: str = "") -> Update:
        return Update(f"optimizer.{name}", reads, writes, efficiency[kernel or name])

    adamw = Optimizer(
        weight_bytes=2.0,
        gradient_bytes=4.0,
        state_bytes=12.0,
        sharded_weight_bytes=0.0,
        updates=(
            update("norm", 4, 0, "norm.float32"),
            update("scale", 4, 4, "scale.float32"),
            update("adamw", 16, 12, "adamw.float32"),
            update("copy_back", 4, 2),
        ),
        accumulate=update("accumulate", 6, 4),
        clear=update("zero", 0, 4),
    )
    return {
        "adamw": adamw,
        "adamw-bf16": Optimizer(
            weight_bytes=2.0,
            gradient_bytes=2.0,
            state_bytes=4.0,
            sharded_weight_bytes=2.0,
            updates=(
                update("norm", 2, 0, "norm.bfloat16"),
                update("scale", 2, 2, "scale.bfloat16"),
                update("adamw", 8, 6, "adamw.bfloat16"),
            ),
            accumulate=update("accumulate", 4, 2, "add"),
            clear=update("zero", 0, 2),
        ),
        "adam8bit": replace(adamw, state_bytes=6 + 8 / BLOCK, updates=_instead(adamw, *_eight_bits(efficiency))),
        "muon": replace(
            adamw,
            state_bytes=8.0,
            updates=_instead(adamw, update("muon", 46, 32, "add.float32")),
            newton_steps=5,
            newton_values=2**26,
            traded_bytes=2.0,
            ends=adamw,
        ),
    }


def _instead(adamw: Optimizer, *updates: Update) -> tuple[Update, ...]:
    """The kernels of a step with others in the place of AdamW's own."""
    before, after = adamw.updates[:2], adamw.updates[3:]
    return (*before, *updates, *after)


def _eight_bits(efficiency: Mapping[str, float]) -> tuple[Update, ...]:
    """AdamW over bytes, by PyTorch's operators (`eight_bits.py`), counted: each moment is widened, scaled, updated and
    looked up for its nearest byte, a pass each. What looks numbers up goes by the throughput of gathers."""
    plain = Update("optimizer.adam8bit", 94, 66, efficiency["add.float32"])
    return plain, Update("optimizer.adam8bit.numbers", 16, 16, efficiency["gather.float32"])
