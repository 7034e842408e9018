"""The contract of a pipeline schedule: the tasks of every rank in order, and what many plans take at least.

A schedule is one file in `schedules/`. It knows ranks, model chunks and micro-batches, and nothing of a network or a
chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training.placement import LOOP, Counts, Ints, Placement
from gnomon.spec.workload import Floats

if TYPE_CHECKING:
    from gnomon.sim.training.pipelines import Terms

__all__ = ["KINDS", "LANES", "Counts", "Ints", "Kind", "Orders", "Schedule", "Task", "check_sizes", "in_order"]

Kind = Literal["F", "B", "I", "W"]
KINDS: Mapping[Kind, str] = {
    "F": "forward",
    "B": "backward",
    "I": "backward by input",
    "W": "backward by weight",
}
"""As PyTorch's pipelining writes them. B is the backward of inputs and weights together, I and W are its halves: only
I is waited for by another rank."""
LANES: Mapping[str, str] = {
    **dict.fromkeys(("F", "B", "I", "W", "optimizer"), "compute"),
    "send F": "sends forward",
    "send B": "sends backward",
    "reduce": "reductions",
    "gather": "reductions",
    "copy out": "copies out",
    "copy in": "copies in",
}
"""What runs at once on a rank. A transfer, a reduction or a gather shares nothing with the passes but its start."""


class Task(NamedTuple):
    """One pass of one micro-batch through one model chunk."""

    kind: Kind
    chunk: int
    micro: int
    overlapped: bool = False
    """Run together with the next task of the list, a backward of another micro-batch, as one: each hides the other's
    communication."""


Orders = Sequence[Sequence[Task]]
"""The tasks of each rank, in the order it runs them."""


class Schedule:
    """The order in which every rank of a pipeline runs its tasks. Knows nothing of time."""

    name: ClassVar[str]
    place: ClassVar[int]
    """Among the schedules, where they are listed."""
    usual: ClassVar[bool] = False
    """Taken where no schedule is named, with as many chunks per rank as it has."""
    placement: ClassVar[Placement] = LOOP
    splits_backward: ClassVar[bool] = False
    """Whether backwards by input and by weight are tasks of their own, at least for some micro-batches."""
    overlaps: ClassVar[bool] = False
    """Whether forwards run together with backwards of other micro-batches."""
    ends_on_first: ClassVar[bool] = True
    """Whether the rank of the first stage is the last to end, whatever the times."""
    dominated: ClassVar[bool] = False
    """The usual schedule takes as long, with as many passes in flight or fewer."""
    chunks: ClassVar[tuple[int, int | None]] = (1, 1)
    """Fewest and most model chunks of a rank (`vp`); None where any number is possible."""
    even_ranks: ClassVar[bool] = False

    def multiple(self, pp: Counts) -> Any:
        """Micro-batches come in multiples of this."""
        return np.ones_like(pp)

    def fewest(self, pp: Counts) -> Any:
        """Micro-batches a step has at least."""
        return np.ones_like(pp)

    def fills(self, pp: int) -> int:
        """Micro-batches with which every rank has work at once; engines may ask for as many."""
        return pp

    def takes_chunks(self, vp: Counts) -> Any:
        least, most = self.chunks
        return np.greater_equal(vp, least) & (True if most is None else np.less_equal(vp, most))

    def possible(self, pp: Counts, vp: Counts, micros: Counts) -> Any:
        """Whether `check` passes, of each of many plans."""
        found = np.minimum(np.minimum(pp, vp), micros) >= 1
        found = found & self.takes_chunks(vp) & np.greater_equal(pp, 1 if self.chunks[0] == 1 else 2)
        found = found & (np.mod(micros, np.maximum(self.multiple(pp), 1)) == 0)
        return found & np.greater_equal(micros, self.fewest(pp)) & (np.mod(pp, 2 if self.even_ranks else 1) == 0)

    def check(self, pp: int, vp: int, micros: int) -> None:
        """Raise InputError, with the nearest sizes that work, where the schedule does not exist."""
        check_sizes(pp, vp, micros)
        needs = f"the schedule {self.name} needs"
        if pp < 2 and self.chunks[0] > 1:
            raise InputError(f"{needs} a pipeline, and pp is {pp}", where="pp", hint="Set pp to 2 or more.")
        if self.even_ranks and pp % 2:
            raise InputError(f"{needs} an even number of ranks, not {pp}", where="pp", hint=f"Set pp to {pp + 1}.")
        if not self.takes_chunks(vp):
            raise self._other_chunks(vp)
        multiple, fewest = int(self.multiple(pp)), int(self.fewest(pp))
        if micros < fewest:
            message = f"{needs} {fewest} micro-batches or more with {pp} ranks, not {micros}"
            raise InputError(message, where="micro-batches", hint=f"Use {fewest}.")
        if micros % multiple:
            below = micros - micros % multiple
            near = f"{below} or {below + multiple}" if below else f"{multiple}"
            of = f"pp ({pp})" if multiple == pp else f"{multiple}"
            message = f"{needs} a multiple of {of} micro-batches, not {micros}"
            raise InputError(message, where="micro-batches", hint=f"Nearest: {near}.")

    def _other_chunks(self, vp: int) -> InputError:
        from gnomon.sim.training import usual_schedule

        (least, most), other = self.chunks, usual_schedule(vp).name
        if most == 1:
            message = f"the schedule {self.name} has one model chunk per rank, not {vp}"
            return InputError(message, where="vp", hint=f"Set vp to 1, or use the schedule {other}.")
        wanted, many = (f"{least}", f"{least}") if least == most else ("several", f"{least} or more")
        message = f"the schedule {self.name} needs {wanted} model chunks per rank, and vp is {vp}"
        return InputError(message, where="vp", hint=f"Set vp to {many}, or use the schedule {other}.")

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        """The tasks of each rank in order. Raises what `check` raises. Where there are two copies of the network,
        micro-batches of a chunk are numbered from 0 to half of them."""
        raise NotImplementedError

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """Most passes that a rank holds activations of at once, over all its chunks: forward begun, and the backward,
        or its half by weight, not yet ended."""
        raise NotImplementedError

    def heads(self, pp: Counts, vp: Counts, micros: Counts) -> Any:
        """Most of them that have been through the last stage, whose rank holds what the head saved."""
        return np.ones_like(micros)

    def bound_s(self, t: Terms) -> Floats:
        """Seconds to the end of the last task, never more than a timeline takes. Here, what holds for any schedule:
        one micro-batch's way to the busiest rank, all the work of that rank, and, where backwards are whole, the way
        back."""
        from gnomon.sim.training.bounds import any_schedule_s

        return any_schedule_s(self, t)


def check_sizes(pp: int, vp: int, micros: int) -> None:
    for name, size in (("pp", pp), ("vp", vp), ("micro-batches", micros)):
        if size < 1:
            raise InputError(f"{size} is not a valid pipeline size", where=name, hint="It is at least 1.")


def in_order(forwards: list[Task], backwards: list[Task], warm_ups: int) -> list[Task]:
    """The warm-up forwards; then one forward and one backward alternately; then the remaining backwards."""
    pairs = len(forwards) - warm_ups
    paired: list[Task] = forwards[:pairs] * 2
    paired[::2] = forwards[warm_ups:]
    paired[1::2] = backwards[:pairs]
    return [*forwards[:warm_ups], *paired, *backwards[pairs:]]


def micro_batches(kind: Kind, micros: int, chunk: int = 0) -> list[Task]:
    return [Task(kind, chunk, micro) for micro in range(micros)]
