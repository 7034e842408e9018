"""What a backward pass recomputes to save memory: which parts of a layer, and of which layers.

A choice is written as one word: `none`, `selective` (what an engine means by it), `full`, `op` (by operator, as
TorchTitan), `modules=core_attn+mlp` (Megatron-LM's modules), `full:block=4` (the first 4 layers of each stage),
`full:uniform=2` (2 layers at a time, of which the input of the first stays) or `every=2` (every second layer).
Another module is an entry of `MODULES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

from gnomon.errors import InputError, unknown_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NONE, SELECTIVE, FULL, OP = WAYS = ("none", "selective", "full", "op")
INSIDE = "inside"
"""Of a layer whose input is recomputed with it, from the input of a layer before it."""
RECOMPUTE = WAYS[:3]
"""Those that every engine's words have."""
BLOCK, UNIFORM, EVERY = LAYERS = ("block", "uniform", "every")
"""The first N layers of a stage; all, N at a time; every N-th of a rank."""
MOST_LAYERS = 10_000
WORDS = (*WAYS, "modules=NAME+NAME", "full:block=N", "full:uniform=N", "every=N")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Operators of a layer that are recomputed together, by their names in a tape."""

    operators: Mapping[str, str]
    """Patterns over names, each with the operator that a layer has to have for it; empty for any layer."""
    beside: tuple[str, ...] = ()
    """Patterns of what is not part of it."""
    lacks: str = ""
    """The operator that a layer must not have."""
    discards: bool = False
    """What it makes goes as well, and is there again before what has read it runs backward."""
    needs: str
    """What a model lacks that has none of its operators."""

    def of(self, names: Sequence[str]) -> frozenset[str]:
        """Its operators among those of a layer."""
        if self.lacks and self.lacks in names:
            return frozenset()
        wanted = [pattern for pattern, other in self.operators.items() if not other or other in names]
        return frozenset(name for name in names if _any(name, wanted) and not _any(name, self.beside))


def _any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_CORE = ("core", "scores", "softmax", "drop", "context")
_LATENT = ("q", "q.*", "q_norm", "q_up", "kv.*", "kv_norm", "kv_up", "rope")
_AFTER = ("ffn.residual", "ffn.post_norm", "ffn.gate.modulated")
MODULES: Mapping[str, Module] = {
    "core_attn": Module(operators={f"*.{name}": "" for name in _CORE}, needs="attention"),
    "mlp": Module(operators={"ffn.*": ""}, beside=_AFTER, lacks="ffn.router", needs="layers with a dense feed-forward"),
    "moe": Module(operators={"ffn.*": "ffn.router"}, beside=(*_AFTER, "ffn.norm"), needs="experts"),
    "moe_act": Module(
        operators={"ffn.experts.activation": "", "ffn.experts.product": ""}, discards=True, needs="experts"
    ),
    "layernorm": Module(
        operators={"attention.norm": "attention.kv_down", "ffn.norm": "ffn.router"}, discards=True,
        needs="norms of their own, before latent attention or experts: others are part of the GEMM behind them",
    ),
    "mla_up_proj": Module(
        operators={f"attention.{name}": "attention.kv_up" for name in _LATENT}, discards=True, needs="latent attention"
    ),
    "shared_experts": Module(operators={"ffn.shared*": "ffn.router"}, needs="shared experts"),
}  # fmt: skip
"""Megatron-LM's, by its own names (docs of its `TransformerConfig`): core attention,
feed-forwards and experts by checkpoints, which keep what they give, the others without their output. Under Transformer
Engine the norm before a matrix is part of its kernel, and of a checkpointed feed-forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """One choice. `modules` instead of a way, `layers` and `count` where it is not the same in all layers."""

    way: str = NONE
    modules: tuple[str, ...] = ()
    layers: str = ""
    count: int = 0

    @property
    def text(self) -> str:
        if self.layers:
            return f"{'' if self.layers == EVERY else f'{FULL}:'}{self.layers}={self.count}"
        return f"modules={'+'.join(self.modules)}" if self.modules else self.way

    @property
    def each(self) -> str:
        """What a layer recomputes that it is meant for."""
        return FULL if self.layers else self.text

    @property
    def like(self) -> str:
        """The one of `RECOMPUTE` that it is like: whether layers run again in full, in part or not at all."""
        return FULL if self.each == FULL else SELECTIVE if self.modules or self.way == OP else self.way

    @property
    def code(self) -> int:
        """A number of its own, by which columns of plans have it. Those of `WAYS` are their places."""
        if self.layers:
            return _LAYERED * (1 + LAYERS.index(self.layers) + len(LAYERS) * (self.count - 1))
        names = tuple(MODULES)
        return len(WAYS) + sum(1 << names.index(one) for one in self.modules) if self.modules else WAYS.index(self.way)


_LAYERED = 1 << 16
"""Codes from here on are of choices that are not the same in all layers."""


def parse(text: str, where: str = "recompute") -> Recompute:
    """A choice from its word, in its plainest form: one layer at a time is `full`."""
    named, _, given = text.partition("=")
    if named == "modules":
        return _modules(given, where)
    layers = named.removeprefix(f"{FULL}:")
    if given and (layers == EVERY or (layers != named and layers in LAYERS)):
        count = _count(given, text, where)
        plain = layers in (UNIFORM, EVERY) and count == 1
        return Recompute(way=FULL) if plain else Recompute(way=FULL, layers=layers, count=count)
    if text not in WAYS:
        raise unknown_name("recomputation", text, WORDS, where=where)
    return Recompute(way=text)


def _modules(given: str, where: str) -> Recompute:
    names = given.split("+") if given else []
    for name in names:
        if name not in MODULES:
            raise unknown_name("module to recompute", name, tuple(MODULES), where=where)
    return Recompute(modules=tuple(name for name in MODULES if name in names))


def _count(given: str, text: str, where: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= MOST_LAYERS:
        hint = f"Write it so: {text.partition('=')[0]}=2."
        raise InputError(
            f"'{given}' of '{text}' is not a number of layers from 1 to {MOST_LAYERS:,}", where=where, hint=hint
        )
    return int(given)


@lru_cache(maxsize=1024)
def choice_of(code: int) -> Recompute:
    """The choice that a code stands for."""
    if code >= _LAYERED:
        count, place = divmod(code // _LAYERED - 1, len(LAYERS))
        return Recompute(way=FULL, layers=LAYERS[place], count=count + 1)
    if code < len(WAYS):
        return Recompute(way=WAYS[code])
    bits = code - len(WAYS)
    return Recompute(modules=tuple(name for place, name in enumerate(MODULES) if bits >> place & 1))


def code_of(text: str) -> int:
    return parse(text).code


def name_of(code: int) -> str:
    return choice_of(code).text


def layered(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of a column whose choices differ from layer to layer; else 0."""
    return codes * (codes >= _LAYERED)
