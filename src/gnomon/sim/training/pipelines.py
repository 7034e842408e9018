"""Many pipelines at once, as columns: what a search evaluates before it runs any timeline."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.sim.training.placement import Ints
from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipelines:
    """Pipelines whose chunks are equal but for the first and the last. A field is an array, or one number for all."""

    schedule: Ints | int
    """Its place in `gnomon.sim.training.SCHEDULES`."""
    pp: Ints | int
    vp: Ints | int
    micros: Ints | int
    forward_s: Floats | float
    """One chunk that is neither the first nor the last."""
    backward_s: Floats | float
    first_forward_s: Floats | float = 0.0
    """What the first chunk of the network takes beyond that; embeddings, say. Below zero where it takes less."""
    first_backward_s: Floats | float = 0.0
    last_forward_s: Floats | float = 0.0
    """What the last takes beyond it; head and loss, say."""
    last_backward_s: Floats | float = 0.0
    weight_s: Floats | float = 0.0
    """Of the backward, its half by weight, which no other rank waits for; of schedules that split it."""
    first_weight_s: Floats | float = 0.0
    last_weight_s: Floats | float = 0.0
    overlap_s: Floats | float = 0.0
    """What a forward that runs together with a backward saves at most; of schedules that overlap them."""
    forward_send_s: Floats | float = 0.0
    """As in `StepTimes`."""
    backward_send_s: Floats | float = 0.0
    blocking: NDArray[np.bool_] | bool = False

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The fields by name, all in one shape. Raises InputError for what no pipeline can be."""
        names = [field.name for field in fields(self)]
        arrays = np.broadcast_arrays(*(np.asarray(getattr(self, name)) for name in names))
        columns = dict(zip(names, arrays, strict=True))
        _check_sizes(*(columns[name].ravel() for name in ("schedule", "pp", "vp", "micros")))
        for name in names:
            if name.endswith("_s"):
                _check_seconds(name, columns)
        return columns


def _check_seconds(name: str, columns: dict[str, NDArray[np.generic]]) -> None:
    """No time is below zero, that of the first and the last chunk beside the common one included."""
    common = columns[name.split("_", 1)[1]] if name.startswith(("first_", "last_")) else 0.0
    whole = np.add(columns[name], common)
    if whole.size and not (np.min(whole) >= 0 and np.max(whole) < np.inf):
        raise InputError(f"{np.min(columns[name])} is not a valid time", where=name, hint="It is 0 or more.")


def _check_sizes(codes: Ints, pp: Ints, vp: Ints, micros: Ints) -> None:
    from gnomon.sim.training import SCHEDULES

    known = (codes >= 0) & (codes < len(SCHEDULES))
    if not known.all():
        code = codes[int(np.argmin(known))]
        raise InputError(f"there is no schedule {code}", where="schedule", hint=f"0 to {len(SCHEDULES) - 1} are known.")
    for code, schedule in enumerate(SCHEDULES.values()):
        rows = np.flatnonzero(codes == code)
        possible = np.asarray(schedule.possible(pp[rows], vp[rows], micros[rows]))
        if not possible.all():
            row = rows[int(np.argmin(possible))]
            schedule.check(int(pp[row]), int(vp[row]), int(micros[row]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """Sizes and seconds of some pipelines, with blocking sends made part of the tasks they follow."""

    p: Floats
    v: Floats
    m: Floats
    f: Floats
    b: Floats
    first_f: Floats
    """Seconds the first chunk takes beyond the others."""
    first_b: Floats
    """Below zero where the others send and it has nothing to send; `last_f` likewise."""
    last_f: Floats
    last_b: Floats
    w: Floats
    """Of the backward, its half by weight."""
    first_w: Floats
    last_w: Floats
    overlap: Floats
    send_f: Floats
    send_b: Floats
    blocked: Floats
    """Of a forward and a backward, the sends that are part of them."""

    @classmethod
    def of(cls, columns: dict[str, NDArray[np.generic]], rows: Ints) -> Terms:
        taken = {name: column[rows].astype(float) for name, column in columns.items()}
        sends, blocks = taken["pp"] > 1, taken["blocking"] > 0
        held_f, held_b = (taken[name] * (sends & blocks) for name in ("forward_send_s", "backward_send_s"))
        return cls(
            p=taken["pp"],
            v=taken["vp"],
            m=taken["micros"],
            f=taken["forward_s"] + held_f,
            b=taken["backward_s"] + held_b,
            first_f=taken["first_forward_s"],
            first_b=taken["first_backward_s"] - held_b,
            last_f=taken["last_forward_s"] - held_f,
            last_b=taken["last_backward_s"],
            w=taken["weight_s"],
            first_w=taken["first_weight_s"],
            last_w=taken["last_weight_s"],
            overlap=taken["overlap_s"],
            blocked=held_f + held_b,
            send_f=taken["forward_send_s"] * (sends & ~blocks),
            send_b=taken["backward_send_s"] * (sends & ~blocks),
        )

    @property
    def i(self) -> Floats:
        """The half of the backward that the rank before waits for."""
        return self.b - self.w

    @property
    def first(self) -> Floats:
        return self.first_f + self.first_b

    @property
    def last(self) -> Floats:
        return self.last_f + self.last_b

    @property
    def sends(self) -> Floats:
        return self.send_f + self.send_b

    def turned(self) -> Terms:
        """The step in reverse: backwards become forwards, and every path stays a path."""
        return replace(
            self,
            f=self.b,
            b=self.f,
            first_f=self.first_b,
            first_b=self.first_f,
            last_f=self.last_b,
            last_b=self.last_f,
            send_f=self.send_b,
            send_b=self.send_f,
        )


def longest(*ways: Floats) -> Floats:
    found: Floats = np.maximum.reduce(ways)
    return found
