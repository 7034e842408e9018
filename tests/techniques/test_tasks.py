"""A technique that copies activations to the host and back, as far as a contract test needs one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.cli.run import run
from gnomon.engines.training import RankMemory
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.side import SideColumns, SideGroup, part_bytes
from gnomon.errors import InputError
from gnomon.planning.training.memory import memory_over_time
from gnomon.planning.training.step import step_bound_s
from gnomon.sim.training import SCHEDULES, names
from gnomon.sim.training.side import COPY_IN, COPY_OUT
from gnomon.techniques import TRAINING, Technique
from gnomon.techniques.base import Parameter, Rejection, Values
from gnomon.techniques.hosts import link_bytes_s, no_host

PARTS, ROOM = 4, 3
LOAD: dict[str, Any] = {"model": "llama-3.1-8b", "seq": 4096, "global_batch": 32, "micro_batch": 1, "zero": 1}


class Copied(Technique[TrainingCase]):
    name = title = "copied-activations"
    idea = "Activations go to the host and come back."
    work = (TRAINING,)
    parameters = (Parameter("gb_s", "of a rank's link; 0 for the link's own", default=0.0, high=1e4),)

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        yield True, no_host(case.pool)
        split = [code for code, name in enumerate(names()) if SCHEDULES[name].splits_backward]
        yield np.isin(case.plans.schedule, split), "backwards by weight would keep what is copied"

    def _sizes(self, case: TrainingCase) -> tuple[Any, ...]:
        return tuple(kind.saved_activation_bytes for kind in case.table.chunks.kinds)

    def tasks(self, case: TrainingCase, values: Values) -> Iterator[SideGroup]:
        sizes = self._sizes(case)
        link = float(values["gb_s"]) * 1e9 or link_bytes_s(case)
        seconds = tuple(size / link for size in sizes)
        out = SideColumns(name=COPY_OUT, layer_s=seconds, layer_bytes=sizes, after="F")
        back = SideColumns(name=COPY_IN, layer_s=seconds, layer_bytes=sizes, before="B", follows=True)
        limit = ROOM * part_bytes(case.table.chunks, sizes, PARTS)
        yield SideGroup(tasks=(out, back), parts=PARTS, limit_bytes=limit)

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        kept = ROOM * part_bytes(case.table.chunks, self._sizes(case), PARTS)
        return replace(used, activations=np.minimum(used.activations, kept), host=used.host + used.activations)


@pytest.fixture
def copied(outside: dict[str, Any]) -> list[str]:
    outside["copied-activations"] = Copied()
    return ["copied-activations"]


def simulate(**more: Any) -> Any:
    return gnomon.simulate_training(on="H100:8", **LOAD, **more)


@pytest.mark.parametrize("degrees", [{}, {"pp": 4}, {"pp": 4, "vp": 2}], ids=str)
def test_copies_are_timed_and_bounded_and_their_room_is_kept(copied: list[str], degrees: dict[str, Any]) -> None:
    plain = simulate(**degrees)
    for rate in (0, 5, 500):
        found = simulate(**degrees, techniques=[f"copied-activations:gb_s={rate}"])
        step = found.step
        assert found.step_time_s.value >= plain.step_time_s.value * (1 - 1e-9)
        assert float(step_bound_s(step.figures, step.traits)[0]) <= step.timeline.step_s
        assert found.memory_parts[0]["activations"] < plain.memory_parts[0]["activations"]
        assert found.host_bytes > 0
        ((group,), _) = step.figures.side, None
        limit = float(np.broadcast_to(group.limit_bytes, step.figures.grid.size)[0])
        assert all(0 < most <= limit * (1 + 1e-9) for held in step.timeline.held_bytes for most in held)
        if rate == 5:
            copies = 2 * sum(span.end_s - span.start_s for span in step.timeline.spans() if span.name == COPY_OUT)
            assert found.step_time_s.value > 1.2 * plain.step_time_s.value and copies > 0
        last = list(memory_over_time(step, 0))[-1]
        assert last.time_s == pytest.approx(found.step_time_s.value)


def test_a_search_finds_the_plan_that_it_times(copied: list[str]) -> None:
    load = {"model": "llama-3.2-1b", "seq": 4096, "global_batch": 8}
    found = gnomon.plan_training(**load, cluster="H100:4", techniques=copied)
    best = found.best
    degrees = {name: getattr(best.plan.strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    again = gnomon.simulate_training(
        **load, on=f"H100:{best.plan.strategy.ranks}", techniques=copied, **degrees, **dict(best.plan.engine.settings)
    )
    assert again.step_time_s.value == pytest.approx(best.step_time_s.value, rel=1e-9)
    assert found.bound_s <= best.step_time_s.value


def test_sequences_that_differ_are_refused(copied: list[str]) -> None:
    with pytest.raises(InputError, match="are not timed with sequences that differ in length"):
        simulate(techniques=copied, lengths="lognormal:mean=700,cv=1.2")


def test_the_trace_has_lanes_of_copies(copied: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    words = [
        "simulate",
        "train",
        "llama-3.1-8b",
        "--on",
        "H100:8",
        "--seq",
        "4096",
        "--global-batch",
        "32",
        "--pp",
        "4",
    ]
    assert run([*words, "--with", copied[0], "--trace-out", str(file)]) == 0
    events = json.loads(file.read_text())["traceEvents"]
    lanes = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X" and event["name"].startswith("copy")]
    assert {event["tid"] for event in slices} == {lanes["copies out"], lanes["copies in"]}
    assert run([*words, "--trace-out", str(file)]) == 0
    assert "copies" not in file.read_text()
    capsys.readouterr()
