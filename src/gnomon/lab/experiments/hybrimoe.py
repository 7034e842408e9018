"""HybriMoE: experts that are not on the GPU shared out between the CPU and the link, against either alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from gnomon.lab.hybrid import (
    AHEAD,
    FETCHED,
    HOSTED,
    SHARED,
    WAYS,
    Costs,
    HybridExperts,
    LayerPlan,
    definition,
    step_plan,
    visits_of,
)
from gnomon.lab.launches import ELEMENTWISE, GEMM, launch_rates
from gnomon.lab.priced import copy_bytes_s, gemm_s, torch_machine
from gnomon.lab.routes import Routes, drawn
from gnomon.lab.slots import drawn_experts, expert_values, through
from gnomon.lab.stream import link_rates
from gnomon.lab.ways import close
from gnomon.spec import Chip

DECODE, PROMPT = "decode", "prompt"
SHARE = 8
"""Steps of the decode over those of prompts."""
MANY = 64
"""Rows for the CPU's arithmetic rate."""
PROBED = 8
"""Experts that a probe of the CPU takes turns with, more than its caches hold."""
WAY_S, LEAST = 5.0, 2
"""Seconds for the passes of one way, and passes at least: a CPU may be slow."""
BOUND = 0.03
"""Of the outputs' root mean square, the largest difference: experts in bf16, their sums in fp32."""
CPU_BYTES, CPU_FLOPS = "cpu_expert_bytes_s", "cpu_expert_flops_s"
OPERATORS = (2.0, 5.0, 8.0)
"""Launches: GEMMs and others of an expert on the GPU, others of a layer."""
CASES = ((HOSTED, AHEAD), (FETCHED, AHEAD), (HOSTED, SHARED), (SHARED, AHEAD))


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.tell("drawing experts into host memory")
    torch, width, inner = bench.torch, sizes["width"], sizes["inner"]
    host = drawn_experts(bench, sizes["layers"], sizes["experts"], width, inner)
    facts: dict[str, Any] = {
        "expert_bytes": BF16_BYTES * expert_values(width, inner),
        "cpu_threads": torch.get_num_threads(),
    }
    facts |= link_rates(bench) | launch_rates(bench) | _cpu_rates(bench, host[0], width, inner)
    costs = _measured_costs(facts, sizes)
    checks: list[Check] = []
    runs: dict[tuple[str, str], LabRun] = {}
    with torch.no_grad():
        for case in (DECODE, PROMPT):
            routes = _routes(sizes, case)
            cached = _cached(routes, sizes)
            model = HybridExperts(bench, host, cached, (width, inner))
            steps = len(routes.chosen)
            visits = [visits_of(bench, routes, step) for step in range(steps)]
            tokens = routes.chosen.shape[2]
            inputs = [_input(bench, tokens, width, step) for step in range(steps)]
            given = zip(inputs, visits, strict=True)
            wanted = [definition(bench, x, host, there, (width, inner)) for x, there in given]
            for way in WAYS:
                bench.tell(f"{case}, {way}")
                plans = [step_plan(way, routes, step, cached, costs) for step in range(steps)]
                call, outputs = partial(_steps, model, inputs, plans, visits), list[Any]()
                once = bench.seconds(lambda call=call, to=outputs: to.extend(call()))  # type: ignore[misc]
                checks += [close(f"{case}, {way}: against fp64", torch.cat(outputs), torch.cat(wanted), BOUND)]
                repeats = max(LEAST, min(sizes["repeats"], int(WAY_S / once)))
                runs[case, way] = bench.wall(call, repeats, warm=0)
                facts[f"{case}, {way}"] = _counted(plans)
            del model, wanted, call
            bench.release()
    compared = [_compared(row, runs) for row in rows(sizes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "layers of experts alone, in bf16, without attention; the same most popular experts are on the GPU in all ways; "
    "those of a token have equal shares, routes are drawn, and wall time is from an idle GPU to an idle one",
    "fetched on demand: all missed experts of a layer are copied ahead of their GEMMs into eight slots; computed by "
    "the CPU: by PyTorch's bf16 GEMMs beside the GPU; shared out: by greedy timelines of the measured rates, whose "
    "plans are made before the clock starts",
    "prefetch: experts that a predictor names for the next layer, begun where the link is done before a layer is",
)


def _routes(sizes: Mapping[str, int], case: str) -> Routes:
    tokens = 1 if case == DECODE else sizes["prompt"]
    steps = sizes["steps"] if case == DECODE else max(1, sizes["steps"] // SHARE)
    shape = (steps, sizes["layers"], tokens, sizes["active"])
    return drawn(shape, sizes["experts"], ASSUMED_SKEW, sizes["accuracy"] / 100, SEED)


def _cached(routes: Routes, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    count = sizes["experts"] * sizes["cached"] // 100
    return [routes.cached(layer, count) for layer in range(sizes["layers"])]


def _cpu_rates(bench: Bench, experts: list[Any], width: int, inner: int) -> dict[str, float]:
    """What the CPU reaches on experts with one row and with many, alone; nothing on a CPU."""
    if not bench.timed:
        return {}
    torch = bench.torch
    some, size = experts[:PROBED], expert_values(width, inner)

    def seconds(rows: int) -> float:
        x = torch.ones(rows, width, dtype=torch.bfloat16)

        def each() -> None:
            for flat in some:
                through(torch, x, flat, width, inner)

        each()
        return min(bench.seconds(each) for _ in range(3)) / len(some)

    return {CPU_BYTES: BF16_BYTES * size / seconds(1), CPU_FLOPS: 2.0 * size * MANY / seconds(MANY)}


def _costs(sizes: Mapping[str, int], link: float, rate: Callable[[str], float], gpu_s: float) -> Costs:
    size = expert_values(sizes["width"], sizes["inner"])
    gemms, others, layer = OPERATORS
    return Costs(
        link_s=BF16_BYTES * size / link,
        cpu_bytes_s=rate(CPU_BYTES),
        cpu_flops_s=rate(CPU_FLOPS),
        nbytes=float(BF16_BYTES * size),
        row_flops=2.0 * size,
        gpu_s=gpu_s,
        launch_s=gemms / rate(GEMM) + others / rate(ELEMENTWISE),
        layer_s=layer / rate(ELEMENTWISE),
    )


def _measured_costs(facts: Mapping[str, Any], sizes: Mapping[str, int]) -> Costs:
    """By the rates of this machine; where nothing is timed, by any that give all ways something to do."""

    def rate(name: str) -> float:
        return float(facts.get(name, 1e12 if name == CPU_FLOPS else 1e6 if name in (GEMM, ELEMENTWISE) else 60e9))

    return _costs(sizes, rate("host_to_gpu_bytes_s"), rate, 0.0)


def _input(bench: Bench, tokens: int, width: int, step: int) -> Any:
    return bench.normal(tokens, width, dtype=bench.torch.float32, generator=bench.generator(SEED + 150 + step))


def _steps(model: HybridExperts, inputs: list[Any], plans: list[Any], visits: list[Any]) -> list[Any]:
    return [model.run(x, plan, there) for x, plan, there in zip(inputs, plans, visits, strict=True)]


def _counted(plans: list[tuple[LayerPlan, ...]]) -> dict[str, int]:
    """Experts by where they were computed, and those prefetched."""
    layers = [layer for plan in plans for layer in plan]
    names = ("near", "early", "fetched", "hosted", "ahead")
    return {name: sum(len(getattr(layer, name)) for layer in layers) for name in names}


def _compared(row: LabRow, runs: Mapping[tuple[str, str], LabRun]) -> Compared:
    case, plain, mine = (str(row.shape[name]) for name in ("case", "plain", "technique"))
    return row.compared(runs[case, plain], runs[case, mine], deferred_s=0.0)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    found = []
    for case in (DECODE, PROMPT):
        told = "tokens decoded" if case == DECODE else f"prompts of {sizes['prompt']} tokens"
        for plain, mine in CASES:
            shape = dict(sizes) | {"case": case, "plain": plain, "technique": mine}
            found.append(LabRow(what=f"{told}, {mine}, against {plain}", shape=shape))
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted:
    """The timelines of the plans that each way has at these rates."""
    names = ("layers", "experts", "active", "width", "inner", "cached", "prompt", "steps", "accuracy")
    sizes = {name: int(row.shape[name]) for name in names}
    routes = _routes(sizes, str(row.shape["case"]))
    cached, machine = _cached(routes, sizes), torch_machine(chip)
    each = max(1, routes.chosen.shape[2] * sizes["active"] // sizes["experts"])
    width, inner = sizes["width"], sizes["inner"]
    gpu = gemm_s(machine, each, 2 * inner, width) + gemm_s(machine, each, width, inner)
    costs = _costs(sizes, copy_bytes_s(chip), rates.__getitem__, gpu)

    def seconds(way: str) -> float:
        plans = (step_plan(way, routes, step, cached, costs) for step in range(len(routes.chosen)))
        return sum(layer.seconds for plan in plans for layer in plan)

    by = f"timelines by the link of {chip.name}'s host, and the CPU's rates on experts as the run measured them alone"
    return Predicted.of_seconds(seconds(str(row.shape["plain"])), seconds(str(row.shape["technique"])), by)


EXPERIMENT = Experiment(
    slug="hybrimoe",
    title="HybriMoE: missed experts shared out between the CPU and the link, with prefetch",
    checks="outputs of all layers by every way, in fp64 within what bf16 rounds",
    claim=LabClaim(
        what="1.33 times the prefill and 1.70 times the decode of kTransformers, three networks in four bits on an "
        "A6000 with ten cores",
        comparable=False,
        why="the paper has four-bit experts, its own cache and a weaker host and link; this is the sharing out and the "
        "prefetch in bf16, with the same experts cached in all ways",
    ),
    sizes=(
        Size("layers", "layers of experts", default=4, on_cpu=3, most=200),
        Size("experts", "experts of a layer", default=64, on_cpu=12, least=2, most=1024),
        Size("active", "experts of a token", default=8, on_cpu=3, most=64),
        Size("width", "hidden width", default=3584, on_cpu=64, least=8, most=16384),
        Size("inner", "channels inside an expert", default=2560, on_cpu=48, least=8, most=65536),
        Size("cached", "percent of the experts on the GPU", default=25, on_cpu=25, least=0, most=100),
        Size("prompt", "tokens of a prompt", default=128, on_cpu=20, most=8192),
        Size("steps", "tokens that are decoded; an eighth as many prompts", default=16, on_cpu=8, most=4096),
        Size("accuracy", "percent of guessed experts that are right", default=80, on_cpu=50, least=0, most=100),
        Size("repeats", "timed passes", default=7, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(CPU_BYTES, CPU_FLOPS, GEMM, ELEMENTWISE),
)
