"""Ways to run a kernel on this machine: those that cannot be built or run are named, not raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gnomon.lab.base import Check, LabRun
from gnomon.lab.bench import Bench

Call = Callable[[], Any]


@dataclass(slots=True)
class Ways:
    """Results of several ways: their times, and notes on those that did not run or are wrong."""

    bench: Bench
    runs: dict[str, LabRun] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, name: str, call: Call) -> Any:
        """A call's result; None where it cannot run here, which is noted."""
        try:
            found = call()
            self.bench.synchronize()
        except Exception as failure:
            lines = str(failure).strip().splitlines() or [""]
            self.notes.append(f"{name} cannot be run: {type(failure).__name__}: {lines[0][:160]}")
            return None
        return found

    def run(self, name: str, call: Call, check: Callable[[Any], Check], gpu_bytes: int = 0) -> LabRun | None:
        """Check a call's result and time it, where it runs and is right."""
        found = self.attempt(name, call)
        if found is None:
            return None
        checked = check(found)
        self.checks.append(checked)
        if not checked.ok:
            self.notes.append(f"{name} is wrong and not timed")
            return None
        run: LabRun | None = self.attempt(f"{name}, timed,", lambda: self.bench.queued(call, gpu_bytes))
        if run is not None:
            self.runs[name] = run
        return run

    def fastest(self, names: tuple[str, ...]) -> str | None:
        """The fastest of those that ran; the first of them where nothing is timed."""
        there = [name for name in names if name in self.runs]
        return min(there, key=lambda name: self.runs[name].seconds or 0.0) if there else None


def close(what: str, mine: Any, truth: Any, bound: float) -> Check:
    """The largest difference over the root mean square of what is right."""
    scale = truth.double().square().mean().sqrt().clamp(min=1e-30)
    worst = float(((mine.double() - truth.double()).abs() / scale).max())
    return Check(what=f"{what}, largest over root mean square", difference=worst, bound=bound)
