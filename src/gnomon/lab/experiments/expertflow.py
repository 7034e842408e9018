"""ExpertFlow: experts fetched by guessed routes into a cache, against LRU, the most popular ones and whole layers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gnomon.graph.popularity import ASSUMED_SKEW
from gnomon.lab.base import (
    BF16_BYTES,
    Check,
    Compared,
    Experiment,
    Findings,
    LabClaim,
    LabRow,
    LabRun,
    Predicted,
    Rates,
    Size,
)
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.expert_caches import (
    EVERY,
    GUESSED,
    LRU,
    POPULAR,
    USE,
    CacheCosts,
    CachedExperts,
    Step,
    hits,
    plan,
    slots_of,
    timeline_s,
)
from gnomon.lab.hybrid import definition, visits_of
from gnomon.lab.launches import ELEMENTWISE, GEMM, launch_rates
from gnomon.lab.priced import copy_bytes_s, gemm_s, torch_machine
from gnomon.lab.routes import Routes, drawn
from gnomon.lab.slots import drawn_experts, expert_values
from gnomon.lab.stream import link_rates
from gnomon.lab.ways import close
from gnomon.spec import Chip

RESIDENT = "all on the GPU"
CACHES = (1, 4)
"""Cached experts of a layer, in those of the smallest cache."""
BOUND = 0.12
"""Of the outputs' root mean square, the largest difference: experts in bf16, their sums in fp32."""
OPERATORS = (2.0, 5.0, 5.0)
"""Launches: GEMMs and others of an expert, others of a layer."""
Run = tuple[str, int]
"""A policy, and the experts of a layer that it caches."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.tell("drawing experts into host memory")
    layers, experts, shape = sizes["layers"], sizes["experts"], (sizes["width"], sizes["inner"])
    host = drawn_experts(bench, layers, experts, *shape)
    facts: dict[str, Any] = (
        {"expert_bytes": BF16_BYTES * expert_values(*shape)} | link_rates(bench) | launch_rates(bench)
    )
    routes = _routes(sizes)
    visits = [visits_of(bench, routes, step) for step in range(sizes["steps"])]
    inputs = [_input(bench, sizes, step) for step in range(sizes["steps"])]
    checks: list[Check] = []
    runs: dict[Run, LabRun] = {}
    with bench.torch.no_grad():
        given = zip(inputs, visits, strict=True)
        truth = bench.torch.cat([definition(bench, x, host, there, shape) for x, there in given])
        for policy, each in _runs(sizes):
            what = _name(policy, each)
            bench.tell(what)
            bench.release()
            steps = plan(LRU if policy == RESIDENT else policy, routes, experts, each or 1)
            slots = None if policy == RESIDENT else slots_of(policy, layers, experts, each)
            model = CachedExperts(bench, host, slots, shape)
            call = partial(model.run, inputs, steps, visits)
            checks.append(close(f"{what}: against fp64", call(), truth, BOUND))
            runs[policy, each] = bench.wall(call, sizes["repeats"], warm=0)
            if slots is not None:
                facts[f"hits, {what}"] = hits(steps)
            del model, call
    compared = [_compared(row, runs) for row in rows(sizes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "steps of layers of experts alone, top-1, in bf16, from an empty cache; routes are drawn: popular experts by a "
    "power law, and a share of tokens that go where those before them went; the host waits for every layer, as routers "
    "have it do; wall time from an idle GPU to an idle one",
    "LRU: missed experts of a layer are fetched beside the GEMMs of those that are there; most popular kept: all but "
    "one slot of a layer hold them, the others are shared; all of a layer fetched: a ring of two layers; guessed: "
    "slots are shared by all layers, what is guessed for the next two is fetched ahead, and what is used again latest "
    "leaves first; plans are made before the clock starts",
    "the paper's regrouping of tokens between batches is not here",
)


def _input(bench: Bench, sizes: Mapping[str, int], step: int) -> Any:
    generator = bench.generator(SEED + 170 + step)
    return bench.normal(sizes["tokens"], sizes["width"], dtype=bench.torch.float32, generator=generator)


def _routes(sizes: Mapping[str, int]) -> Routes:
    shape = (sizes["steps"], sizes["layers"], sizes["tokens"], 1)
    return drawn(shape, sizes["experts"], ASSUMED_SKEW, sizes["accuracy"] / 100, SEED, stay=sizes["stay"] / 100)


def _runs(sizes: Mapping[str, int]) -> list[Run]:
    found: list[Run] = [(RESIDENT, 0), (EVERY, 0)]
    return found + [(policy, times * sizes["cache"]) for times in CACHES for policy in (LRU, POPULAR, GUESSED)]


def _name(policy: str, each: int) -> str:
    return f"{policy}, {each} of a layer cached" if each else policy


def _compared(row: LabRow, runs: Mapping[Run, LabRun]) -> Compared:
    policy, each = str(row.shape["plain"]), int(row.shape["each"])
    plain, mine = runs[policy, each if policy in (LRU, POPULAR) else 0], runs[GUESSED, each]
    return row.compared(plain, mine, deferred_s=0.0)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    found = []
    for times in CACHES:
        each = times * sizes["cache"]
        for plain in (LRU, POPULAR, EVERY, RESIDENT):
            what = f"{sizes['steps']} steps, {_name(GUESSED, each)}, against {plain}"
            found.append(LabRow(what=what, shape=dict(sizes) | {"plain": plain, "each": each}))
        what = f"GPU memory, {each} of {sizes['experts']} experts of a layer cached, against {RESIDENT}"
        found.append(LabRow(what=what, shape=dict(sizes) | {"plain": RESIDENT, "each": each}, unit="bytes"))
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted:
    """The same plans on timelines of the link, the host's launches and the chip's GEMMs."""
    names = ("layers", "experts", "width", "inner", "tokens", "steps", "accuracy", "stay")
    sizes, each = {name: int(row.shape[name]) for name in names}, int(row.shape["each"])
    experts, width, inner = (sizes[name] for name in ("experts", "width", "inner"))
    if row.unit == "bytes":
        return Predicted(gain=experts / each, by="experts on the GPU, as many slots as are cached of each layer")
    machine, (gemms, others, layer) = torch_machine(chip), OPERATORS
    costs = CacheCosts(
        link_s=BF16_BYTES * expert_values(width, inner) / copy_bytes_s(chip),
        gpu_s=gemm_s(machine, 1, 2 * inner, width) + gemm_s(machine, 1, width, inner),
        launch_s=gemms / rates[GEMM] + others / rates[ELEMENTWISE],
        layer_s=layer / rates[ELEMENTWISE],
    )
    routes = _routes(sizes)

    def seconds(policy: str) -> float:
        steps = plan(LRU if policy == RESIDENT else policy, routes, experts, each)
        return timeline_s(_used(steps) if policy == RESIDENT else steps, costs)

    by = f"timelines of the same plans: the link of {chip.name}'s host, its GEMMs, launches as measured alone"
    return Predicted.of_seconds(seconds(str(row.shape["plain"])), seconds(GUESSED), by)


def _used(steps: list[Step]) -> list[Step]:
    """Without copies."""
    return [[[action for action in layer if action[0] == USE] for layer in step] for step in steps]


EXPERIMENT = Experiment(
    slug="expertflow",
    title="ExpertFlow: experts fetched ahead by guessed routes, against LRU, the most popular and whole layers",
    checks="outputs of all steps by every policy, in fp64 within what bf16 rounds",
    claim=LabClaim(
        what="up to 93.72% less GPU memory than with all experts on the GPU, and 2 to 10 times the speed of offloading "
        "baselines, on an A40",
        comparable=False,
        why="the paper's times are of whole networks under a library, with a trained predictor and regrouped batches; "
        "this is of layers of experts as large as Switch-128's, with drawn routes and guesses",
    ),
    sizes=(
        Size("layers", "layers of experts", default=12, on_cpu=4, most=200),
        Size("experts", "experts of a layer", default=128, on_cpu=12, least=2, most=1024),
        Size("width", "hidden width", default=768, on_cpu=64, least=8, most=16384),
        Size("inner", "channels inside an expert", default=2048, on_cpu=48, least=8, most=65536),
        Size("tokens", "tokens of a step", default=16, on_cpu=6, most=4096),
        Size("steps", "steps of a pass", default=16, on_cpu=4, most=4096),
        Size("cache", "experts of a layer in the smallest cache; four times as many too", default=4, on_cpu=2, least=2,
             most=64),
        Size("accuracy", "percent of guesses that are right", default=90, on_cpu=60, least=0, most=100),
        Size("stay", "percent of tokens that go where the last ones went", default=50, on_cpu=50, least=0, most=100),
        Size("repeats", "timed passes", default=3, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(GEMM, ELEMENTWISE),
)  # fmt: skip
