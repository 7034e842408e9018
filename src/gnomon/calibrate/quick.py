"""A minute on the user's card: a few kernels that were timed on the card of the shipped profile too.

What they took here beside what they took there (`quick_reference.yaml`, by tools/quick_reference.py) are this card's
factors (`cost/card.py`): rates of arithmetic and of memory, joules of a FLOP by the clock that sustained work settles
at, and the speed of the host by its launches. For a chip without such rows the profile's own times stand in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.collect import key
from gnomon.calibrate.engine_run import host as host_name
from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Skipped
from gnomon.calibrate.shapes import Task
from gnomon.catalog.base import packaged
from gnomon.cost.card import COMPUTE, ENERGY, HOST, MEMORY, NARROW, RANGES
from gnomon.cost.clock import BURST, LIMIT, slowdown
from gnomon.cost.machine import Machine
from gnomon.cost.profile import Profile
from gnomon.cost.rows import COLUMNS, shape_of
from gnomon.errors import CalibrationError, InputError
from gnomon.load.cards import SCHEMA, card_from_dict, card_path, forget_cards
from gnomon.load.profiles import forget_profiles, shipped_profile
from gnomon.paths import write_text
from gnomon.spec import Chip, Pool
from gnomon.spec.answers import Result
from gnomon.spec.questions.running import CalibrateQuestion

REFERENCE = Path(__file__).parent / "quick_reference.yaml"
RAW = "gnomon.quick-rows/1"
SETTLED_S = 3.0
"""Sustained work runs this long to settle and again to be read; the governor has settled after two seconds on an H200
(measurements/h200-2026-11-18/governor.json.gz)."""
ROUNDS, HOST_ROUNDS = 3, 12
"""Each kernel is timed so often, between others: of kernels the median counts, of launches the fastest. A rented host's
launches came in two speeds, 1.5 times apart, that changed within seconds (measurements/h200-2026-11-18-check), as
others used its processors: the median of a few is a throw of a coin."""
LAUNCHES = "launch"


def _gemm(m: int, n: int, k: int) -> Task:
    return "gemm", {"dtype": "bf16", "m": m, "n": n, "k": k}


def _gemm_fp8(m: int, n: int, k: int) -> Task:
    return "gemm_fp8", {"m": m, "n": n, "k": k}


def _decode(batch: int, heads: int, kv_heads: int, kv_len: int) -> Task:
    return "attention_decode", {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": 128, "kv_len": kv_len}


TASKS: Mapping[str, tuple[Task, ...]] = {
    COMPUTE: (_gemm(1536, 28672, 4096), _gemm(8192, 4096, 14336), _gemm(4096, 8192, 8192), _gemm(2048, 14336, 8192)),
    NARROW: (_gemm_fp8(6144, 4096, 14336), _gemm_fp8(4096, 8192, 8192), _gemm_fp8(2048, 14336, 8192)),
    MEMORY: (
        _gemm(16, 28672, 4096), _gemm(8, 128256, 4096), _gemm(32, 57344, 8192),
        _decode(202, 64, 8, 1800), _decode(85, 28, 4, 6488), _decode(10, 32, 8, 24270),
    ),
    HOST: ((LAUNCHES, {"name": "add", "kernels": 1}), (LAUNCHES, {"name": "mm", "kernels": 1})),
}  # fmt: skip
"""By factor: kernels that depend on little else."""
SUSTAINED: Task = ("sustained", {"name": "bf16", "m": 8192, "n": 8192, "k": 8192})
BESIDE: tuple[Task, ...] = (("host_loop", {}), ("sustained", {"name": "rest"}))
"""Measured and kept, and no factor yet: the host's Python alone, and the card's watts at rest."""


@dataclass(frozen=True, kw_only=True)
class QuickCalibrated(Result):
    """A card's factors beside the shipped profile, each with the spread of the kernels it is the median of."""

    SCHEMA = "calibrate.quick"
    title: str
    chip: str
    table: str
    profile: str
    factors: Mapping[str, float]
    spread: Mapping[str, float]
    against: str
    """What the factors are beside: the same kernels on another card, or the profile's own times."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    in_use: bool = True


@cache
def _references() -> Mapping[str, Any]:
    found: dict[str, Any] = packaged(REFERENCE)
    return found


def tasks_of(chip: Chip) -> list[Task]:
    """What is measured on a chip, the sustained work last."""
    kernels = [task for name in TASKS for task in TASKS[name] if name not in (HOST, *_unsupported(chip))]
    spaced = [[*kernels * (each < ROUNDS), *TASKS[HOST]] for each in range(HOST_ROUNDS)]
    some = [task for tasks in spaced for task in tasks]
    return [*some, *BESIDE, (SUSTAINED[0], SUSTAINED[1] | {"seconds": SETTLED_S})]


def _unsupported(chip: Chip) -> tuple[str, ...]:
    return () if "fp8" in chip.rates_flops else (NARROW,)


def measured_rows(bench: Any, chip: Chip, tell: Callable[[int, int, str], None]) -> tuple[list[Row], dict[str, str]]:
    """A row for each task that could run, and why others could not."""
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    tasks = tasks_of(chip)
    for at, (name, shape) in enumerate(tasks):
        tell(at, len(tasks), name)
        plain = {size: value for size, value in shape.items() if size != "seconds"}
        try:
            rows.append(bench.measure(name, shape) | {"task": key((name, plain))})
        except Skipped as reason:
            skipped[key((name, plain))] = str(reason)
    return rows, skipped


def factors_of(rows: Sequence[Row], chip: Chip, profile: Profile) -> tuple[dict[str, float], dict[str, float], str]:
    """The factors, their spreads (standard deviation of a factor's kernels, log), and what they are beside."""
    found = _references()["chips"].get(chip.name, {})
    known: Mapping[str, float] = found.get("time_us", {})
    here: dict[str, list[float]] = {}
    for row in rows:
        here.setdefault(row["task"], []).append(float(row["time_us"]))
    factors, spread = {}, {}
    for name, tasks in TASKS.items():
        beside = {key(task): known.get(key(task)) or modelled_us(task, chip, profile) for task in tasks}
        middle = np.min if name == HOST else np.median
        ratios = [np.log(us / middle(here[task])) for task, us in beside.items() if us and task in here]
        if ratios:
            factors[name] = float(np.exp(np.median(ratios)))
            spread[name] = float(np.std(ratios))
    energy = _energy(rows, chip, profile, found.get("sustained"))
    if energy is not None:
        factors[ENERGY] = energy
    return factors, spread, str(found.get("source", "")) or f"the times of the profile ({profile.source})"


def modelled_us(task: Task, chip: Chip, profile: Profile) -> float | None:
    """What the profile says of a GEMM; of launches, and of PyTorch's decode attention, it says nothing."""
    name, shape = task
    if not name.startswith("gemm"):
        return None
    sizes = {column: np.array([float(shape.get(column, 1.0))]) for column in COLUMNS["gemm"]}
    machine = Machine(Pool.of(chip, 1), profile)
    dtype = "fp8" if name == "gemm_fp8" else str(shape["dtype"])
    return float(machine.seconds("gemm", dtype, shape_of("gemm", sizes))[0]) * 1e6


def _energy(rows: Sequence[Row], chip: Chip, profile: Profile, known: Mapping[str, float] | None) -> float | None:
    """Joules of a FLOP at full clock beside the profile's, by how much slower a sustained GEMM is than a burst of it.

    At its limit a board that draws P at full clock runs slower by the root of P over the limit.
    """
    power, row = profile.power, next((row for row in rows if row["task"] == key(SUSTAINED)), None)
    if row is None or LIMIT not in power or not row.get("burst_us"):
        return None
    cap, base = power[LIMIT] * chip.tdp_w, power["active_w"]
    burst_s, flops = float(row["burst_us"]) * 1e-6, float(row["flops"])
    here = float(row["time_us"]) / float(row["burst_us"])
    if known:
        there = known["time_us"] / known["burst_us"]
    else:
        none, compute_s, compute_j = np.zeros(1), np.array([burst_s]), np.array([power[BURST] * flops])
        slower = slowdown(power, chip, compute_s=compute_s, compute_j=compute_j, other_s=none, other_j=none)
        there = float(slower[0])
    at_limit = there <= 1.0 + 1e-6 or here <= 1.0 + 1e-6
    return None if at_limit else float((here**2 * cap - base) / (there**2 * cap - base))


def quick(question: CalibrateQuestion, progress: Callable[[int, int, str], None] | None = None) -> QuickCalibrated:
    """The first GPU measured for about a minute; its factors kept where predictions find them."""
    from gnomon.calibrate.session import opened

    tell = progress or (lambda *_: None)
    raw = Path(question.out or "quick.json")
    lab, chip, head, problems = opened(str(raw), force=question.force)
    if question.on is not None:
        _check_chip(question.on, chip)
    try:
        rows, skipped = measured_rows(lab, chip, tell)
    finally:
        lab.close()
    data = {"schema": RAW, **head, "host": host_name(), "problems": list(problems), "rows": rows, "skipped": skipped}
    _write(raw, json.dumps(data, indent=1) + "\n")
    return fitted_quick(data, chip, table=str(raw), profile=question.profile)


def _check_chip(asked: str, found: Chip) -> None:
    from gnomon.load.chips import chip as find_chip

    if find_chip(asked).name != found.name:
        raise CalibrationError(f"this machine's card is {found.name}", where=f"--on {asked}")


def fitted_quick(
    data: Mapping[str, Any], chip: Chip, *, table: str, profile: str | Path | None = None
) -> QuickCalibrated:
    """The card's file from measured rows, kept where it is used or in the file `profile`."""
    import yaml

    factors, spread, against = factors_of(data["rows"], chip, shipped_profile(chip))
    if not factors:
        raise CalibrationError("none of the kernels could be measured", where=table)
    for name, value in factors.items():
        low, high = RANGES[name]
        if not low <= value <= high:
            hint = "Is this the chip, at its own power limit and clocks, and nobody else on it?"
            message = f"{name} is {value:.2f} times that of the profile, not {low:g} to {high:g}"
            raise CalibrationError(message, where=table, hint=hint)
    made: dict[str, Any] = {
        "schema": SCHEMA, "chip": chip.name, "date": str(data["date"]), "versions": dict(data["versions"]),
        "host": str(data["host"]), "against": against, "forced": list(data["problems"]),
        "factors": {name: round(value, 4) for name, value in factors.items()},
        "spread": {name: round(value, 4) for name, value in spread.items()},
    }  # fmt: skip
    card_from_dict(made, "the new card", chip.name)
    target = Path(profile) if profile is not None else card_path(chip.name)
    _write(target, yaml.safe_dump(made, sort_keys=False, width=100))
    forget_cards()
    forget_profiles()
    return QuickCalibrated(
        title=f"{chip.name}: this card beside the shipped profile",
        chip=chip.name,
        table=table,
        profile=str(target),
        factors=made["factors"],
        spread=made["spread"],
        against=against,
        skipped=dict(data["skipped"]),
        notes=tuple(data["problems"]),
        in_use=profile is None,
    )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"cannot be made: {problem.strerror or problem}", where=str(path.parent)) from None
    write_text(path, text)
