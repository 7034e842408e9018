"""How long the pieces of one training step take."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training.placement import Ints
from gnomon.sim.training.side import SideTasks
from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Seconds. Arrays are [pp, vp] where they speak of chunks and [pp] where of ranks; one number stands for all."""

    forward_s: Floats
    backward_s: Floats
    input_s: Floats | float = 0.0
    """The backward by input alone, and by weight alone, for schedules that split the two. Together they may take longer
    than the backward, where collectives by input overlap with GEMMs by weight."""
    weight_s: Floats | float = 0.0
    overlap_s: Floats | float = 0.0
    """What the forward of a chunk saves where it runs together with a backward: the communication each hides of the
    other's."""
    forward_send_s: float = 0.0
    """One transfer of activations to the next virtual stage; nothing where that is on the same rank."""
    backward_send_s: float = 0.0
    blocking: bool = False
    """Whether a rank computes nothing while it sends. Else each rank has one FIFO stream per direction."""
    reduce_s: Floats | float = 0.0
    """The gradient reduction of one chunk, all its buckets together."""
    reduce_parts: Ints | int = 1
    """Equal buckets of it: bucket j of n is ready when (j + 1) / n of the chunk's last backward is done."""
    overlap: bool = False
    """Whether buckets are reduced as they get ready, overlapped with the backwards, or all after the last backward."""
    optimizer_s: Floats | float = 0.0
    """Begins everywhere at once, when the last rank has its gradients: their norm is taken over all of them."""
    gather_s: Floats | float = 0.0
    """The gathering of new weights after the optimizer."""
    side: tuple[SideTasks, ...] = ()
    """What runs beside the passes."""

    @property
    def pp(self) -> int:
        return int(self.forward_s.shape[0])

    @property
    def vp(self) -> int:
        """Model chunks of a rank."""
        return int(self.forward_s.shape[1])

    def of_rank(self, rank: int) -> dict[str, list[float]]:
        """Seconds of each kind of task for each chunk of a rank, and what an overlapped forward saves."""
        named = {"F": self.forward_s, "B": self.backward_s, "I": self.input_s, "W": self.weight_s}
        named["overlapped"] = self.overlap_s
        return {kind: np.broadcast_to(each, self.forward_s.shape)[rank].tolist() for kind, each in named.items()}


def regular(
    pp: int, vp: int, forward_s: float, backward_s: float, forward_send_s: float = 0.0, backward_send_s: float = 0.0, *,
    weight_s: float = 0.0, blocking: bool = False,
) -> StepTimes:  # fmt: skip
    """A pipeline of equal chunks, with nothing after it; `weight_s` of the backward is by weight."""
    return StepTimes(
        forward_s=np.full((pp, vp), forward_s),
        backward_s=np.full((pp, vp), backward_s),
        input_s=np.full((pp, vp), backward_s - weight_s),
        weight_s=np.full((pp, vp), weight_s),
        forward_send_s=forward_send_s,
        backward_send_s=backward_send_s,
        blocking=blocking,
    )


def without_communication(times: StepTimes) -> StepTimes:
    """A step in which every transfer, reduction, gather and side task is free."""
    return replace(times, forward_send_s=0.0, backward_send_s=0.0, reduce_s=0.0, gather_s=0.0, side=())


def check_times(times: StepTimes) -> None:
    """Raise InputError for a shape that does not fit the others, or for values that are not times."""
    if times.forward_s.ndim != 2:
        shape = times.forward_s.shape
        raise InputError(f"it has shape {shape}", where="forward_s", hint="Its shape is [ranks, chunks].")
    chunks, ranks = times.forward_s.shape, times.forward_s.shape[:1]
    shapes = {
        "forward_s": chunks,
        "backward_s": chunks,
        "input_s": chunks,
        "weight_s": chunks,
        "overlap_s": chunks,
        "forward_send_s": (),
        "backward_send_s": (),
        "reduce_s": chunks,
        "reduce_parts": chunks,
        "optimizer_s": ranks,
        "gather_s": ranks,
    }
    for name, shape in shapes.items():
        values = np.asarray(getattr(times, name), float)
        if values.shape not in (shape, ()):
            raise InputError(f"it has shape {values.shape}", where=name, hint=f"It must match forward_s: {shape}.")
        least = 1 if name == "reduce_parts" else 0
        bad = ~(np.isfinite(values) & (values >= least))
        if bad.any():
            raise InputError(f"{values[bad].flat[0]} is out of range", where=name, hint=f"It is {least} or more.")
