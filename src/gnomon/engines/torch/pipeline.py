"""A step's micro-batches through this rank's parts: in a loop, or under PyTorch's pipeline schedules."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from gnomon.engines.torch.model import Part, Tensor
from gnomon.engines.torch.ranks import Place

Action = tuple[str, int, int]
"""F or B, the model chunk on this rank, the micro-batch."""


class Driver(Protocol):
    actions: list[Action]
    """Executed passes, in order."""

    def run(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Forward and backward of this rank's sequences; returns the sum of their scaled losses, 0 on other stages."""


class PipelineLoop:
    """All layers on one rank."""

    def __init__(self, part: Part, micro_batch: int) -> None:
        self.part, self.micro_batch = part, micro_batch
        self.actions: list[Action] = []

    def run(self, tokens: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros((), device=tokens.device)
        pairs = zip(tokens.split(self.micro_batch), targets.split(self.micro_batch), strict=True)
        for micro, (read, wanted) in enumerate(pairs):
            self.actions.append(("F", 0, micro))
            loss = self.part(read, wanted)
            self.actions.append(("B", 0, micro))
            loss.backward()
            total += loss.detach()
        return total


class StageModule(PipelineStage):  # type: ignore[misc]
    """A stage that records its passes. The last stage looks up its targets by micro-batch."""

    chunk: int
    actions: list[Action]
    targets: tuple[Tensor, ...]
    micro: int

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self.actions.append(("F", self.chunk, fwd_chunk_id))
        self.micro = fwd_chunk_id
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        return self.submod(*args, self.targets[self.micro]) if self.is_last else self.submod(*args)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self.actions.append(("B", self.chunk, bwd_chunk_id))
        return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)


class Pipeline:
    """Parts on several ranks under a pipeline schedule."""

    def __init__(
        self, parts: tuple[Part, ...], schedule: str, micros: int, read: Tensor, between: Tensor, place: Place
    ) -> None:
        """`read` is the first part's input for one micro-batch, `between` what parts send: meta tensors."""
        self.actions: list[Action] = []
        pp, rank = place.size("pp"), place.at("pp")
        self.micros = micros
        self.first, self.last = rank == 0, rank == pp - 1
        self.stages = []
        for chunk, part in enumerate(parts):
            given = between if part.embed is None else read
            made = between if part.head is None else torch.empty((), device="meta")
            number, total = chunk * pp + rank, len(parts) * pp
            stage = StageModule(part, number, total, place.device, given, made, group=place.group("pp"))
            stage.chunk, stage.actions = chunk, self.actions
            self.stages.append(stage)
        how: dict[str, Any] = {"loss_fn": lambda loss, _: loss, "scale_grads": False}
        if schedule == "interleaved":
            self.schedule = ScheduleInterleaved1F1B(self.stages, micros, **how)
        else:
            kind = Schedule1F1B if schedule == "1f1b" else ScheduleGPipe
            self.schedule = kind(self.stages[0], micros, **how)

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
