"""A GPU made of formulas: the time of a task is its model's, with noise that the task's own name seeds."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from gnomon import catalog
from gnomon.calibrate.collect import key
from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Skipped
from gnomon.calibrate.shapes import Design
from gnomon.cost.kernels import kernel_model
from gnomon.cost.rows import COLUMNS, shape_of

H200 = catalog.chip("H200")
HEAD = {"chip": H200.name, "date": "2026-11-15", "versions": {"torch": "2.11.0", "gpu": "NVIDIA H200"}}
SECONDS_A_ROW = 0.125


class Killed(Exception):
    """The process is gone."""


class FakeBench:
    """Measures until it is killed."""

    def __init__(self, kinds: dict[str, str], last: int | None = None) -> None:
        self.kinds, self.left, self.now = kinds, last, 0.0
        self.troubles: tuple[str, ...] = ()

    def clock(self) -> float:
        return self.now

    def problems(self) -> tuple[str, ...]:
        return self.troubles

    def measure(self, name: str, shape: dict[str, Any]) -> Row:
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1
        seed = zlib.crc32(key((name, shape)).encode())
        if seed % 23 == 0:
            raise Skipped("RuntimeError: no such kernel")
        self.now += SECONDS_A_ROW
        kind, dtype = self.kinds[name], shape.get("dtype", "bf16")
        sizes = {column: np.array([float(shape[column])]) for column in COLUMNS[kind]}
        model = kernel_model(kind)
        start = {coefficient: first for coefficient, (first, _, _) in model.ranges.items()}
        seconds = float(model.seconds(shape_of(kind, sizes), dtype, H200, start)[0])
        noise = float(np.exp(0.05 * np.random.default_rng(seed).standard_normal()))
        return shape | {
            "op": kind, "dtype": dtype, "framework": "torch", "time_us": seconds * noise * 1e6, "spread": 0.01,
        }  # fmt: skip


def small(design: Design, first: int, each: int) -> Design:
    """The same with fewer tasks."""
    from dataclasses import replace

    return replace(design, first=design.first[:first], pool=design.pool[::9], each=each, rounds=2)
