"""What a command gives and a technique sets: the same, or refused by both names."""

from __future__ import annotations

import shlex

import pytest

import gnomon
from gnomon.cli.run import run
from gnomon.errors import InputError

STEP = "simulate train llama-3.2-1b --seq 4096 --global-batch 64"
REFUSED = {
    "--on H100:8 --schedule 1f1b --recompute none --with gpipe:stages=4": "--schedule: 1f1b",
    "--on H100:8 --recompute none --with gpipe:stages=4": "--recompute: none",
    "--on H100:8 --recompute selective --with gpipe:stages=4": "--recompute: selective",
    "--on H100:8 --pp 1 --with gpipe:stages=4": "--pp: 1",
    "--on H100:8 --dp 8 --with gpipe:stages=4": "--dp: 8",
    "--on H100:8 --pp 4 --schedule 1f1b --with interleaved:parts=2": "--schedule: 1f1b",
    "--on H100:8 --pp 4 --vp 1 --with interleaved:parts=2": "--vp: 1",
    "--on H100:2 --dp 2 --with ring-attention:ranks=2": "--dp: 2",
    "--on H100:8 --cp 1 --with ring-attention:ranks=2": "--cp: 1",
    "--on H100:8 --cp 2 --cp-comm allgather --with ring-attention:ranks=2": "--cp-comm: allgather",
}
TAKEN = [
    "--on H100:8 --with gpipe:stages=4",
    "--on H100:8 --pp 4 --dp 2 --vp 1 --schedule gpipe --recompute full --with gpipe:stages=4",
    "--on H100:8 --pp 4 --vp 2 --schedule interleaved --with interleaved:parts=2",
    "--on H100:8 --cp 2 --dp 4 --cp-comm p2p --with ring-attention:ranks=2",
    "--on H100:8 --with ring-attention:ranks=2",
]


@pytest.mark.parametrize("words", REFUSED)
def test_what_differs_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(f"{STEP} {words}")) == 2
    said = capsys.readouterr().err
    technique = words.rpartition("--with ")[2].partition(":")[0]
    assert f"{REFUSED[words]} is given, but the technique {technique} sets" in said


PARTS = "the plan has 2 model chunks per chip, and a GPipe stage has one"
APART = {
    "--on H100:16 --tp 2 --pp 4 --vp 2 --schedule interleaved --recompute none --with gpipe:stages=4": PARTS,
    "--on H100:8 --vp 2 --pp 4 --with gpipe:stages=4": PARTS,
    "--on H100:8 --pp 4 --vp 2 --with interleaved:parts=4": "the plan has 2 model chunks per chip, not 4",
    "--on H100:8 --pp 2 --with gpipe:stages=4": "the plan has 2 stages, not 4",
    "--on H100:8 --cp 4 --with ring-attention:ranks=2": "the plan shards sequences over 4 ranks, not 2",
}


@pytest.mark.parametrize("words", APART)
def test_a_technique_of_another_plan_does_not_apply(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(f"{STEP} {words}")) == 2
    assert f"does not apply: {APART[words]}" in capsys.readouterr().err


@pytest.mark.parametrize("words", TAKEN)
def test_what_agrees_is_taken(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(f"{STEP} {words}")) == 0
    assert capsys.readouterr().out


def test_the_same_in_python() -> None:
    words = {"on": "H100:8", "seq": 4096, "global_batch": 64, "techniques": ["gpipe:stages=4"]}
    with pytest.raises(InputError, match="none is given, but the technique gpipe sets full"):
        gnomon.simulate_training("llama-3.2-1b", recompute="none", **words)  # type: ignore[arg-type]
    found = gnomon.simulate_training("llama-3.2-1b", **words)  # type: ignore[arg-type]
    assert (found.plan.strategy.pp, found.plan.engine.settings["recompute"]) == (4, "full")
