"""How vLLM lays out the caches and states of layers: pages, groups of layers, blocks.

All layers share one pool of blocks. Layers of one kind form groups of equal size, a block holds one page of each layer
of a group, and every group takes blocks of its own for a sequence. So pages are made equal first: those of narrow
layers hold more tokens, and a recurrent layer's state is padded to the page of an attention layer, whose page is made
to hold enough tokens for it. (`vllm/v1/core/kv_cache_utils.py` and `Platform._align_hybrid_block_size` of 0.24.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gnomon.engines.vllm.states import state_dtype
from gnomon.graph.dtypes import width
from gnomon.spec import (
    AttentionMixer,
    Block,
    CrossAttention,
    Embedding,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    Model,
    ShortConvolution,
)

SPLIT_EVENLY = 1.5
"""Where the largest kind has less than this many times the layers of the smallest, groups are as large as it."""
INDEX_SCALE_BYTES = 4
"""Sparse latent attention keeps its index keys in fp8, with an fp32 scale for every 128 of them."""
SPARSE_FP8_BYTES = 656
"""A token of its cache in fp8: 512 narrow values with four scales, and 64 turning ones in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeps:
    """What one layer keeps: so many bytes per token, or a state of fixed size."""

    kind: Literal["full", "window", "chunk", "state", "source"]
    token_bytes: int = 0
    state_bytes: int = 0
    window: int = 0
    """Tokens of its attention window; of `source`, tokens that a tower makes."""
    block_tokens: int = 16
    padded: int = 0
    """Bytes of a page where it is larger than what it holds."""

    @property
    def page_bytes(self) -> int:
        return max(self.padded, self.state_bytes + self.token_bytes * self.block_tokens)

    def blocks(self, tokens: int, step_tokens: int) -> int:
        """Blocks that a sequence of so many tokens may hold at once, in steps of up to `step_tokens`."""
        match self.kind:
            case "full":
                return -(-tokens // self.block_tokens)
            case "window":
                return -(-min(self.window - 1 + step_tokens, tokens) // self.block_tokens) + 1
            case "chunk":
                return -(-min(self.window + step_tokens, tokens) // self.block_tokens)
            case "source":
                return -(-self.window // self.block_tokens)
            case _:
                return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that share a table of blocks, by their numbers."""

    keeps: Keeps
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """The groups of a model. `uniform` ones are all of one kind but of several widths, each layer with its own page."""

    groups: tuple[CacheGroup, ...]
    pages: Mapping[int, int]
    """Bytes of a page by layer, where there is one group of several widths; else empty."""

    def block_bytes(self, layers: Iterable[int] | None = None) -> int:
        """Bytes of one block on a rank that holds these layers, or all."""
        if self.pages:
            chosen = self.pages if layers is None else set(layers) & set(self.pages)
            return sum(self.pages[layer] for layer in chosen)
        held = None if layers is None else set(layers)
        sizes = [len(group.layers if held is None else held & set(group.layers)) for group in self.groups]
        return max(sizes, default=0) * (self.groups[0].keeps.page_bytes if self.groups else 0)

    def sequence_blocks(self, tokens: int, step_tokens: int, shared: int = 1) -> int:
        """Blocks of one sequence over all groups; `shared` ranks of context parallelism split its tokens."""
        part = -(-tokens // shared)
        return sum(group.keeps.blocks(part, step_tokens) for group in self.groups)

    @property
    def block_tokens(self) -> int:
        """Tokens of the group that grows with the sequence; 1 where none does."""
        growing = [group.keeps.block_tokens for group in self.groups if group.keeps.kind != "state"]
        return min(growing, default=1)


def layout(model: Model, kv_dtype: str, tp: int, block_tokens: int) -> CacheLayout:
    """The layout of a model's cache on each rank of a tensor-parallel group."""
    kept: dict[tuple[int, int], Keeps] = {}
    number = 0
    for block in model.blocks:
        parts = [replace(keeps, block_tokens=block_tokens) for keeps in _of_layer(block, model, kv_dtype, tp)]
        for layer in range(number, number + block.count):
            kept |= {(layer, part): keeps for part, keeps in enumerate(parts)}
        number += block.count
    if not kept:
        return CacheLayout(groups=(), pages={})
    return _grouped(_aligned(kept, block_tokens))


def _of_layer(block: Block, model: Model, kv_dtype: str, tp: int) -> Iterable[Keeps]:
    value = width(kv_dtype)
    mixer = block.mixer
    if isinstance(mixer, LatentAttention):
        sparse = mixer.indexer is not None and kv_dtype == "fp8"
        latent = SPARSE_FP8_BYTES if sparse else int((mixer.kv_rank + mixer.rope_dim) * value)
        yield Keeps(kind="full", token_bytes=latent)
        if mixer.indexer is not None:
            scales = -(-mixer.indexer.head_dim // 128) * INDEX_SCALE_BYTES
            yield Keeps(kind="full", token_bytes=mixer.indexer.head_dim + scales)
    elif isinstance(mixer, AttentionMixer) and mixer.cache_values(tp):
        kind: Literal["full", "window", "chunk"] = "full"
        if mixer.window is not None:
            kind = "chunk" if mixer.chunked else "window"
        yield Keeps(kind=kind, token_bytes=int(mixer.cache_values(tp) * value), window=mixer.window or 0)
    elif isinstance(mixer, (Mamba, Mamba2, GatedDelta, LightningAttention, ShortConvolution)):
        yield Keeps(kind="state", state_bytes=state_bytes(mixer, model, tp))
    for half in (mixer, block.cross):
        if isinstance(half, CrossAttention):
            yield Keeps(kind="source", token_bytes=int(half.source_values(tp) * value), window=source_tokens(model))


def state_bytes(
    mixer: Mamba | Mamba2 | GatedDelta | LightningAttention | ShortConvolution, model: Model, tp: int
) -> int:
    """A sequence's state in one layer, as `MambaStateShapeCalculator` shapes it: a convolution keeps one token less
    than its kernel, and groups of state vectors are copied where they do not divide."""
    value = int(width(model.working_dtype if model.working_dtype in ("bf16", "fp16") else "bf16"))
    deep = int(width(state_dtype(model)))
    match mixer:
        case Mamba():
            return mixer.inner // tp * ((mixer.conv - 1) * value + mixer.state * deep)
        case Mamba2():
            groups = mixer.groups if mixer.groups % tp == 0 else max(mixer.groups, tp)
            channels = (mixer.inner + 2 * groups * mixer.state) // tp
            return channels * (mixer.conv - 1) * value + mixer.inner // tp * mixer.state * deep
        case GatedDelta():
            state = mixer.value_heads // tp * mixer.value_dim * mixer.key_dim
            return mixer.conv_width // tp * (mixer.conv - 1) * value + state * deep
        case LightningAttention():
            return mixer.heads // tp * mixer.head_dim**2 * value
        case _:
            return mixer.width // tp * (mixer.conv - 1) * value


def sequence_state_bytes(model: Model) -> int:
    """A sequence's states in all layers, before pages are made of them."""
    kept = [(block.count, keeps) for block in model.blocks for keeps in _of_layer(block, model, "bf16", 1)]
    return sum(count * keeps.state_bytes for count, keeps in kept)


def source_tokens(model: Model) -> int:
    """The most tokens a tower makes for layers that attend to them: its positions."""
    parts = [part for tower in model.towers for part in tower.stem]
    return max((part.rows for part in parts if isinstance(part, Embedding)), default=0)


def _aligned(kept: dict[tuple[int, int], Keeps], block_tokens: int) -> dict[tuple[int, int], Keeps]:
    """Attention pages long enough for a state, and states padded to such a page."""
    state = max((keeps.state_bytes for keeps in kept.values()), default=0)
    token = max((keeps.token_bytes for keeps in kept.values()), default=0)
    if not state or not token:
        return kept
    tokens = max(block_tokens, block_tokens * -(-state // (block_tokens * token)))
    page = tokens * token

    def fitted(keeps: Keeps) -> Keeps:
        return replace(keeps, padded=page) if keeps.kind == "state" else replace(keeps, block_tokens=tokens)

    return {key: fitted(keeps) for key, keeps in kept.items()}


def _grouped(kept: dict[tuple[int, int], Keeps]) -> CacheLayout:
    kinds = list(dict.fromkeys(kept.values()))
    layers = tuple(number for number, _ in kept)
    if len(kinds) == 1:
        return CacheLayout(groups=(CacheGroup(keeps=kinds[0], layers=layers),), pages={})
    if len({(keeps.kind, keeps.window) for keeps in kinds}) == 1:
        pages: dict[int, int] = {}
        for (number, _), keeps in kept.items():
            pages[number] = pages.get(number, 0) + keeps.page_bytes
        return CacheLayout(groups=(CacheGroup(keeps=kinds[0], layers=layers),), pages=pages)
    return CacheLayout(groups=tuple(_even(_equal_pages(kept))), pages={})


def _equal_pages(kept: dict[tuple[int, int], Keeps]) -> dict[tuple[int, int], Keeps]:
    """Pages as large as the largest: with more tokens where they divide it, else padded."""
    page = max(keeps.page_bytes for keeps in kept.values())

    def widened(keeps: Keeps) -> Keeps:
        if keeps.page_bytes == page:
            return keeps
        if keeps.kind != "state" and page % keeps.page_bytes == 0:
            return replace(keeps, block_tokens=keeps.block_tokens * (page // keeps.page_bytes))
        return replace(keeps, padded=page)

    return {key: widened(keeps) for key, keeps in kept.items()}


def _even(kept: dict[tuple[int, int], Keeps]) -> Iterable[CacheGroup]:
    """Layers of each kind distributed over as many groups as keep all groups about as large as the smallest kind."""
    kinds: dict[Keeps, list[int]] = {}
    for (number, _), keeps in kept.items():
        kinds.setdefault(keeps, []).append(number)
    counts = [len(layers) for layers in kinds.values()]
    size = max(counts) if max(counts) < min(counts) * SPLIT_EVENLY else min(counts)
    for keeps, layers in kinds.items():
        groups = -(-len(layers) // size)
        for i in range(groups):
            yield CacheGroup(keeps=keeps, layers=tuple(layers[i::groups]))
