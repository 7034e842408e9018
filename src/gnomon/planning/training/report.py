"""A training step as an answer: seconds, utilisation, memory, energy and money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.catalog import model_title
from gnomon.cost.tiers import HOST, NVME, rooms
from gnomon.engines.training.job import not_trained_on
from gnomon.graph.gemm_recipes import multiplied_in
from gnomon.planning.shortage import training_shortage
from gnomon.planning.training.lengths import lengths_figures, lengths_inputs, useful_share
from gnomon.planning.training.step import TrainingStep
from gnomon.planning.training.trained import trained_parameters
from gnomon.planning.unmodelled import idle_beyond, in_files
from gnomon.spec import Estimate, Model, NotModelled, TrainingLoad
from gnomon.spec.answers import Resolved, Shortage, TrainingReport
from gnomon.spec.cluster import KWH_J
from gnomon.units import DAY_S, HOUR_S, format_count

MEMORY_SOURCE = "tensor by tensor"


def report_step(step: TrainingStep) -> TrainingReport:
    """A step as an answer, but for what its plan can be exported to."""
    job, chip, grid = step.job, step.pool.chip, step.pool.grid
    seconds, strategy = step.step_s, job.strategy
    ranks = strategy.ranks
    peak = ranks * chip.rate(multiplied_in(job.dtype))
    flops, joules = step.flops, step.energy_j
    cost = seconds.map(lambda lasting: ranks * chip.price_usd_h * lasting / HOUR_S)
    useful = flops["model"] * (useful_share(step) if job.load.sequences else 1.0)
    rates = {
        "mfu": seconds.map(lambda lasting: useful / lasting / peak),
        "hfu": seconds.map(lambda lasting: (flops["model"] + flops["recomputed"]) / lasting / peak),
        "tokens_per_s_per_gpu": seconds.map(lambda lasting: job.load.step_tokens / lasting / ranks),
    }
    run = _run(step, cost)
    each = strategy.tp * strategy.cp * strategy.dp
    return TrainingReport(
        title=_title(step),
        not_modelled=(
            *_not_modelled(step),
            *in_files(step.pool, job.model, disks=step.tier_bytes[NVME] > 0),
            *idle_beyond(step.pool, ranks),
        ),
        step_time_s=seconds,
        mfu=rates["mfu"].value,
        hfu=rates["hfu"].value,
        tokens_per_s_per_gpu=rates["tokens_per_s_per_gpu"].value,
        peak_memory_bytes=Estimate.exact(max(step.peaks), MEMORY_SOURCE),
        usable_memory_bytes=step.usable_bytes,
        reserved_memory_bytes=step.reserved_bytes,
        runtime_memory_bytes=step.traits.runtime_bytes,
        fits=step.fits,
        cause=None if step.fits else _cause(step),
        ranks=tuple(
            {"rank": rank, "pipeline_rank": rank // each, "peak_memory_bytes": step.peaks[rank // each]}
            for rank in range(ranks)
        ),
        host_bytes=step.host_bytes,
        nvme_bytes=step.tier_bytes[NVME],
        techniques=step.metrics,
        memory_parts=tuple(_parts(step, rank) for rank in range(strategy.pp)),
        bubble_fraction=step.timeline.bubble_fraction,
        exposed_communication_s=max(step.timeline.step_s - step.compute_only_s, 0.0),
        step_parts=_step_parts(step),
        lengths=lengths_figures(step),
        micro_batches=int(step.figures.micros[0]),
        trainable_parameters=trained_parameters(step),
        energy_j=joules.value,
        co2_g=grid.co2_g(joules.value) if grid else None,
        grid=grid.told if grid else {},
        cost_usd=cost.value,
        run={name: figure.value for name, figure in run.items()},
        bands=_edges(rates | {"energy_j": joules, "cost_usd": cost}) | ({"run": _edges(run)} if run else {}),
        targets=(),
        assumed=(*_of_version(step), *(f"{name}: {text}" for name, text in step.applied.assumed(step.priced).items())),
        inputs=_inputs(step),
        resolved=Resolved.of(job.model, step.pool),
        plan=job.plan,
        step=step,
    )


def _title(step: TrainingStep) -> str:
    job, load = step.job, step.job.load
    asked = job.name or job.model.name
    name = model_title(asked) if "/" not in asked else job.model.name
    chips = f"{job.strategy.ranks:,} x {step.pool.chip.name}{step.pool.limited_words}"
    count = "1 sequence" if load.global_batch == 1 else f"{load.global_batch:,} sequences"
    tokens = "patches" if job.model.kind == "diffusion" else "tokens"
    batch = f"a step of {count} of {load.seq:,} {tokens}" if load.sequences is None else _of_lengths(load, count)
    batch += _beside(job.model, load)
    engine = f"{step.engine.title} {step.engine.version}"
    runs = f"as if {engine} ran there" if _not_modelled(step) else engine
    return f"{name}, {job.dtype}, {chips}, {runs}: {batch}"


def _of_lengths(load: TrainingLoad, count: str) -> str:
    sequences = load.sequences
    assert sequences is not None
    packed = f"packed to {load.seq:,} tokens" if sequences.packs else f"of up to {load.seq:,} tokens"
    return f"a step of {count} {packed}, {format_count(load.step_tokens)} tokens on average"


def _beside(model: Model, load: TrainingLoad) -> str:
    """What is trained beside the decoder's tokens."""
    words = []
    for tower, given in zip(model.towers, model.beside, strict=False):
        if load.images:
            each = "1 image" if load.images == 1 else f"{load.images:,} images"
            frozen = [f"{part} frozen" for part in load.freeze.split(",") if part]
            words.append(", ".join([f"{each} ({given.source:,} tokens)", *frozen]))
        else:
            words.append(f"{given.source:,} of the {tower.name}")
    if load.mtp_layers:
        words.append(f"{load.mtp_layers} MTP layer{'s' if load.mtp_layers > 1 else ''}")
    return "".join(f", {one}" for one in words)


def _not_modelled(step: TrainingStep) -> tuple[NotModelled, ...]:
    """A chip that the engine does not run on."""
    why = not_trained_on(step.pool.chip, step.engine.title)
    there = NotModelled(option=step.pool.chip.name, why=f"{why}; it is priced as if it did")
    return (there,) if why else ()


def _of_version(step: TrainingStep) -> tuple[str, ...]:
    """What an engine's version is priced by."""
    source = step.traits.source
    return (f"{step.engine.title} {step.engine.version}: {source}",) if source else ()


def _parts(step: TrainingStep, rank: int) -> dict[str, float]:
    memory = step.memory(rank)
    parts = {"gradients": memory.held_gradients, "working": memory.fullest}
    names = ("weights", "gradients", "optimizer", "activations", "buffers", "working")
    return {name: float(parts.get(name, getattr(memory, name))[0]) for name in names}


def _cause(step: TrainingStep) -> Shortage:
    """What is short on the fullest rank; where nothing is, its blocks are not where they are needed, or the hosts are
    full."""
    if step.fragmented:
        return Shortage(part="fragmentation", needs_bytes=step.reserved_bytes, left_bytes=step.usable_bytes)
    fullest = step.peaks.index(max(step.peaks))
    micro = step.job.recipe.micro_batch
    tokens = round(float(step.batch.tokens[0]) * step.job.strategy.cp / micro)
    found = training_shortage(_parts(step, fullest), step.usable_bytes, micro, tokens)
    tier = step.full_tier or HOST
    return found or Shortage(part=tier, needs_bytes=step.tier_bytes[tier], left_bytes=rooms(step.pool.machine)[tier])


def _step_parts(step: TrainingStep) -> dict[str, float]:
    line, found = step.timeline, step.figures
    return {
        "pipeline_s": line.pipeline_s,
        "gradient_reduction_s": line.optimizer_start_s - line.pipeline_s,
        "optimizer_s": float(found.optimizer_s[0]),
        "weight_gather_s": float(found.gather_s[0]),
        **({"imbalance_s": step.imbalance_s} if step.imbalance_s else {}),
    } | ({"waits_s": step.waits_s} if step.waits_s else {})


def _run(step: TrainingStep, cost_usd: Estimate) -> dict[str, Estimate]:
    steps, grid = step.job.load.steps, step.pool.grid
    if steps is None:
        return {}
    return {
        "steps": Estimate.exact(steps),
        "days": step.mean_step_s.map(lambda lasting: steps * lasting / DAY_S),
        "cost_usd": cost_usd.map(lambda usd: steps * usd),
        "energy_kwh": step.energy_j.map(lambda joules: steps * joules / KWH_J),
    } | ({"co2_kg": step.energy_j.map(lambda joules: steps * grid.co2_g(joules) / 1e3)} if grid else {})


def _edges(figures: Mapping[str, Estimate]) -> dict[str, Any]:
    """Ends of the intervals of figures that are plain numbers in the answer; exact ones have none."""
    return {name: (figure.low, figure.high) for name, figure in figures.items() if figure.draws.size}


def _inputs(step: TrainingStep) -> dict[str, Any]:
    plan, load = step.job.plan, step.job.load
    degrees = {name: getattr(plan.strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    words: dict[str, Any] = {"model": plan.model, "on": step.pool.words, "dtype": plan.dtype}
    words |= {"seq": load.seq, "global_batch": load.global_batch, "tokens": load.tokens, "engine": plan.engine.label}
    words |= lengths_inputs(load)
    words |= load.together
    techniques = {"techniques": list(plan.strategy.techniques)} if plan.strategy.techniques else {}
    return words | degrees | dict(plan.engine.settings) | techniques | step.pool.limit_inputs
