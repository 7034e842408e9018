"""One training step, its degrees and recipe given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.errors import placed
from gnomon.execution.targets import with_targets
from gnomon.load.reliability import fault_tolerance, on_grid
from gnomon.load.training import bind_training, planned_step, with_lengths
from gnomon.planning.run import with_failures
from gnomon.planning.training.asked import possible_step
from gnomon.planning.training.packings import idle_lengths
from gnomon.planning.training.report import report_step
from gnomon.planning.unmodelled import idle_in_training
from gnomon.spec import Model, Plan, Pool
from gnomon.spec.answers import TrainingReport
from gnomon.spec.questions.training import SimulateTrainingQuestion


def simulate_training(
    model: str | Path | Model,
    *,
    on: str | Pool,
    seq: int, global_batch: int, micro_batch: int = 1,
    tp: int = 1, pp: int | None = None, vp: int | None = None, cp: int | None = None, ep: int = 1,
    dp: int | None = None, zero: int = 0,
    schedule: str | None = None, recompute: str | None = None,
    optimizer: str = "adamw",
    sequence_parallel: bool = True,
    cp_comm: str | None = None,
    expert_tp: int = 0, dp_shard: int = 0, hpz: int = 0, tp_overlap: bool = False, cp_a2a: int = 0,
    fp8_param_gather: bool = False, bf16_layers: str | None = None,
    dispatch: str | None = None, capacity_factor: float = 0.0, pad_to_capacity: bool = False, imbalance: float = 1.0,
    ep_overlap: bool = False, cuda_graphs: bool = False,
    layers_per_stage: str | None = None,
    dtype: str | None = None,
    engine: str = "megatron",
    tokens: float | None = None,
    lengths: int | str | None = None, packing: str | None = None, sampling: str | None = None,
    document_masking: bool | None = None, seed: int = 0,
    images: int | None = None, image: str | None = None, source: int | None = None, freeze: str | None = None,
    mtp_layers: int = 0,
    techniques: Sequence[str] = (),
    power_limit_w: float | None = None,
    failures: str | None = None,
    checkpoint_to: str | None = None, checkpoint_every: str | int | None = None, checkpoint_mode: str | None = None,
    spares: str | int | None = None,
    detection_time_s: float | None = None, restart_time_s: float | None = None, repair_time_s: float | None = None,
    grid: str | None = None,
) -> TrainingReport:  # fmt: skip
    """Seconds, memory of every rank, energy and dollars of one step of `global_batch` sequences of `seq` tokens.

    Without a data-parallel degree the chips that the other degrees leave are used for it. With `tokens`, the answer
    includes the full run. `techniques` are named as in a plan: `offload-optimizer:stride=2`. Where an option is None,
    the techniques set it; else degrees are 1, the schedule 1f1b (interleaved with `vp`), recompute none, cp_comm p2p.
    `power_limit_w` is what each chip may draw, below its own limit. With `failures` (`default`, or a rate such as
    `2e-5/gpu-hour`) the run has failures, checkpoints and restarts in it, and the answer its goodput as `reliability`.
    `grid` names the power grid, for carbon. `lengths` is a distribution of the tokens of sequences, cut to `seq`, such
    as `lognormal:mean=700,cv=1.2` or `file:lengths.txt`; `packing`, `document_masking` and `sampling` say how batches
    are made of them, as the engine usually does where they are None. `images` of a size `image` go through the vision
    tower with each sequence, and what `freeze` names does not learn; `source` is the length of an encoder's sequence;
    `mtp_layers` predict further tokens.
    """
    return answer(
        SimulateTrainingQuestion(
            model=model, on=on, seq=seq, global_batch=global_batch, micro_batch=micro_batch, tp=tp, pp=pp, vp=vp,
            cp=cp, ep=ep, dp=dp, zero=zero, schedule=schedule, recompute=recompute, optimizer=optimizer,
            sequence_parallel=sequence_parallel, cp_comm=cp_comm, expert_tp=expert_tp, dp_shard=dp_shard, hpz=hpz,
            tp_overlap=tp_overlap, cp_a2a=cp_a2a, fp8_param_gather=fp8_param_gather, bf16_layers=bf16_layers,
            dispatch=dispatch, capacity_factor=capacity_factor, pad_to_capacity=pad_to_capacity, imbalance=imbalance,
            ep_overlap=ep_overlap, cuda_graphs=cuda_graphs, layers_per_stage=layers_per_stage, dtype=dtype,
            engine=engine, tokens=tokens, images=images, image=image, source=source, freeze=freeze,
            mtp_layers=mtp_layers, lengths=lengths, packing=packing, sampling=sampling,
            document_masking=document_masking, seed=seed, techniques=techniques, power_limit_w=power_limit_w,
            failures=failures, checkpoint_to=checkpoint_to, checkpoint_every=checkpoint_every,
            checkpoint_mode=checkpoint_mode, spares=spares, detection_time_s=detection_time_s,
            restart_time_s=restart_time_s, repair_time_s=repair_time_s, grid=grid,
        )
    )  # fmt: skip


def answer(question: SimulateTrainingQuestion) -> TrainingReport:
    """The step that a question asks for, and what its plan can be exported to."""
    limit = question.power_limit_w
    with placed(question.places()):
        bound = bind_training(question.model, question.on, question.engine, power_limit_w=limit, load=question.load)
    bound = with_lengths(on_grid(bound, question.grid), question)
    asked = fault_tolerance(question, bound.pool)
    found = with_failures(report_step(possible_step(question, bound, {})), asked, question.run_given)
    step = found.step.job
    idle = idle_in_training(question.recipe_given, step.strategy, step.model)
    idle += idle_lengths(question.lengths_given, step.load)
    return with_targets(replace(found, not_modelled=(*idle, *found.not_modelled)))


def report(plan: Plan, pool: Pool) -> TrainingReport:
    """The step of a plan on its chips."""
    return report_step(planned_step(plan, pool=pool))
