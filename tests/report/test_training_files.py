"""A training step as files: what a trace viewer, a spreadsheet and an eye get to see."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gnomon.errors import MissingExtraError
from gnomon.report.memory_plot import COLUMNS, draw, thinned
from gnomon.report.training_trace import THREADS, write_memory, write_trace
from gnomon.sim.training import StepTimes, Timeline, schedule, timeline

MICROS = 8
MOMENTS = [(0.0, 10.0, "waiting"), (0.5, 30.0, "F 0 layer 0 ffn.up"), (1.5, 10.0, "end")]


def step(pp: int = 4, vp: int = 2, send_s: float = 0.3) -> Timeline:
    times = StepTimes(
        forward_s=np.full((pp, vp), 1.0),
        backward_s=np.full((pp, vp), 2.0),
        forward_send_s=send_s,
        backward_send_s=send_s,
        reduce_s=0.5,
        reduce_parts=2,
        overlap=True,
        optimizer_s=0.25,
        gather_s=0.125,
    )
    return timeline(schedule("interleaved" if vp > 1 else "1f1b").tasks(pp, vp, MICROS), times)


def events(line: Timeline) -> list[dict[str, Any]]:
    out = io.StringIO()
    write_trace(line, lambda rank: [(t, size + rank, what) for t, size, what in MOMENTS], out, 'a "title"')
    read = json.loads(out.getvalue())
    assert read["otherData"] == {"title": 'a "title"'}
    found: list[dict[str, Any]] = read["traceEvents"]
    return found


def test_a_process_a_rank_with_a_line_for_all_that_runs_at_once() -> None:
    seen = events(step())
    processes = {e["pid"]: e["args"]["name"] for e in seen if e["name"] == "process_name"}
    assert processes == {rank: f"pipeline rank {rank}" for rank in range(4)}
    threads = {(e["pid"], e["args"]["name"]) for e in seen if e["name"] == "thread_name"}
    assert threads == {(rank, name) for rank in range(4) for name in THREADS}
    assert len(set(THREADS.values())) == len(THREADS)


@pytest.mark.parametrize("send_s", [0.0, 0.3, 5.0])
def test_slices_of_a_line_do_not_overlap(send_s: float) -> None:
    lines: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events(step(send_s=send_s)):
        if event["ph"] == "X":
            lines[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(lines) == 4 * (len(THREADS) if send_s else 2)
    for line in lines.values():
        assert all(one[1] <= next_[0] + 1e-6 for one, next_ in pairwise(sorted(line)))


def test_every_pass_is_there_with_its_chunk_and_micro_batch() -> None:
    line = step()
    slices = [event for event in events(line) if event["ph"] == "X"]
    passes = {
        (event["pid"], event["name"], event["args"]["chunk"], event["args"]["micro_batch"])
        for event in slices
        if event["tid"] == THREADS["compute"] and event["args"]
    }
    expected = {
        (rank, f"{task.kind} {task.micro}", task.chunk, task.micro)
        for rank, tasks in enumerate(line.orders)
        for task in tasks
    }
    assert passes == expected
    names = {event["name"] for event in slices}
    assert {"optimizer", "gather", "reduce", "send F 0", "send B 0"} <= names
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(line.step_s * 1e6)


def test_what_takes_no_time_is_no_slice() -> None:
    assert all(event["dur"] > 0 for event in events(step(1, 1, 0.0)) if event["ph"] == "X")


def test_memory_is_a_counter_of_each_rank() -> None:
    counters = [event for event in events(step()) if event["ph"] == "C"]
    assert [(e["ts"], e["args"]["bytes"]) for e in counters if e["pid"] == 2] == [
        (0.0, 12.0),
        (5e5, 32.0),
        (1.5e6, 12.0),
    ]
    assert {event["name"] for event in counters} == {"memory"}


def test_memory_as_a_table() -> None:
    out = io.StringIO()
    write_memory([MOMENTS, MOMENTS[:1]], out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert list(rows[0]) == ["rank", "time_s", "bytes", "what"]
    assert [(row["rank"], float(row["bytes"])) for row in rows] == [("0", 10), ("0", 30), ("0", 10), ("1", 10)]
    assert rows[1]["what"] == "F 0 layer 0 ffn.up"


def test_thinning_keeps_the_extremes_and_the_order() -> None:
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 7, 50_000))
    moments = [(float(t), float(size), "") for t, size in zip(times, rng.uniform(1, 9, times.size), strict=True)]
    kept = thinned(moments)
    assert len(kept) <= 2 * (COLUMNS + 1)
    assert max(size for _, size in kept) == max(size for _, size, _ in moments)
    assert min(size for _, size in kept) == min(size for _, size, _ in moments)
    assert kept == sorted(kept)
    assert thinned(MOMENTS) == [(t, size) for t, size, _ in MOMENTS]


@pytest.mark.parametrize("ranks", [1, 3, 20])
def test_a_drawing(ranks: int) -> None:
    pytest.importorskip("matplotlib")
    lines = [MOMENTS] * ranks
    svg = draw(lines, 75.0 * 1024**3, "GPT-3 <175B>", "svg")
    assert svg == draw(lines, 75.0 * 1024**3, "GPT-3 <175B>", "svg"), "the same file every time"
    assert svg.startswith(b"<?xml")
    assert draw(lines, 75.0 * 1024**3, "GPT-3", "png").startswith(b"\x89PNG")


def test_no_drawing_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="matplotlib"):
        draw([MOMENTS], 1.0, "", "svg")
