"""Which published tables can be trusted, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.calibrate import truth
from gnomon.calibrate.truth import Table
from gnomon.cost.rows import shape_of
from gnomon.cost.work import work
from gnomon.errors import GnomonError
from gnomon.graph.dtypes import gemm_format
from gnomon.load.chips import chip as find_chip
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

LEAST_US = 20.0
"""Of published tables, shorter rows may say more of how they were timed."""
LEAST_GRAPH_US, IN_GRAPHS = 5.0, "aiconfigurator"
"""And of the source that times kernels inside CUDA graphs, down to 2 us: what a decode step under tensor parallelism is
made of. A fit to longer rows alone prices those of 6 to 10 us, of vLLM's fp8 GEMMs on a B200, 1.6 times too slow."""
LEAST_ROWS = 500
SHORT_US, HOST_US, SHORT_SHARE = 5.0, 50.0, 0.1
"""A table is held back by the host where nine tenths of what the chip could do in `SHORT_US` took `HOST_US`."""
TOO_QUICK, TOO_QUICK_CACHED, TOO_MANY = 0.95, 0.7, 0.02
"""Rows that beat the data sheet cannot be: its arithmetic by a twentieth, its memory by more than caches explain. A
table with more than a few such rows is left out."""

LeaveOut = Callable[[str, str, int], None]
"""(table, reason, rows)"""


def published(
    folder: Path, leave_out: LeaveOut, most: int | None = None, *, short: bool = False
) -> Iterator[tuple[Table, Chip]]:
    """Groups of the published tables that can be trusted, their longer rows, `most` of them; the others are told.
    `short` rows come too, of a source that times them well."""
    for name in truth.READERS:
        for table in truth.tables(folder, name):
            try:
                chip = find_chip(table.chip)
                least = LEAST_GRAPH_US if short and table.source.startswith(IN_GRAPHS) else LEAST_US
                reason = unfit(table, chip, least)
            except (GnomonError, KeyError) as error:
                reason = f"refused: {error.message if isinstance(error, GnomonError) else error}"
            if reason:
                leave_out(table.name, reason, table.rows)
            else:
                yield cut(picked(table, np.flatnonzero(table.columns["time_us"] >= least)), most), chip


def unfit(table: Table, chip: Chip, least: float = LEAST_US) -> str:
    """Why a table is not trusted; nothing where it is."""
    times = table.columns["time_us"]
    long = times >= least
    if long.sum() < LEAST_ROWS:
        return f"fewer than {LEAST_ROWS} rows above {least:g} us"
    arithmetic, streaming = least_us(table, chip)
    short = np.maximum(arithmetic, streaming) < SHORT_US
    if short.mean() > SHORT_SHARE and np.quantile(times[short], 0.1) > HOST_US:
        return f"held back by the host: never under {times.min():.0f} us"
    quick = times < TOO_QUICK * arithmetic
    if table.kind != "moe":  # how many experts are visited, and so how much is read, is not in the table
        quick |= times < TOO_QUICK_CACHED * streaming
    impossible = float(quick[long].mean())
    return f"{impossible:.0%} of its rows beat the chip's peak" if impossible > TOO_MANY else ""


def least_us(table: Table, chip: Chip) -> tuple[Floats, Floats]:
    """The least that each row's arithmetic, and its bytes, can take by the data sheet."""
    sizes = shape_of(table.kind, {name: values for name, values in table.columns.items() if name != "time_us"})
    flops, moved = work(table.kind, table.dtype, sizes)
    rate = chip.matrix_rate("bf16" if table.kind.startswith("attention") else gemm_format(table.dtype).compute_dtype)
    return flops / rate * 1e6, moved / chip.memory_bandwidth_bytes_s * 1e6


def picked(table: Table, places: NDArray[np.int64]) -> Table:
    return replace(table, columns={name: values[places] for name, values in table.columns.items()})


def cut(table: Table, most: int | None) -> Table:
    """At most so many rows, the same ones every time."""
    if most is None or table.rows <= most:
        return table
    return picked(table, np.sort(np.random.default_rng(0).permutation(table.rows)[:most]))
