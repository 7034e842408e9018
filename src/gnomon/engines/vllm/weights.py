"""Weights of one rank under vLLM: each tensor in its own format, cut or copied as vLLM's layers do it.

Matrices by role: those that make heads or inner channels are cut along their outputs, those that lead back to the
stream along their inputs, and what every rank needs in full is copied. Norms, biases and other vectors are counted as
copied; vLLM cuts a few of them, which changes less than a tenth of a percent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnomon.engines.vllm import degrees
from gnomon.errors import InputError
from gnomon.graph.dtypes import width
from gnomon.spec import (
    AttentionMixer,
    Block,
    DenseFfn,
    Format,
    LatentAttention,
    Mamba2,
    Model,
    MoeFfn,
    Strategy,
    Tensor,
)
from gnomon.spec.formats import plain

BY_OUTPUT = frozenset(
    ("q", "q_up", "kv_up", "gate", "up", "in", "conv", "step_up", "decay", "out_gate")
    + ("cross_q", "cross_k", "cross_v", "shared_gate", "shared_up")
)
BY_INPUT = frozenset(("out", "down", "step", "cross_out", "shared_down"))
KEYS = ("k", "v")
EXPERTS = ("expert_gate", "expert_up", "expert_down")
VOCAB_STEP = 64
"""vLLM pads the vocabulary to a multiple of this before it cuts it (`DEFAULT_VOCAB_PADDING_SIZE`)."""
MXFP4_STEPS = {"Hopper": (64, 1), "Blackwell": (256, 256)}
OTHER_STEPS = (128, 256)
"""Kernels of experts in mxfp4 pad inner and hidden channels, by the kernel vLLM picks for a chip: OpenAI's Triton ones
on Hopper, TensorRT-LLM's on Blackwell, Marlin elsewhere (`mxfp4_round_up_hidden_size_and_intermediate_size`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """Layers of one pipeline stage, and which ends of the network it holds."""

    layers: tuple[Block, ...]
    """One entry per layer, each of count 1."""
    numbers: range
    """Their places in the whole network."""
    first: bool
    last: bool


def stages(model: Model, pp: int) -> list[StageWeights]:
    layers = [one for block in model.blocks for one in [replace(block, count=1)] * block.count]
    return [
        StageWeights(layers=tuple(layers[s.start : s.end]), numbers=range(s.start, s.end), first=s.first, last=s.last)
        for s in degrees.stages(model, pp)
    ]


def check_cuts(model: Model, strategy: Strategy) -> None:
    """Raise InputError where ranks cannot share the weights so, naming the nearest degree that works."""
    for name in ("tp", "pp", "ep", "cp", "dp"):
        degree = getattr(strategy, name)
        if not isinstance(degree, int) or degree < 1:
            raise InputError(f"{degree} is not a number of chips", where=name, hint="It is 1 or more.")
    why = uncut(model, strategy.tp)
    if why:
        near = min((tp for tp in range(1, 1025) if not uncut(model, tp)), key=lambda tp: (abs(tp - strategy.tp), tp))
        raise InputError(why, where="tp", hint=f"The nearest degree that works is {near}.")
    if strategy.pp > model.layers:
        raise InputError(f"{model.name} has {model.layers} layers for {strategy.pp} stages", where="pp")
    experts = max((block.ffn.experts for block in model.blocks if isinstance(block.ffn, MoeFfn)), default=1)
    if strategy.ep > 1 and (experts % strategy.ep or strategy.ep > strategy.tp * strategy.dp):
        ranks = strategy.tp * strategy.dp
        hint = f"It divides the {experts} experts of {model.name}, and is at most tp times dp ({ranks})."
        raise InputError(f"experts cannot be spread over {strategy.ep} ranks", where="ep", hint=hint)


def uncut(model: Model, tp: int) -> str:
    """What keeps a model's layers from being cut into `tp` equal parts; empty where nothing does."""
    for block in (*model.blocks, *(block for tower in model.towers for block in tower.blocks)):
        for name, count in _counted(block):
            if count % tp:
                return f"{model.name} has {count} {name}, which {tp} does not divide"
        heads = block.mixer.kv_heads if isinstance(block.mixer, AttentionMixer) else 1
        if heads % tp and tp % heads:
            return f"{model.name} has {heads} key-value heads, which neither divide by {tp} nor divide it"
    return ""


def _counted(block: Block) -> Iterator[tuple[str, int]]:
    """Things that every rank gets an equal share of."""
    for half in (block.mixer, block.cross):
        for field, name in (("heads", "attention heads"), ("key_heads", "key heads"), ("value_heads", "value heads")):
            if hasattr(half, field):
                yield name, int(getattr(half, field))
    if isinstance(block.ffn, DenseFfn):
        yield "feed-forward channels", block.ffn.inner
    if isinstance(block.ffn, MoeFfn):
        yield "channels in an expert", block.ffn.inner


def weight_bytes(model: Model, strategy: Strategy, stage: StageWeights | None = None, architecture: str = "") -> float:
    """Weights of one rank of a stage; of all layers where no stage is given. The chip's architecture decides how some
    formats are padded."""
    stage = stage or stages(model, 1)[0]
    # Layers of one block are one object.
    distinct = {id(layer): layer for layer in stage.layers}
    counts = Counter(map(id, stage.layers))
    layers = sum(counts[key] * layer_bytes(layer, model, strategy, architecture) for key, layer in distinct.items())
    return layers + _ends(model, strategy, stage)


def layer_bytes(block: Block, model: Model, strategy: Strategy, architecture: str = "") -> float:
    """One layer on one rank."""
    formats, rest = dict(block.formats), plain(model.working_dtype)
    total = 0.0
    for tensor in block.tensors(model.hidden, model.norm_parameters):
        format = formats.get(tensor.role, rest)
        for cut in cut_tensor(tensor, block, strategy, padding(format, architecture)):
            total += cut.copies * format.bytes(cut.rows, cut.columns)
    return total + _unfolded(block, formats, strategy)


def padding(format: Format, architecture: str) -> tuple[int, int]:
    return MXFP4_STEPS.get(architecture.partition(" ")[0], OTHER_STEPS) if format.name == "mxfp4" else (1, 1)


def cut_tensor(tensor: Tensor, block: Block, strategy: Strategy, steps: tuple[int, int] = (1, 1)) -> Iterator[Tensor]:
    """What one rank holds of a tensor. Inner and hidden channels of experts are padded to multiples of `steps`."""
    tp, role = strategy.tp, tensor.role
    if role in EXPERTS:
        yield _expert(tensor, strategy, steps)
    elif role in KEYS and isinstance(block.mixer, AttentionMixer):
        heads = max(1, block.mixer.kv_heads // tp)
        yield replace(tensor, rows=heads * block.mixer.head_dim)
    elif role in ("in", "conv") and isinstance(block.mixer, Mamba2):
        yield replace(tensor, rows=_of_groups(tensor.rows, block.mixer, tp))
    elif role in BY_OUTPUT:
        yield replace(tensor, rows=-(-tensor.rows // tp))
    elif role in BY_INPUT:
        yield replace(tensor, columns=-(-tensor.columns // tp))
    else:
        yield tensor


def _expert(tensor: Tensor, strategy: Strategy, steps: tuple[int, int]) -> Tensor:
    """Experts spread over ranks with expert parallelism; else every expert cut over all ranks.

    Without expert parallelism the ranks of data parallelism share the experts too (`FusedMoEParallelConfig`).
    """
    ranks = strategy.tp * strategy.dp
    cut = max(1, ranks // strategy.ep) if strategy.ep > 1 else ranks
    copies = -(-tensor.copies // strategy.ep)
    down = tensor.role == "expert_down"
    inner, hidden = (tensor.columns, tensor.rows) if down else (tensor.rows, tensor.columns)
    inner, hidden = _up(-(-inner // cut), steps[0]), _up(hidden, steps[1])
    rows, columns = (hidden, inner) if down else (inner, hidden)
    return replace(tensor, rows=rows, columns=columns, copies=copies)


def _of_groups(rows: int, mixer: Mamba2, tp: int) -> int:
    """Rows of a state space's projection on one rank: groups of state vectors are copied where they do not divide."""
    groups = mixer.groups if mixer.groups % tp == 0 else max(mixer.groups, tp)
    return (rows + 2 * (groups - mixer.groups) * mixer.state) // tp


def _unfolded(block: Block, formats: dict[str, Format], strategy: Strategy) -> float:
    """Latent attention multiplies by both halves of its up-projection in 16 bits: a narrow one is kept twice."""
    if not isinstance(block.mixer, LatentAttention) or "kv_up" not in formats:
        return 0.0
    mixer = block.mixer
    values = mixer.heads * (mixer.nope_dim + mixer.value_dim) * mixer.kv_rank
    return values * width("bf16") / strategy.tp


def _ends(model: Model, strategy: Strategy, stage: StageWeights) -> float:
    """Embedding and head, cut after padding; positions, norms, stems and towers beside them."""
    rest, tp = plain(model.working_dtype), strategy.tp
    across = model.embedding_width or model.hidden
    vocab = _up(model.vocab, VOCAB_STEP) // tp if model.vocab else 0
    total = 0.0
    if stage.first:
        others = model.end_parameters - model.vocab * across - model.norm_parameters * model.final_norm
        total += rest.bytes(vocab, across) + others * width(rest.name) + _towers(model, strategy)
    if stage.last:
        total += model.norm_parameters * model.final_norm * width(rest.name)
    own_head = model.has_head and (not model.tied_embeddings or not stage.first)
    if stage.last and own_head and model.vocab:
        total += (model.head_format or rest).bytes(vocab, across)
    return total


def _towers(model: Model, strategy: Strategy) -> float:
    rest, total = plain(model.working_dtype), 0.0
    for tower in model.towers:
        total += tower.end_parameters * width(rest.name)
        for block in tower.blocks:
            formats = dict(block.formats)
            for tensor in block.tensors(tower.hidden, tower.norm_parameters):
                format = formats.get(tensor.role, rest)
                cuts = cut_tensor(tensor, block, strategy)
                total += block.count * sum(cut.copies * format.bytes(cut.rows, cut.columns) for cut in cuts)
    return total


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
