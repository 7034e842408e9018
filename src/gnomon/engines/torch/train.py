"""Some steps of a training plan with random weights on random tokens, measured. Runs on every rank of the plan."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import loss_parallel

from gnomon.engines.torch import clocks, optimizer, parallel, pipeline
from gnomon.engines.torch.checks import check, micro_batches
from gnomon.engines.torch.data import sequences
from gnomon.engines.torch.ranks import Place, joined
from gnomon.spec import Model, Recipe, Strategy, TrainingLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerJob:
    """A rank made ready to step."""

    model: Model
    load: TrainingLoad
    strategy: Strategy
    place: Place
    seed: int
    state: optimizer.State
    driver: pipeline.Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step took and gave."""

    seconds: float
    loss: float
    grad_norm: float


def train(
    model: Model,
    strategy: Strategy,
    recipe: Recipe,
    load: TrainingLoad,
    dtype: str,
    *,
    steps: int,
    warmup: int = 0,
    seed: int = 0,
    device: str = "cuda",
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run `warmup` steps and then `steps` more, of which the result speaks. The same on all ranks.

    Joins the process group there is, or makes the one that torchrun describes. `device` is cuda or cpu.
    """
    check(model, strategy, recipe, load, dtype)
    with joined(strategy, recipe, device) as place:
        job = prepare(model, strategy, recipe, load, dtype, seed, place)
        _forget_peak(place)
        with _collected_between_steps():
            before = clocks.sm_mhz(place)
            for number in range(warmup):
                tell(f"warm-up {number + 1} of {warmup}: {step(job, number).seconds:.3f} s")
            done = []
            with clocks.watched(place) as during:
                for number in range(warmup, warmup + steps):
                    done.append(step(job, number))
                    tell(f"step {len(done)} of {steps}: {done[-1].seconds:.3f} s, loss {done[-1].loss:.4f}")
        return _result(job, done, {"before": before, "during": during})


def prepare(
    model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str, seed: int, place: Place
) -> RunnerJob:
    share = parallel.build(model, strategy, recipe, dtype, seq=load.seq, seed=seed, place=place)
    micros = micro_batches(strategy, recipe, load)
    for part in share.parts:
        part.loss_scale = 1.0 / (micros * strategy.dp)
    if strategy.pp == 1:
        driver: pipeline.Driver = pipeline.PipelineLoop(share.parts[0], recipe.micro_batch)
    else:
        read = torch.empty(recipe.micro_batch, load.seq, dtype=torch.int64, device="meta")
        shape = (recipe.micro_batch, load.seq // (strategy.tp if recipe.sequence_parallel else 1), model.hidden)
        between = torch.empty(shape, dtype=parallel.DTYPES[dtype], device="meta", requires_grad=True)
        driver = pipeline.Pipeline(share.parts, recipe.schedule, micros, read, between, place)
    state = optimizer.state(share, recipe, dtype, place)
    return RunnerJob(model=model, load=load, strategy=strategy, place=place, seed=seed, state=state, driver=driver)


def step(job: RunnerJob, number: int) -> Step:
    """One step, from when all ranks are ready until all are done."""
    tokens, targets = _batch(job, number)
    job.driver.actions.clear()
    gc.collect()
    _wait_for_all(job.place)
    start = time.perf_counter()
    with _losses(job.strategy):
        loss = job.driver.run(tokens, targets)
    job.state.reduce()
    totals = optimizer.clip(job.state, loss / job.strategy.tp, job.place)
    job.state.step()
    norm, mean = totals.tolist()
    _synchronize(job.place)
    return Step(seconds=time.perf_counter() - start, loss=mean, grad_norm=norm)


def _losses(strategy: Strategy) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = loss_parallel() if strategy.tp > 1 else nullcontext()
    return context


def _batch(job: RunnerJob, number: int) -> tuple[Any, Any]:
    each = job.load.global_batch // job.strategy.dp
    first = job.place.at("dp") * each
    rows = sequences(
        seed=job.seed, step=number, numbers=range(first, first + each), seq=job.load.seq, vocab=job.model.vocab
    )
    both = torch.from_numpy(rows).to(job.place.device)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


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
    """No collection of garbage in the middle of a step, and quick ones between: only what steps make is looked at."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _forget_peak(place: Place) -> None:
    """Drawing the weights is no part of a step."""
    gc.collect()
    if place.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _result(job: RunnerJob, done: list[Step], clocks_mhz: dict[str, Any]) -> dict[str, Any]:
    own = {
        "step_s": [step.seconds for step in done],
        "peak": _peak(job.place, "allocated"),
        "reserved": _peak(job.place, "reserved"),
        "actions": [list(action) for action in job.driver.actions],
    }
    ranks: list[Any] = [own]
    if job.place.world > 1:
        ranks = [None] * job.place.world
        dist.all_gather_object(ranks, own)
    return {
        "step_s": [max(times) for times in zip(*(rank["step_s"] for rank in ranks), strict=True)],
        "losses": [step.loss for step in done],
        "grad_norms": [step.grad_norm for step in done],
        "tokens_per_step": job.load.step_tokens,
        "peak_memory_bytes": [rank["peak"] for rank in ranks],
        "reserved_bytes": [rank["reserved"] for rank in ranks],
        "actions": [rank["actions"] for rank in ranks],
        "sm_clock_mhz": clocks_mhz,
        "device": clocks.device_name(job.place),
        "versions": clocks.versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _peak(place: Place, what: str) -> int | None:
    return int(getattr(torch.cuda, f"max_memory_{what}")()) if place.device.type == "cuda" else None
