"""Some steps of a training plan with random weights on random tokens, measured. Runs on every rank of the plan."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import loss_parallel

from gnomon.engines.torch import clocks, context, optimizer, parallel, pipeline, techniques
from gnomon.engines.torch.checks import check_job, micro_batches
from gnomon.engines.torch.data import sequences
from gnomon.engines.torch.launch import Measuring
from gnomon.engines.torch.ranks import Place, joined
from gnomon.spec import Strategy
from gnomon.spec.training_job import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJob:
    """A rank ready to run steps."""

    job: TrainingJob
    place: Place
    seed: int
    state: optimizer.State
    driver: pipeline.Driver
    techniques: techniques.Together


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Seconds and results of one step."""

    seconds: float
    loss: float
    grad_norm: float


def train(job: TrainingJob, measuring: Measuring, tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run warm-up and measured steps; returns the same result on all ranks.

    Joins an existing process group, or creates the one that torchrun describes.
    """
    warmup, steps = measuring.warmup, measuring.steps
    check_job(job)
    if job.strategy.dp * job.strategy.cp == 1:  # nothing to shard over: weights and states as without ZeRO
        job = replace(job, recipe=replace(job.recipe, zero=0))
    with joined(job, measuring.device) as place:
        rank = prepare(job, measuring.seed, place)
        _reset_peak(place)
        with _collected_between_steps():
            before = clocks.sm_mhz(place)
            for number in range(warmup):
                tell(f"warm-up {number + 1} of {warmup}: {step(rank, number).seconds:.3f} s")
            done = []
            with clocks.watched(place) as during:
                for number in range(warmup, warmup + steps):
                    done.append(step(rank, number))
                    tell(f"step {len(done)} of {steps}: {done[-1].seconds:.3f} s, loss {done[-1].loss:.4f}")
        return _result(rank, done, {"before": before, "during": during})


def prepare(job: TrainingJob, seed: int, place: Place) -> RankJob:
    strategy, recipe, load = job.strategy, job.recipe, job.load
    running = techniques.start(job, place)
    share = parallel.build(job, seed, place, running)
    micros = micro_batches(strategy, recipe, load)
    for part in share.parts:
        part.loss_scale = 1.0 / (micros * strategy.dp * strategy.cp)
    if strategy.pp == 1:
        driver: pipeline.Driver = pipeline.PipelineLoop(share.parts[0], recipe.micro_batch, running)
    else:
        read = torch.empty(recipe.micro_batch, load.seq // strategy.cp, dtype=torch.int64, device="meta")
        pieces = strategy.cp * (strategy.tp if recipe.sequence_parallel else 1)
        shape = (recipe.micro_batch, load.seq // pieces, job.model.hidden)
        between = torch.empty(shape, dtype=parallel.DTYPES[job.dtype], device="meta", requires_grad=True)
        driver = pipeline.driver(share.parts, job, read, between, place, running)
    state = optimizer.state(share, recipe, job.dtype, place, running.home())
    return RankJob(job=job, place=place, seed=seed, state=state, driver=driver, techniques=running)


def step(rank: RankJob, number: int) -> Step:
    """One step, timed from when all ranks are ready until this rank is done."""
    tokens, targets = _batch(rank, number)
    rank.driver.actions.clear()
    gc.collect()
    _wait_for_all(rank.place)
    start = time.perf_counter()
    with rank.techniques.step():
        with _losses(rank.job.strategy):
            loss = rank.driver.run(tokens, targets)
        rank.state.reduce()
        totals = optimizer.clip(rank.state, loss / rank.job.strategy.tp, rank.place)
        rank.state.step()
    norm, mean = totals.tolist()
    _synchronize(rank.place)
    return Step(seconds=time.perf_counter() - start, loss=mean, grad_norm=norm)


def _losses(strategy: Strategy) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = loss_parallel() if strategy.tp > 1 else nullcontext()
    return context


def _batch(rank: RankJob, number: int) -> tuple[Any, Any]:
    each = rank.job.load.global_batch // rank.job.strategy.dp
    first = rank.place.at("dp") * each
    numbers = range(first, first + each)
    rows = sequences(seed=rank.seed, step=number, numbers=numbers, seq=rank.job.load.seq, vocab=rank.job.model.vocab)
    both = torch.from_numpy(rows).to(rank.place.device)
    at = context.positions(rank.job.load.seq, rank.place)
    return both[:, at], both[:, at + 1]


def _synchronize(place: Place) -> None:
    if place.device.type == "cuda":
        torch.cuda.synchronize()


def _wait_for_all(place: Place) -> None:
    _synchronize(place)
    if place.world > 1:
        dist.barrier()
        _synchronize(place)


@contextmanager
def _collected_between_steps() -> Iterator[None]:
    """No garbage collection inside a step, and cheap ones between: only objects created by steps are traversed."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _reset_peak(place: Place) -> None:
    """Exclude weight initialisation from the memory peak."""
    gc.collect()
    if place.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _result(rank: RankJob, done: list[Step], clocks_mhz: dict[str, Any]) -> dict[str, Any]:
    own = {
        "step_s": [step.seconds for step in done],
        "peak": _peak(rank.place, "allocated"),
        "reserved": _peak(rank.place, "reserved"),
        "actions": [list(action) for action in rank.driver.actions],
        "techniques": rank.techniques.result(),
    }
    ranks: list[Any] = [own]
    if rank.place.world > 1:
        ranks = [None] * rank.place.world
        dist.all_gather_object(ranks, own)
    return {
        "step_s": [max(times) for times in zip(*(one["step_s"] for one in ranks), strict=True)],
        "losses": [step.loss for step in done],
        "grad_norms": [step.grad_norm for step in done],
        "tokens_per_step": rank.job.load.step_tokens,
        "peak_memory_bytes": [one["peak"] for one in ranks],
        "reserved_bytes": [one["reserved"] for one in ranks],
        "actions": [one["actions"] for one in ranks],
        "techniques": [one["techniques"] for one in ranks],
        "sm_clock_mhz": clocks_mhz,
        "device": clocks.device_name(rank.place),
        "versions": clocks.versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _peak(place: Place, what: str) -> int | None:
    return int(getattr(torch.cuda, f"max_memory_{what}")()) if place.device.type == "cuda" else None
