"""Figures of derivations with a part of Gnomon's own model changed: `python -m tests.papers.perturbed WAY [SLUG…]`.

What a row follows from shows when the model is bent: a prediction moves with one of its parts, arithmetic on a paper's
own numbers with none. Shapes, formats, FLOPs and bytes of parameters are no part of that model: they are counted, not
modelled. Each way runs in a process of its own, since answers are kept in many places.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).parents[2]
Rows = dict[str, dict[str, float]]


def times(slower_by: float = 1.0) -> None:
    """Every kind of operator takes longer by another factor."""
    from gnomon.cost.machine import Machine

    plain = Machine.seconds

    def slower(self: Machine, kind: str, dtype: str, shape: Any) -> Any:
        return plain(self, kind, dtype, shape) * slower_by * (1.1 + crc32(f"{kind} {dtype}".encode()) % 8 / 10)

    Machine.seconds = slower  # type: ignore[method-assign]


def latency(more_s: float = 20e-6) -> None:
    """Every operator takes longer by as much, whatever its size."""
    from gnomon.cost.machine import Machine

    plain = Machine.seconds

    def later(self: Machine, kind: str, dtype: str, shape: Any) -> Any:
        return plain(self, kind, dtype, shape) + more_s

    Machine.seconds = later  # type: ignore[method-assign]


def _memory(share: float, more: float) -> None:
    """Activations and what engines reserve are `share` of what they were, and `more` of a chip is not to be had."""
    from gnomon.cost import tiers
    from gnomon.engines.vllm import memory, reserve
    from gnomon.planning.steps import traced
    from gnomon.planning.training import search as train_search
    from gnomon.planning.training import step as training

    held, kept = training.memory_of, reserve.activation_bytes
    usable, visible = training.usable_bytes, reserve.visible_bytes

    def scaled(*words: Any) -> Any:
        found = held(*words)
        return replace(found, activations=found.activations * share, working=found.working * share)

    def less(pool: Any, traits: Any) -> float:
        return usable(pool, traits) - more * pool.chip.memory_bytes

    training.memory_of = train_search.memory_of = scaled
    training.usable_bytes = train_search.usable_bytes = less
    reserve.activation_bytes = lambda *words: share * kept(*words)
    reserve.visible_bytes = lambda chip: visible(chip) - more * chip.memory_bytes
    assert memory.reserve is reserve
    live = traced.peak
    traced.peak = lambda step: replace(live(step), parts=_scaled(live(step).parts, share))  # type: ignore[attr-defined]
    tiers.ROOM = 0.9 - more  # type: ignore[attr-defined]


def _scaled(parts: Mapping[str, float], share: float) -> dict[str, float]:
    """Bytes of a traced step by role, with activations a share of what they were."""
    return {role: size * (share if role == "activations" else 1.0) for role, size in parts.items()}


def schedule() -> None:
    """What a pipeline waits is longer by a fifth, and so is what nodes of a wide one do."""
    from gnomon.sim.training.journeys import Nodes
    from gnomon.sim.training.timeline import Timeline

    done = Nodes.seconds
    Nodes.seconds = lambda self, node, kind: 1.2 * done(self, node, kind)  # type: ignore[method-assign]

    plain = Timeline.__dict__["pipeline_s"].func

    def longer(self: Timeline) -> float:
        found: float = plain(self)
        return found + 0.2 * (found - float(self.busy_s.mean()))

    Timeline.pipeline_s = property(longer)  # type: ignore[assignment, method-assign]


def host() -> None:
    """Processors and copies share a host's memory, which moves a quarter of what it did."""
    from gnomon.techniques import hosts, offload_optimizer

    hosts.SUSTAINED /= 4
    offload_optimizer.BANDWIDTH_CONTENTION = 2.0


def traffic() -> None:
    """What is sent from one to the next is more by a fifth."""
    from gnomon.graph.ops import Collective

    plain = Collective.bytes

    def more(self: Collective, batch: Any) -> Any:
        return plain(self, batch) * (1.2 if self.op == "send_recv" else 1.0)

    Collective.bytes = more  # type: ignore[method-assign]


def formulas() -> None:
    """Kernels' formulas grow with a higher power of their size, before anything is fitted to them."""
    from gnomon.cost import kernels

    def bent(plain: Callable[..., Any]) -> Callable[..., Any]:
        def longer(*words: Any) -> Any:
            found = plain(*words)
            return found * (found / 1e-4) ** 0.1

        return longer

    for kind, model in list(kernels.MODELS.items()):
        kernels.MODELS[kind] = replace(model, seconds=bent(model.seconds))


def together() -> None:
    """All of it."""
    for way in (times, schedule, host, traffic):
        way()
    _memory(1.5, 0.3)


WAYS: dict[str, Callable[[], None]] = {
    "plain": lambda: None,
    "together": together,
    "half the memory": lambda: _memory(1.0, 0.52),
    "more memory": lambda: _memory(0.1, -0.02),
    "a far slower chip": lambda: times(100.0),
    "other formulas": formulas,
    "a far faster chip": lambda: times(0.1),
    "slow starts": latency,
}
"""The first shows nearly all; the others are for whole numbers, which stay as they are until much changes, and the last
for what formulas say between sizes that they are fitted to."""


def figures(way: str, slugs: Iterable[str]) -> Rows:
    """Ours of every figure, computed in a process of its own."""
    command = [sys.executable, "-m", "tests.papers.perturbed", way, *slugs]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: Rows = json.loads(done.stdout)
    return found


def _computed(slugs: Iterable[str]) -> Rows:
    from importlib import import_module

    modules = {slug: import_module(f"gnomon.papers.index.{slug.replace('-', '_')}.figures") for slug in slugs}
    return {slug: {what: float(ours) for what, ours in module.figures()} for slug, module in modules.items()}


if __name__ == "__main__":
    WAYS[sys.argv[1]]()
    print(json.dumps(_computed(sys.argv[2:])))
