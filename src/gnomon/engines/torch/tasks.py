"""A step's micro-batches through this rank's parts, task by task, for schedules that PyTorch's runtime has no place
for: two copies of the network in one pipeline (DualPipe)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from gnomon.engines.torch.checks import micro_batches
from gnomon.engines.torch.model import Part, Tensor
from gnomon.engines.torch.ranks import Place
from gnomon.engines.torch.split import WeightGradients
from gnomon.engines.torch.techniques import Together
from gnomon.engines.torch.transfers import Transfer, with_transfers
from gnomon.sim.training import Task, schedule
from gnomon.sim.training.placement import ModelChunk, route
from gnomon.spec.training_job import TrainingJob

Key = tuple[str, int, int]
"""F or B, the chunk, the micro-batch."""


class Passing(NamedTuple):
    """A micro-batch in flight through a part."""

    given: Tensor
    made: Tensor


class TaskDriver:
    """Parts on several ranks under a pipeline schedule."""

    def __init__(
        self, parts: tuple[Part, ...], job: TrainingJob, between: Tensor, place: Place, techniques: Together
    ) -> None:
        """`between` is what parts send: a meta tensor."""
        strategy, chosen = job.strategy, schedule(job.recipe.schedule)
        self.parts, self.between, self.place, self.techniques = parts, between, place, techniques
        self.micro_batch, self.copies = job.recipe.micro_batch, chosen.placement.copies
        micros = micro_batches(strategy, job.recipe, job.load)
        self.work = with_transfers(chosen, strategy.pp, strategy.vp, micros)[place.at("pp")]
        self.ways = route(chosen.placement, strategy.pp, strategy.vp)
        self.weights = WeightGradients()
        self.actions: list[tuple[str, int, int]] = []
        if chosen.splits_backward:
            for part in parts:
                self.weights.defer(part)

    def run(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Each copy of the network takes as many of the micro-batches."""
        self.inputs = [one.split(self.micro_batch) for one in tokens.chunk(self.copies)]
        self.targets = [one.split(self.micro_batch) for one in targets.chunk(self.copies)]
        self.total = torch.zeros((), device=tokens.device)
        self.passing: dict[tuple[int, int], Passing] = {}
        self.here: dict[Key, Tensor] = {}
        self.coming: dict[Key, tuple[Any, Tensor]] = {}
        self.going: list[tuple[Any, Tensor]] = []
        for one in self.work:
            if isinstance(one, Transfer):
                self._transfer(one)
            else:
                self.actions.append((one.kind, one.chunk, one.micro))
                with self.techniques.run_pass(one.kind, one.chunk, one.micro):
                    self._task(one)
        for work, _ in self.going:
            work.wait()
        return self.total

    def _transfer(self, one: Transfer) -> None:
        group, key = self.place.group("pp"), (one.kind, one.chunk, one.micro)
        if one.way == "send":
            made = self.here.pop(key)
            # A tensor stays until it has been sent, and no longer.
            self.going = [(work, sent) for work, sent in self.going if not work.is_completed()]
            self.going.append((dist.isend(made, group=group, group_dst=one.peer), made))
        else:
            room = torch.empty(self.between.shape, dtype=self.between.dtype, device=self.place.device)
            self.coming[key] = dist.irecv(room, group=group, group_src=one.peer), room

    def _task(self, task: Task) -> None:
        if task.kind == "W":
            self.weights.run((task.chunk, task.micro))
        elif task.kind == "F":
            self._forward(task)
        else:
            self._backward(task)

    def _forward(self, task: Task) -> None:
        part, copy = self.parts[task.chunk], task.chunk * self.copies // len(self.parts)
        first = part.embed is not None
        given = self.inputs[copy][task.micro] if first else self._received("F", task).requires_grad_()
        made = part(given, self.targets[copy][task.micro])
        self.passing[task.chunk, task.micro] = Passing(given, made)
        if part.head is None:
            self._give("F", task, made.detach())
        else:
            self.total += made.detach()

    def _backward(self, task: Task) -> None:
        part, (given, made) = self.parts[task.chunk], self.passing.pop((task.chunk, task.micro))
        self.weights.current = None if task.kind == "B" else (task.chunk, task.micro)
        made.backward(None if part.head is not None else self._received("B", task))
        if part.embed is None:
            self._give("B", task, given.grad)

    def _received(self, kind: str, task: Task) -> Tensor:
        key = kind, task.chunk, task.micro
        if key not in self.coming:
            return self.here.pop(key)
        work, room = self.coming.pop(key)
        work.wait()
        return room

    def _give(self, kind: str, task: Task, made: Tensor) -> None:
        """To the send that comes next, or to another chunk of this rank."""
        spot = ModelChunk(self.place.at("pp"), task.chunk)
        to = (self.ways.after if kind == "F" else self.ways.before)[spot]
        assert to is not None
        chunk = to.chunk if to.rank == spot.rank else task.chunk
        self.here[kind, chunk, task.micro] = made.contiguous()
