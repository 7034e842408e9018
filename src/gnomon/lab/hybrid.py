"""Experts of a layer shared out between the GPU, the link and the CPU: the timelines that decide it, and those who
work by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.lab.bench import Bench
from gnomon.lab.routes import Loads, Routes, rows_of
from gnomon.lab.slots import SlotPool, through

FETCHED, HOSTED = "fetched on demand", "computed by the CPU"
SHARED, AHEAD = "shared out", "shared out, with prefetch"
WAYS = (FETCHED, HOSTED, SHARED, AHEAD)
SLOTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds that timelines are made of."""

    link_s: float
    """Of an expert's copy."""
    cpu_bytes_s: float
    cpu_flops_s: float
    nbytes: float
    row_flops: float
    """Of one row through an expert."""
    gpu_s: float = 0.0
    """Of an expert on the GPU."""
    launch_s: float = 0.0
    """The host's, of an expert on the GPU."""
    layer_s: float = 0.0
    """The host's, of what else a layer has."""

    def cpu_s(self, rows: int) -> float:
        """Of an expert on the CPU: its weights read, or its arithmetic."""
        return max(self.nbytes / self.cpu_bytes_s, rows * self.row_flops / self.cpu_flops_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """Where a layer's experts are computed, and what is fetched for the next one meanwhile."""

    near: tuple[int, ...]
    early: tuple[int, ...]
    """Fetched during the layer before."""
    fetched: tuple[int, ...]
    hosted: tuple[int, ...]
    ahead: tuple[int, ...]
    seconds: float
    left_s: float
    """Of what is fetched for the next layer, on the link when this one is done."""


def step_plan(
    way: str, routes: Routes, step: int, cached: Sequence[Sequence[int]], costs: Costs
) -> tuple[LayerPlan, ...]:
    """All layers of a step. Of the next layer a plan knows only the guess."""
    loads, guesses = routes.loads(step), routes.loads(step, guessed=True)
    early: tuple[int, ...] = ()
    busy, found = 0.0, list[LayerPlan]()
    for layer, load in enumerate(loads):
        coming: list[int] = []
        if way == AHEAD and layer + 1 < len(loads):
            guess = guesses[layer + 1]
            coming = sorted((one for one in guess if one not in cached[layer + 1]), key=lambda one: (-guess[one], one))
        found.append(_layer_plan(way, load, (cached[layer], early, coming), busy, costs))
        early, busy = found[-1].ahead, found[-1].left_s
    return tuple(found)


def _layer_plan(
    way: str, load: Loads, known: tuple[Sequence[int], Sequence[int], Sequence[int]], busy: float, costs: Costs
) -> LayerPlan:
    """Those with most rows are fetched and those with fewest are computed by the CPU, each by who is done with it
    first; where the link is done before the others, it begins with the next layer's. It is busy at first with those of
    this one."""
    cached, early, coming = known
    near = tuple(one for one in load if one in cached)
    there = tuple(one for one in early if one in load)
    missed = sorted((one for one in load if one not in cached and one not in early), key=lambda one: (-load[one], one))
    link, host = busy, costs.layer_s + costs.launch_s * (len(near) + len(there))
    fetched: list[int] = []
    hosted: list[int] = []
    while missed:
        by_link, by_host = link + costs.link_s, host + costs.cpu_s(load[missed[-1]])
        if way == FETCHED or (way != HOSTED and by_link <= by_host):
            fetched.append(missed.pop(0))
            link, host = by_link, host + costs.launch_s
        else:
            hosted.append(missed.pop())
            host = by_host
    gpu = (len(near) + len(there)) * costs.gpu_s
    seconds = max(host, link + costs.gpu_s if fetched or there else gpu, gpu + len(fetched) * costs.gpu_s)
    ahead: list[int] = []
    for one in coming[: SLOTS // 2]:
        if link >= seconds:
            break
        ahead.append(one)
        link += costs.link_s
    return LayerPlan(
        near=near, early=there, fetched=tuple(fetched), hosted=tuple(hosted), ahead=tuple(ahead), seconds=seconds,
        left_s=max(0.0, link - seconds),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Visit:
    """Rows of an expert and their weights, on the GPU and on the CPU."""

    rows: Any
    share: Any
    far_rows: Any
    far_share: Any


class HybridExperts:
    """Layers of experts, some on the GPU; `run` computes a step by its plan."""

    def __init__(self, bench: Bench, host: list[list[Any]], cached: Sequence[Sequence[int]], shape: tuple[int, int]):
        self.bench, self.host, self.shape = bench, host, shape
        there = [(layer, one) for layer, some in enumerate(cached) for one in some]
        self.near = {(layer, one): host[layer][one].to(bench.device, copy=True) for layer, one in there}
        self.pool = SlotPool(bench, host, SLOTS)
        self._pinned: dict[int, tuple[Any, Any]] = {}

    def run(self, x: Any, plan: Sequence[LayerPlan], visits: Sequence[Mapping[int, Visit]]) -> Any:
        """x [tokens, width] in fp32; experts take and give bf16."""
        for layer, (one, there) in enumerate(zip(plan, visits, strict=True)):
            wasted = [key for key in (plan[layer - 1].ahead if layer else ()) if key not in one.early]
            for expert in wasted:
                self.pool.release((layer, expert))
            x = x + self._layer(layer, x, one, there)
        return x

    def _layer(self, layer: int, x: Any, plan: LayerPlan, visits: Mapping[int, Visit]) -> Any:
        torch, bench = self.bench.torch, self.bench
        normed = torch.nn.functional.layer_norm(x, x.shape[-1:]).to(torch.bfloat16)
        far, back = self._buffers(normed)
        if plan.hosted:
            far.copy_(normed, non_blocking=True)
        sent = bench.recorded()
        out = torch.zeros_like(normed, dtype=torch.float32)
        for expert, flat in self._on_gpu(layer, plan):
            visit = visits[expert]
            found = through(torch, normed[visit.rows], flat, *self.shape)
            out.index_add_(0, visit.rows, found.float() * visit.share)
        for expert in plan.ahead:
            self.pool.fetch((layer + 1, expert))
        if plan.hosted:
            sent.synchronize()
            back.zero_()
            for expert in plan.hosted:
                visit = visits[expert]
                found = through(torch, far[visit.far_rows], self.host[layer][expert], *self.shape)
                back.index_add_(0, visit.far_rows, found.float() * visit.far_share)
            out += back.to(out.device, non_blocking=True)
        return out

    def _on_gpu(self, layer: int, plan: LayerPlan) -> Iterator[tuple[int, Any]]:
        """Experts of a layer and their weights, those to be fetched last."""
        waiting = [(layer, expert) for expert in plan.fetched]
        started = 0
        keys = [(layer, expert) for expert in (*plan.early, *plan.fetched)]
        for expert in plan.near:
            started = self._start(waiting, started)
            yield expert, self.near[layer, expert]
        for key in keys:
            started = self._start(waiting, started)
            yield key[1], self.pool.weights(key)
            self.pool.release(key)

    def _start(self, waiting: Sequence[tuple[int, int]], started: int) -> int:
        """As many copies as there are free slots."""
        while started < len(waiting) and self.pool.free:
            self.pool.fetch(waiting[started])
            started += 1
        return started

    def _buffers(self, x: Any) -> tuple[Any, Any]:
        """Pinned memory for a layer's inputs, and for what the CPU adds."""
        if len(x) not in self._pinned:
            torch = self.bench.torch
            far, back = (self.bench.pinned(x.numel(), dtype) for dtype in (x.dtype, torch.float32))
            self._pinned[len(x)] = far.view(x.shape), back.view(x.shape)
        return self._pinned[len(x)]


def visits_of(bench: Bench, routes: Routes, step: int) -> list[dict[int, Visit]]:
    """Rows of each expert a layer; a token's experts have equal shares."""
    torch, found = bench.torch, []
    for chosen in routes.chosen[step]:
        layer = {}
        for expert in sorted({int(one) for one in chosen.flatten()}):
            rows = torch.tensor(rows_of(chosen, expert))
            share = torch.full((len(rows), 1), 1.0 / chosen.shape[-1])
            layer[expert] = Visit(rows.to(bench.device), share.to(bench.device), rows, share)
        found.append(layer)
    return found


def definition(
    bench: Bench, x: Any, host: list[list[Any]], visits: Sequence[Mapping[int, Visit]], shape: tuple[int, int]
) -> Any:
    """A step in fp64."""
    torch, x = bench.torch, x.double()
    for experts, layer in zip(host, visits, strict=True):
        normed, out = torch.nn.functional.layer_norm(x, x.shape[-1:]), torch.zeros_like(x)
        for expert, visit in layer.items():
            flat = experts[expert].to(bench.device).double()
            out.index_add_(0, visit.rows, through(torch, normed[visit.rows], flat, *shape) * visit.share.double())
        x = x + out
    return x
