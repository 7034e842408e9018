"""What the host of vLLM's worker takes for each step, noted inside the worker itself.

vLLM loads general plugins in every process of an engine. `installed` makes one of this module for the engines that are
started inside the block: it wraps the model runner's methods and writes a row for each step to a file, which `rows`
reads. Times are of the host alone: a method that waits for the device (as activating adapters does) takes as long as
it waits.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

FILE = "GNOMON_HOST_TIMES"
RUNNERS = ("vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.gpu_model_runner")
"""Of the second and of the first model runner: each has a class of the same name."""
PARTS = {"lora_us": "_set_active_loras", "inputs_us": "_prepare_inputs", "draft_us": "propose_draft_token_ids"}
COLUMNS = ("begin_us", "execute_us", "sample_us", "tokens", "requests", *PARTS)
FLUSH_S = 0.5


@contextmanager
def installed(path: Path) -> Iterator[None]:
    """Have engines started inside write their steps to a file."""
    with tempfile.TemporaryDirectory(prefix="gnomon-plugin-") as folder:
        about = Path(folder, "gnomon_host_times-0.dist-info")
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gnomon-host-times\nVersion: 0\n")
        (about / "entry_points.txt").write_text("[vllm.general_plugins]\nhost_times = tools.host_times:register\n")
        paths = (str(folder), str(Path.cwd()), os.environ.get("PYTHONPATH", ""))
        os.environ |= {"PYTHONPATH": os.pathsep.join(path for path in paths if path), FILE: str(path)}
        sys.path.insert(0, folder)  # a process that is spawned gets this path, whatever its environment says
        try:
            yield
        finally:
            sys.path.remove(folder)


def register() -> None:
    """Called by vLLM in each of its processes; the front end has no model runner."""
    if not os.environ.get(FILE) or multiprocessing.parent_process() is None:
        return
    for name in RUNNERS:
        try:
            _wrap(importlib.import_module(name).GPUModelRunner)
        except Exception:
            traceback.print_exc()


def _wrap(runner: Any) -> None:
    if hasattr(runner, "gnomon_steps"):
        return
    steps = runner.gnomon_steps = _Steps(Path(os.environ[FILE]))
    execute, sample = runner.execute_model, runner.sample_tokens
    for column, name in PARTS.items():
        if hasattr(runner, name):
            setattr(runner, name, _timed(getattr(runner, name), steps, column))

    def executed(self: Any, scheduled: Any, *args: Any, **options: Any) -> Any:
        steps.begin(int(scheduled.total_num_scheduled_tokens), len(scheduled.num_scheduled_tokens))
        begin = time.monotonic()
        try:
            return execute(self, scheduled, *args, **options)
        finally:
            steps.add("execute_us", begin)

    runner.execute_model = executed
    runner.sample_tokens = _timed(sample, steps, "sample_us")


def _timed(method: Callable[..., Any], steps: _Steps, column: str) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        begin = time.monotonic()
        try:
            return method(*args, **options)
        finally:
            steps.add(column, begin)

    return timed


class _Steps:
    """The row of the step under way, and the file of those before."""

    def __init__(self, path: Path) -> None:
        self._file = path.with_name(f"{path.name}.{os.getpid()}").open("w", buffering=1 << 16)
        self._row: dict[str, int] = {}
        self._flushed = 0.0

    def begin(self, tokens: int, requests: int) -> None:
        now = time.monotonic()
        if self._row:
            self._file.write(",".join(str(self._row.get(name, 0)) for name in COLUMNS) + "\n")
        if now - self._flushed > FLUSH_S:
            self._file.flush()
            self._flushed = now
        self._row = {"begin_us": int(1e6 * now), "tokens": tokens, "requests": requests}

    def add(self, column: str, begin: float) -> None:
        self._row[column] = self._row.get(column, 0) + int(1e6 * (time.monotonic() - begin))


def rows(path: Path, since_s: float) -> dict[str, list[int]]:
    """Columns of the steps that began later on the monotonic clock; empty where no engine wrote any."""
    found = []
    for part in path.parent.glob(f"{path.name}.*"):
        for line in part.read_text().splitlines():
            row = [int(value) for value in line.split(",")] if line.count(",") == len(COLUMNS) - 1 else []
            if row and row[0] >= 1e6 * since_s:
                found.append(row)
    table = np.array(sorted(found), np.int64).reshape(-1, len(COLUMNS))
    table[:, 0] = np.diff(table[:, 0], prepend=int(1e6 * since_s))
    return {name: column.tolist() for name, column in zip(COLUMNS, table.T, strict=True)}
