"""The loop of a calibration: every design's first shapes, then rounds of those its fit is least certain of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gnomon.calibrate.card import refuse
from gnomon.calibrate.collect import Log, key
from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Skipped
from gnomon.calibrate.rounds import choose
from gnomon.calibrate.shapes import Design, Task
from gnomon.spec import Chip

Tell = Callable[[int, int, str], None]


class CalibrationBench(Protocol):
    """Who measures: `Lab` on a GPU."""

    def clock(self) -> float: ...
    def measure(self, name: str, shape: dict[str, Any]) -> Row: ...
    def problems(self) -> tuple[str, ...]: ...


@dataclass(kw_only=True)
class CalibrationRun:
    """One calibration under way. Its time is that of all rows, those of earlier runs of the table too."""

    log: Log
    bench: CalibrationBench
    chip: Chip
    budget_s: float
    force: bool = False
    tell: Tell = lambda done, total, text: None
    counts: dict[str, int] = field(default_factory=lambda: {"kept": 0, "measured": 0, "skipped": 0, "left": 0})
    _done: int = 0

    def measure(self, designs: Sequence[Design]) -> dict[str, int]:
        """All designs a round after the other, so that time that runs short is short for all of them."""
        self.counts["kept"] = len(self.log.rows)
        total = sum(design.most for design in designs)
        for turn in range(max((design.rounds for design in designs), default=0) + 1):
            for design in designs:
                if turn <= design.rounds:
                    for task in self._tasks(design, turn):
                        self._one(task, design, total)
        return self.counts

    def _tasks(self, design: Design, turn: int) -> Sequence[Task]:
        if turn == 0:
            return design.first
        planned = self.log.choices.get((design.name, turn))
        if planned is None:
            before = [task for earlier in range(turn) for task in self._tasks(design, earlier)]
            keys = [key(task) for task in before]
            if self._over() and any(one not in self.log.rows and one not in self.log.skipped for one in keys):
                return ()  # a choice would rest on fewer rows than it should
            rows = [self.log.rows[one] for one in keys if one in self.log.rows]
            start = self.bench.clock()
            planned = choose(design, rows, set(keys), self.chip, key)
            self.log.choose(design.name, turn, planned, self.bench.clock() - start)
        return planned

    def _over(self) -> bool:
        return self.log.spent_s > self.budget_s

    def _one(self, task: Task, design: Design, total: int) -> None:
        name = key(task)
        self._done += 1
        if name in self.log.rows:
            return
        if name in self.log.skipped:
            self.counts["skipped"] += 1
            return
        if self._over():
            self.counts["left"] += 1
            return
        start = self.bench.clock()
        try:
            row = self.bench.measure(*task)
        except Skipped as reason:
            self.log.skip(task, str(reason))
            self.counts["skipped"] += 1
            return
        problems = self.bench.problems()
        if self.force:
            self.log.force(problems)
        else:
            refuse(problems, str(self.log.table))
        self.log.add(task, row | {"took_s": self.bench.clock() - start})
        self.counts["measured"] += 1
        self.tell(self._done, total, f"measuring {design.name}")
