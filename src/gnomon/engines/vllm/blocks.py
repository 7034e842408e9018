"""Quantised matrices that tensor-parallel ranks cannot cut: where a block that shares a scale would lie on two of them.

The rules are vLLM 0.24's own. Of fp8 in blocks: `Fp8MoEMethod.create_weights` for experts, and
`validate_fp8_block_shape` for other layers, which lets layers of several matrices pass (qkv, gate and up). Of int4 with
a scale for a group of inputs: `MPLinearKernel.can_implement`, no kernel of which takes a group that two ranks share;
experts fall back to kernels that do (`moe_wna16`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.vllm.weights import BY_INPUT, EXPERTS, cut_tensor
from gnomon.errors import InputError
from gnomon.spec import AttentionMixer, Block, Format, Model, Strategy, Tensor

MERGED = ("q", "k", "v", "gate", "up", "shared_gate", "shared_up")
"""Matrices that vLLM keeps side by side as one layer."""


def check_blocks(model: Model, strategy: Strategy) -> None:
    """Raise InputError where vLLM refuses the degrees for the blocks of a quantised model, naming what it takes."""
    why = obstacle(model, strategy)
    if not why:
        return
    smaller = [2**power for power in range(strategy.tp.bit_length()) if 2**power < strategy.tp]
    fitting = [tp for tp in smaller if not obstacle(model, _with(strategy, tp, spread=strategy.ep > 1))]
    ways = [f"--tp {tp}" for tp in fitting[-1:]]
    if model.is_moe and strategy.ep == 1 and not obstacle(model, _with(strategy, strategy.tp, spread=True)):
        ways.append(f"--ep {strategy.tp * strategy.dp}, which leaves experts uncut")
    raise InputError(why, where="tp", hint=f"Use {' or '.join(ways)}." if ways else "Use another format.")


def _with(strategy: Strategy, tp: int, spread: bool) -> Strategy:
    """The strategy with another tensor-parallel degree, experts spread over all ranks or cut by width."""
    return replace(strategy, tp=tp, ep=tp * strategy.dp if spread else 1)


def obstacle(model: Model, strategy: Strategy) -> str:
    """What keeps ranks from cutting a quantised model so; empty where nothing does."""
    for block in model.blocks:
        formats = dict(block.formats)
        for tensor in block.tensors(model.hidden):
            format = formats.get(tensor.role)
            if format is None or format.block[1] <= 1:
                continue
            for size, step in _cut_sizes(tensor, block, strategy, format):
                if size % step:
                    return (
                        f"{model.name} in {format.name} has blocks of {step} that share a scale, and a rank would get "
                        f"{size} columns of {tensor.role.replace('_', ' ')}, which vLLM refuses"
                    )
    return ""


def _cut_sizes(tensor: Tensor, block: Block, strategy: Strategy, format: Format) -> Iterator[tuple[int, int]]:
    """Rows or columns of one rank, each with what it has to be a multiple of."""
    rows, columns = format.block
    square = rows > 1
    cut = next(iter(cut_tensor(tensor, block, strategy)))
    if tensor.role in EXPERTS:
        if square:
            inner = cut.columns if tensor.role == "expert_down" else cut.rows
            yield inner, rows
            yield inner, columns if strategy.tp > 1 else 1
    elif strategy.tp == 1:
        return
    elif tensor.role in BY_INPUT and (square or format.name.startswith("int")):
        yield cut.columns, columns
    elif square and cut.rows != tensor.rows and not _merged(tensor, block):
        yield cut.rows, rows


def _merged(tensor: Tensor, block: Block) -> bool:
    """Queries of latent attention are a layer of their own."""
    return tensor.role in MERGED and (tensor.role != "q" or isinstance(block.mixer, AttentionMixer))
