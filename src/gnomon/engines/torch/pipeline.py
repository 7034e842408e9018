"""A step's micro-batches through this rank's parts: in a loop, or under PyTorch's pipeline schedules. `tasks.py` runs
what those have no place for."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining import schedules as pipelining

from gnomon.engines.torch.checks import micro_batches
from gnomon.engines.torch.model import Part, Tensor
from gnomon.engines.torch.ranks import Place
from gnomon.engines.torch.split import WeightGradients
from gnomon.engines.torch.tasks import TaskDriver
from gnomon.engines.torch.techniques import Together
from gnomon.sim.training import Schedule, Task
from gnomon.sim.training import schedule as find_schedule
from gnomon.spec.training_job import TrainingJob

Action = tuple[str, int, int]
"""F, B, I or W, the model chunk on this rank, the micro-batch."""
SINGLE = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
SEVERAL = {"interleaved": ScheduleInterleaved1F1B}
"""PyTorch's own classes; other schedules are run task by task."""


class Driver(Protocol):
    actions: list[Action]
    """Executed passes, in order."""

    def run(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Forward and backward of this rank's sequences; returns the sum of their scaled losses, 0 on other stages."""


def driver(
    parts: tuple[Part, ...], job: TrainingJob, read: Tensor, between: Tensor, place: Place, techniques: Together
) -> Driver:
    """What runs a pipeline: PyTorch's runtime, unless a rank has the same stage as another."""
    if find_schedule(job.recipe.schedule).placement.copies > 1:
        return TaskDriver(parts, job, between, place, techniques)
    return Pipeline(parts, job, read, between, place, techniques)


class PipelineLoop:
    """All layers on one rank."""

    def __init__(self, part: Part, micro_batch: int, techniques: Together) -> None:
        self.part, self.micro_batch, self.techniques = part, micro_batch, techniques
        self.actions: list[Action] = []

    def run(self, tokens: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros((), device=tokens.device)
        pairs = zip(tokens.split(self.micro_batch), targets.split(self.micro_batch), strict=True)
        for micro, (read, wanted) in enumerate(pairs):
            self.actions.append(("F", 0, micro))
            with self.techniques.run_pass("F", 0, micro):
                loss = self.part(read, wanted)
            self.actions.append(("B", 0, micro))
            with self.techniques.run_pass("B", 0, micro):
                loss.backward()
            total += loss.detach()
        return total


class StageModule(PipelineStage):  # type: ignore[misc]
    """A stage that records its passes. The last stage looks up its targets by micro-batch."""

    chunk: int
    actions: list[Action]
    targets: tuple[Tensor, ...]
    micro: int
    weights: WeightGradients
    techniques: Together

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self.actions.append(("F", self.chunk, fwd_chunk_id))
        self.micro = fwd_chunk_id
        with self.techniques.run_pass("F", self.chunk, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        return self.submod(*args, self.targets[self.micro]) if self.is_last else self.submod(*args)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Whole, or by input alone."""
        whole = kwargs.pop("full_backward", True)
        kind = "B" if whole else "I"
        self.actions.append((kind, self.chunk, bwd_chunk_id))
        self.weights.current = None if whole else (self.chunk, bwd_chunk_id)
        with self.techniques.run_pass(kind, self.chunk, bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, *args, full_backward=True, **kwargs)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self.actions.append(("W", self.chunk, bwd_chunk_id))
        with self.techniques.run_pass("W", self.chunk, bwd_chunk_id):
            self.weights.run((self.chunk, bwd_chunk_id))


class TaskRuntime(pipelining._PipelineScheduleRuntime):  # type: ignore[misc]
    """PyTorch's runtime for lists of passes, with the simulator's lists."""

    def __init__(self, schedule: Schedule, stages: list[StageModule], micros: int, **how: Any) -> None:
        super().__init__(stages, micros, **how)
        pp, vp = stages[0].group_size, len(stages)
        parts = schedule.placement.stages(pp, vp).tolist()
        lists = enumerate(schedule.tasks(pp, vp, micros))
        self.pipeline_order = {rank: _actions(tasks, parts[rank]) for rank, tasks in lists}
        self._prepare_schedule_with_comms(self.pipeline_order)


def _actions(tasks: list[Task], parts: list[int]) -> list[Any]:
    """Tasks of a rank in PyTorch's words; `parts` are the stages of its chunks."""
    found: list[Any] = []
    for place, task in enumerate(tasks):
        kind = pipelining._ComputationType.from_str(task.kind)
        action = pipelining._Action(parts[task.chunk], kind, task.micro)
        if place and tasks[place - 1].overlapped:
            action = pipelining._Action(-1, pipelining.OVERLAP_F_B, None, (found.pop(), action))
        found.append(action)
    return found


class Pipeline:
    """Parts on several ranks under a pipeline schedule."""

    def __init__(
        self, parts: tuple[Part, ...], job: TrainingJob, read: Tensor, between: Tensor, place: Place,
        techniques: Together,
    ) -> None:  # fmt: skip
        """`read` is the first part's input for one micro-batch, `between` what parts send: meta tensors."""
        self.actions: list[Action] = []
        schedule, micros = job.recipe.schedule, micro_batches(job.strategy, job.recipe, job.load)
        pp, rank = place.size("pp"), place.at("pp")
        self.micros, chosen = micros, find_schedule(schedule)
        numbers = chosen.placement.stages(pp, len(parts))[rank].tolist()
        self.first, self.last = 0 in numbers, len(parts) * pp - 1 in numbers
        self.stages, weights = [], WeightGradients()
        for chunk, part in enumerate(parts):
            given = between if part.embed is None else read
            made = between if part.head is None else torch.empty((), device="meta")
            total = len(parts) * pp
            stage = StageModule(part, numbers[chunk], total, place.device, given, made, group=place.group("pp"))
            stage.chunk, stage.actions, stage.weights, stage.techniques = chunk, self.actions, weights, techniques
            if chosen.splits_backward:
                weights.defer(part)
            self.stages.append(stage)
        how: dict[str, Any] = {"loss_fn": lambda loss, _: loss, "scale_grads": False}
        if schedule in SINGLE:
            self.schedule = SINGLE[schedule](self.stages[0], micros, **how)
        elif schedule in SEVERAL:
            self.schedule = SEVERAL[schedule](self.stages, micros, **how)
        else:
            self.schedule = TaskRuntime(chosen, self.stages, micros, **how)

    def run(self, tokens: Tensor, targets: Tensor) -> Tensor:
        for stage in self.stages:
            stage.targets = targets.chunk(self.micros)
        losses: list[Tensor] = []
        given = (tokens,) if self.first else ()
        self.schedule.step(
            *given, target=targets if self.last else None, losses=losses if self.last else None, return_outputs=False
        )
        zero = torch.zeros((), device=tokens.device)
        return torch.stack([loss.detach() for loss in losses]).sum() if losses else zero
