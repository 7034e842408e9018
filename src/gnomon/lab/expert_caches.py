"""Caches of experts on the GPU: what each policy fetches, evicts and uses, layer by layer, and who runs that.

A plan is made of routes alone, so that a prediction has the same one as a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.lab.bench import Bench
from gnomon.lab.hybrid import Visit
from gnomon.lab.routes import Routes
from gnomon.lab.slots import Key, SlotPool, through

LRU, POPULAR, GUESSED, EVERY = "LRU of each layer", "most popular kept", "fetched as guessed", "all of a layer fetched"
LOOKAHEAD = 2
"""Layers ahead of the one that runs whose guessed experts are fetched."""
FETCH, EVICT, USE = "fetch", "evict", "use"
Action = tuple[str, Key]
Step = list[list[Action]]
"""Actions of each layer."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What may be evicted in a layer: a policy's own slots, and what is used again latest first."""

    policy: str
    layer: int
    layers: int
    done: frozenset[Key]
    """Used in this step."""

    def among(self, key: Key) -> bool:
        return self.policy != LRU or key[0] == self.layer

    def until(self, key: Key) -> int:
        """Layers until an expert that nobody guesses for this step may be used again, later where it was not used in
        this one; all alike for a policy that goes by the last use."""
        if self.policy != GUESSED:
            return 0
        return (key[0] - self.layer - 1) % self.layers + (0 if key in self.done else self.layers)


@dataclass(slots=True)
class _Cache:
    """What is on the GPU, in order of last use, and the actions of the layer at hand."""

    capacity: int
    kept: frozenset[Key] = frozenset()
    there: dict[Key, None] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)

    def use(self, key: Key) -> None:
        self.actions.append((USE, key))
        del self.there[key]
        self.there[key] = None

    def fetch(self, key: Key, needed: Callable[[Key], bool], rules: _Rules) -> bool:
        """Whether there was room, or something that is not needed made some."""
        mine = [one for one in self.there if rules.among(one)] if rules.policy == LRU else self.there
        if len(mine) >= self.capacity:
            found = [one for one in mine if one not in self.kept and not needed(one)]
            if not found:
                return False
            victim = max(found, key=rules.until)  # the first of equals was used longest ago
            del self.there[victim]
            self.actions.append((EVICT, victim))
        self.there[key] = None
        self.actions.append((FETCH, key))
        return True

    def taken(self) -> list[Action]:
        found, self.actions = self.actions, []
        return found


def slots_of(policy: str, layers: int, experts: int, each: int) -> int:
    """Slots that a policy has: so many for each layer, or two whole layers."""
    return min(2, layers) * experts if policy == EVERY else layers * each


def plan(policy: str, routes: Routes, experts: int, each: int) -> list[Step]:
    """What a policy does in every step, from an empty cache."""
    steps, layers, *_ = routes.chosen.shape
    kept = frozenset((i, one) for i in range(layers) for one in routes.cached(i, each - 1))
    cache = _Cache(
        capacity=each if policy == LRU else slots_of(policy, layers, experts, each),
        kept=kept if policy == POPULAR else frozenset(),
    )
    found = []
    for step in range(steps):
        loads = routes.loads(step)
        guesses = [frozenset(load) for load in routes.loads(step, guessed=True)]
        told: Step = []
        done: frozenset[Key] = frozenset()
        for layer, load in enumerate(loads):
            used = [(layer, one) for one in sorted(load, key=lambda one, load=load: (-load[one], one))]  # type: ignore[misc]
            guessed = {(i, one) for i in range(layer + 1, layers) for one in guesses[i]} if policy == GUESSED else set()
            done |= set(used)
            rules = _Rules(policy, layer, layers, done)
            _layer(cache, rules, used, _coming(policy, layer, guesses, experts), guessed)
            told.append(cache.taken())
        found.append(told)
    return found


def _coming(policy: str, layer: int, guesses: Sequence[frozenset[int]], experts: int) -> list[Key]:
    """Experts to fetch ahead of their layer, in order; a ring fetches those of this layer too that nobody uses."""
    if policy == EVERY:
        return [((layer + ahead) % len(guesses), one) for ahead in (0, 1) for one in range(experts)]
    if policy != GUESSED:
        return []
    last = min(layer + 1 + LOOKAHEAD, len(guesses))
    return [(ahead, one) for ahead in range(layer + 1, last) for one in sorted(guesses[ahead])]


def _layer(cache: _Cache, rules: _Rules, used: Sequence[Key], coming: Sequence[Key], guessed: set[Key]) -> None:
    """Those that are there first; a missed one is fetched as soon as something may leave for it."""
    waiting, wanted = set(used), guessed | set(coming)
    missed = [key for key in used if key not in cache.there]
    order = [key for key in used if key in cache.there] + missed

    def needed(key: Key) -> bool:
        return key in waiting or key in wanted

    def ahead() -> None:
        for key in coming:
            if key not in cache.there and not cache.fetch(key, needed, rules):
                return

    for key in order:
        while missed and cache.fetch(missed[0], needed, rules):
            missed.pop(0)
        if missed and missed[0] == key:  # everything there is still wanted: what is guessed gives way
            cache.fetch(missed.pop(0), waiting.__contains__, rules)
        if not missed:
            ahead()
        cache.use(key)
        waiting.discard(key)
    ahead()


def hits(steps: Iterable[Step]) -> float:
    """Share of visits whose expert was there when its layer began."""
    used = fetched = 0
    for step in steps:
        for layer, actions in enumerate(step):
            used += sum(what == USE for what, _ in actions)
            mine = {key for what, key in actions if what == USE}
            fetched += sum(what == FETCH and key[0] == layer and key in mine for what, key in actions)
    return 1 - fetched / used


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCosts:
    """Seconds of a copy, of an expert on the GPU, and of the host's launches for one and for what else a layer has."""

    link_s: float
    gpu_s: float
    launch_s: float
    layer_s: float


def timeline_s(steps: Iterable[Step], costs: CacheCosts) -> float:
    """Seconds of steps: copies in order on the link, experts once they are there, the host waits for each layer."""
    now = link = 0.0
    arrived: dict[Key, float] = {}
    for step in steps:
        for actions in step:
            host = gpu = now + costs.layer_s
            for what, key in actions:
                if what == FETCH:
                    link = max(link, host) + costs.link_s
                    arrived[key] = link
                elif what == USE:
                    host += costs.launch_s
                    gpu = max(gpu, host, arrived.get(key, 0.0)) + costs.gpu_s
            now = max(host, gpu)
    return max(now, link)


class CachedExperts:
    """Layers of experts that run by a plan; without one all experts are on the GPU."""

    def __init__(self, bench: Bench, host: list[list[Any]], slots: int | None, shape: tuple[int, int]) -> None:
        self.bench, self.shape, self._host, self._slots = bench, shape, host, slots
        self.pool = SlotPool(bench, host, slots) if slots is not None else None
        self._near = [] if self.pool else [[flat.to(bench.device, copy=True) for flat in some] for some in host]

    def run(self, inputs: Sequence[Any], steps: Sequence[Step], visits: Sequence[Sequence[Mapping[int, Visit]]]) -> Any:
        """Outputs of all steps, from an empty cache; inputs in fp32, experts take and give bf16."""
        torch = self.bench.torch
        if self.pool:
            self.pool.empty()
        found = []
        for x, step, there in zip(inputs, steps, visits, strict=True):
            for actions, visited in zip(step, there, strict=True):
                self.bench.idle()  # who goes where is known once the layer before is done
                normed = torch.nn.functional.layer_norm(x, x.shape[-1:]).to(torch.bfloat16)
                out = torch.zeros_like(normed, dtype=torch.float32)
                for key in self._coming(actions):
                    visit = visited[key[1]]
                    mine = through(torch, normed[visit.rows], self._weights(key), *self.shape)
                    out.index_add_(0, visit.rows, mine.float() * visit.share)
                    if self.pool:
                        self.pool.used(key)
                x = x + out
            found.append(x)
        return torch.cat(found)

    def _coming(self, actions: Sequence[Action]) -> Iterable[Key]:
        """Experts to use, in order; copies are issued and slots freed between them."""
        for what, key in actions:
            if what == USE:
                yield key
            elif self.pool and what == FETCH:
                self.pool.fetch(key)
            elif self.pool:
                self.pool.evict(key)

    def _weights(self, key: Key) -> Any:
        return self.pool.weights(key) if self.pool else self._near[key[0]][key[1]]
