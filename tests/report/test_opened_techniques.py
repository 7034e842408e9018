"""Answers with techniques opened, and as files: every part that one makes is named with what it follows from."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.cli.run import run
from gnomon.errors import InputError
from gnomon.load.answers import answer_from_dict
from gnomon.planning.training.memory import memory_over_time
from gnomon.report.opened import opened
from gnomon.spec.answers import AnswerNode, Result, TrainingReport
from gnomon.techniques import TRAINING, canonical, techniques

FLAT = {"on": "H100:8", "seq": 2048, "global_batch": 64, "tp": 2, "zero": 2}
PIPED = {"on": "H100:8", "seq": 2048, "global_batch": 64, "tp": 2, "pp": 4}
CASES = {
    "checkpoints": (FLAT, ["async-checkpointing:mode=synchronous,every=1"]),
    "lazy": (FLAT, ["checkpoints:every=1"]),
    "offload-optimizer": (FLAT, ["offload-optimizer:stride=2"]),
    "two": (FLAT, ["async-checkpointing:mode=synchronous,every=1", "offload-optimizer"]),
    "vocabulary-parallel": (PIPED, ["vocabulary-parallel:barriers=2"]),
    "gpipe": (PIPED, ["gpipe:stages=4"]),
    "interleaved": (PIPED, ["interleaved"]),
    "ring-attention": (FLAT, ["ring-attention"]),
}


def _others() -> Iterator[tuple[str, tuple[dict[str, Any], list[str]]]]:
    """A case for every other technique of training that applies to one of both plans."""
    named = {canonical(text) for _, applied in CASES.values() for text in applied}
    for name, one in techniques().items():
        for words in (FLAT, PIPED):
            if name not in named and TRAINING in one.work:
                with suppress(InputError):
                    gnomon.simulate_training("llama-3.1-8b", **words, techniques=[name])
                    yield name, (words, [name])
                    break


CASES |= dict(_others())


def step(case: str) -> TrainingReport:
    words, applied = CASES[case]
    return gnomon.simulate_training("llama-3.1-8b", **words, techniques=applied)


def nodes_of(found: Result) -> tuple[AnswerNode, ...]:
    """Those of the answer as it comes back from a file."""
    return opened(answer_from_dict(json.loads(json.dumps(found.to_dict()))), lambda *_: None)


def flat(nodes: Sequence[AnswerNode]) -> dict[str, AnswerNode]:
    return {node.name: node for top in nodes for node in (top, *flat(top.parts).values())}


def tree(case: str) -> dict[str, AnswerNode]:
    return flat(nodes_of(step(case)))


@pytest.mark.parametrize("case", CASES)
def test_what_a_technique_adds_follows_from_it(case: str) -> None:
    found, nodes = step(case), tree(case)
    words, applied = CASES[case]
    plain = gnomon.simulate_training("llama-3.1-8b", **words)
    same = found.plan.strategy.ranks == plain.plan.strategy.ranks and found.plan.engine == plain.plan.engine
    if found.step_parts.get("waits_s"):
        node = nodes["waits of techniques"]
        assert any(text in node.formula for text in applied)
        assert float(nodes["waiting"].shown.rstrip("%")) > 0
    if found.host_bytes:
        assert any(text in nodes["host memory"].formula for text in applied)
    else:
        assert "host memory" not in nodes
    moved = found.step_parts["optimizer_s"] != pytest.approx(plain.step_parts["optimizer_s"])
    if same and moved and replace(found.plan.strategy, techniques=()) == plain.plan.strategy:
        assert any(text in nodes["optimizer"].formula for text in applied)
    assert flat(nodes_of(plain))["optimizer"].formula == ""


def test_waits_are_no_communication() -> None:
    plain = gnomon.simulate_training("llama-3.1-8b", **FLAT)
    waiting = step("checkpoints")
    assert waiting.step_parts["waits_s"] > 0.1 * waiting.step_time_s.value
    assert waiting.exposed_communication_s == pytest.approx(plain.exposed_communication_s)
    assert tree("checkpoints")["what binds"].shown.startswith("waiting: rarer checkpoints")
    short = gnomon.simulate_training("llama-3.1-8b", **{**FLAT, "global_batch": 4}, techniques=["offload-optimizer"])
    assert "a faster update and link" in flat(nodes_of(short))["what binds"].shown


@pytest.mark.parametrize("case", CASES)
def test_the_fullest_moment_is_the_reported_peak(case: str) -> None:
    found = step(case)
    for rank, parts in enumerate(found.memory_parts):
        moments = list(memory_over_time(found.step, rank))
        assert max(moment.bytes for moment in moments) == pytest.approx(found.step.peaks[rank], rel=1e-9)
        still = sum(parts[name] for name in ("weights", "gradients", "optimizer", "buffers"))
        assert min(moment.bytes for moment in moments) == pytest.approx(still, rel=1e-9)
        assert moments[-1].time_s == pytest.approx(found.step_time_s.value)
        assert all(before.time_s <= after.time_s + 1e-12 for before, after in pairwise(moments))


@pytest.mark.heavy
@pytest.mark.parametrize("case", ["checkpoints", "vocabulary-parallel", "offload-optimizer"])
def test_the_files_end_where_the_step_ends(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, (given, applied) = step(case), CASES[case]
    flags = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    flags += [word for text in applied for word in ("--with", text)]
    trace, memory = tmp_path / "trace.json", tmp_path / "memory.csv"
    files = ["--trace-out", str(trace), "--memory-out", str(memory)]
    assert run(["simulate", "train", "llama-3.1-8b", *flags, *files]) == 0
    capsys.readouterr()
    slices = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(found.step_time_s.value * 1e6)
    waits = [event["dur"] for event in slices if event["name"] == "waits"]
    wanted = found.step_parts.get("waits_s", 0.0)
    assert waits == pytest.approx([wanted * 1e6] * found.plan.strategy.pp if wanted else [])
    rows = list(csv.DictReader(io.StringIO(memory.read_text())))
    assert max(float(row["bytes"]) for row in rows) == pytest.approx(found.peak_memory_bytes.value)


@pytest.mark.parametrize(
    ("slug", "words"),
    [
        ("zero-offload", {"on": "H100:8", "seq": 2048, "global_batch": 16}),
        ("gpipe", {"on": "H100:8", "seq": 2048, "global_batch": 16}),
        ("gptq", {"on": "H100"}),
    ],
)
def test_a_tried_idea_opens_into_two_plans(
    slug: str, words: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = gnomon.try_idea(slug, model="llama-3.1-8b", **words)
    gain, *sides = nodes_of(answer)
    assert answer.gain and gain.name == "gain" and gain.shown == f"{answer.gain.value:.2f}x"
    assert [side.name for side in sides] == ["without it", "with it"]
    for side, figures in zip(sides, (answer.plain, answer.applied), strict=True):
        command = flat([side])["opened by"].shown
        assert run([*shlex.split(command)[1:], "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
        time = again.get("step_time_s") or again["time_s"]
        assert figures and time["value"] == pytest.approx(figures["step_time_s"].value, rel=1e-9)


def test_an_idea_that_nothing_fits_with_opens_too() -> None:
    answer = gnomon.try_idea("zero-offload", model="llama-3.1-405b", on="H100:1", seq=2048, global_batch=16)
    gain, *sides = nodes_of(answer)
    assert answer.gain is None and gain.formula == answer.verdict
    assert [side.shown for side in sides if side.shown in ("none fits", "not used")]


def test_a_rank_alone_waits_for_copies_and_not_for_others() -> None:
    words = {"on": "H100:8", "seq": 4096, "global_batch": 64, "zero": 3}
    found = gnomon.simulate_training("llama-3.1-8b", **words, techniques=["offload-activations", "offload-optimizer"])
    nodes = flat(nodes_of(found))
    assert "waiting for copies" in nodes and "the bubble" not in nodes
    shares = [float(part.shown.rstrip("%")) for part in nodes["what binds"].parts]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert nodes["what binds"].shown.startswith("copies: ")
