"""Layers of a served model that are copied from the host or its disks: laws, and figures by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import gnomon
from gnomon.cost.host_link import LINK_SHARE
from gnomon.errors import InputError
from gnomon.papers.machines import cluster, host
from gnomon.spec.answers import Prediction

MODEL, LAYERS = "llama-3.1-8b", 32
LAYER = 2 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336 + 2 * 4096)
"""Bytes of one layer: matrices and two norms."""
LINK, READ = 20e9, 5e9
STEP_TOKENS = "max_num_batched_tokens"
RATE = LINK_SHARE * LINK


def machine(*, memory_gib: float = 512, nvme_tb: float = 3.2, chips: int = 1) -> Any:
    one = host(cores=64, memory_gib=memory_gib, memory_gb_s=400, adam_gparam_s=3, link_gb_s=LINK / 1e9)
    return cluster("A100-80GB", chips, chips, one | {"nvme_tb": nvme_tb, "nvme_read_gb_s": READ / 1e9})


def step(*named: str, batch: int = 4, **words: Any) -> Prediction:
    words = {"phase": "decode", "context": 200, "batch": batch} | words
    return gnomon.predict(MODEL, on=words.pop("on", machine()), **words, techniques=list(named))


def text(**values: object) -> str:
    return "streamed-layers:" + ",".join(f"{name}={value}" for name, value in values.items())


def seconds(found: Prediction) -> float:
    return found.time_s.value


def test_copies_that_are_due_come_one_after_the_other() -> None:
    plain, found = step(), step(text(ahead=0))
    assert seconds(found) - seconds(plain) == pytest.approx(LAYERS * LAYER / RATE, rel=1e-3)


def test_copies_ahead_leave_the_longer_of_both() -> None:
    """A step of few tokens takes its copies and what comes after them; one of many its compute alone."""
    long: dict[str, Any] = {"phase": "prefill", "tokens": 4000, "batch": 4, "settings": {STEP_TOKENS: 16384}}
    few, many = (step(text(ahead=1), **words) for words in ({}, long))
    head = next(line.time_s.value for line in few.breakdown if line.op == "head.logits")
    assert seconds(few) == pytest.approx(LAYERS * LAYER / RATE + head, rel=0.01)
    assert seconds(many) == pytest.approx(seconds(step(**long)), rel=1e-6)


def test_disks_and_link_one_after_the_other_or_at_once() -> None:
    plain = seconds(step())
    due, ahead = (seconds(step(text(tier="nvme", ahead=count))) for count in (0, 2))
    assert due - plain == pytest.approx(LAYERS * LAYER * (1 / RATE + 1 / READ), rel=1e-3)
    assert ahead == pytest.approx(LAYERS * LAYER / READ, rel=0.01)


@pytest.mark.parametrize("batch", [1, 64, 256])
def test_more_ahead_and_more_that_stays_are_never_slower(batch: int) -> None:
    for values in ([text(ahead=count) for count in (0, 1, 2, 8)], [text(resident=share) for share in (0, 0.3, 0.9)]):
        for one, other in pairwise(step(value, batch=batch) for value in values):
            assert seconds(other) <= seconds(one) * (1 + 1e-9)
    assert seconds(step(batch=batch)) <= seconds(step(text(resident=0.9), batch=batch))


def test_bytes_of_every_tier() -> None:
    plain, found = step(), step(text(ahead=2, resident=0.25))
    streamed = 0.75 * LAYERS
    assert plain.memory_parts["weights"] - found.memory_parts["weights"] == pytest.approx((streamed - 3) * LAYER)
    kept = gnomon.fit(MODEL, on=machine(), techniques=[text(resident=0.25)])
    assert kept.host_bytes == pytest.approx(streamed * LAYER) and kept.techniques["streamed-layers"] == {
        "layers_streamed": streamed,
        "copies_s": pytest.approx(streamed * LAYER / RATE),
    }
    disks = gnomon.fit(MODEL, on=machine(), techniques=[text(tier="nvme", ahead=3)])
    assert disks.nvme_bytes == pytest.approx(LAYERS * LAYER) and disks.host_bytes == pytest.approx(4 * LAYER)


def test_ranks_stream_their_own_part() -> None:
    alone, together = step(text(ahead=0)), step(text(ahead=0), on=machine(chips=2), tp=2)
    copies = [line.time_s.value for one in (alone, together) for line in one.breakdown if line.op == "weights.prefetch"]
    assert copies[1] == pytest.approx(copies[0] / 2, rel=1e-3)


def test_a_model_that_the_chip_cannot_hold_runs() -> None:
    words: dict[str, Any] = {"on": machine(), "context": 200}
    assert not gnomon.fit("llama-3.1-70b", **words).fits
    assert gnomon.fit("llama-3.1-70b", **words, techniques=["streamed-layers"]).fits
    full = gnomon.fit("llama-3.1-70b", on=machine(memory_gib=128), context=200, techniques=["streamed-layers"])
    assert not full.fits
    assert gnomon.fit("llama-3.1-70b", **words, techniques=[text(tier="nvme")]).fits
    assert not gnomon.fit("llama-3.1-70b", on=machine(nvme_tb=0.1), techniques=[text(tier="nvme")]).fits


@pytest.mark.parametrize(
    ("named", "words", "why"),
    [
        ("streamed-layers:resident=1", {}, "every layer stays on the chip"),
        ("streamed-layers", {"on": machine(chips=2), "pp": 2}, "pipeline"),
        ("streamed-layers", {"settings": {"offload_group_size": 2}}, "a technique streams the weights already"),
    ],
)
def test_where_it_does_not_apply(named: str, words: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        step(named, **words)
