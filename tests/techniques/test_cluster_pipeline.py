"""Pipelines over clusters: a send by hand, and what stays inside."""

from __future__ import annotations

import numpy as np
import pytest

import gnomon
from gnomon.errors import NotApplicableError
from gnomon.spec.answers import TrainingReport

TOKENS, HIDDEN, CHIPS = 4 * 2048, 4096, 8


def run(*techniques: str, **words: int) -> TrainingReport:
    degrees = {"pp": 2, "tp": 1} | words
    return gnomon.simulate_training(
        "gpt-7.5b", on="A100-SXM-80GB:64", seq=2048, global_batch=256, micro_batch=4, techniques=techniques, **degrees
    )


def send_s(found: TrainingReport) -> float:
    return float(np.ravel(found.step.figures.send_s)[0])


def test_a_send_is_what_a_node_sends_over_its_link() -> None:
    found = run("cluster-pipeline:between_gb_s=5,latency_us=1000")
    assert send_s(found) == pytest.approx(1e-3 + CHIPS * 2 * TOKENS * HIDDEN / 5e9)


def test_a_fast_link_between_clusters_is_no_faster_than_the_network_inside() -> None:
    found, plain = run("cluster-pipeline:between_gb_s=1000,latency_us=0"), run()
    assert send_s(found) == pytest.approx(send_s(plain))
    assert found.step_time_s.value == pytest.approx(plain.step_time_s.value)


def test_reductions_stay_inside_a_cluster() -> None:
    slow, plain = run("cluster-pipeline"), run()
    assert np.ravel(slow.step.figures.reduce_s) == pytest.approx(np.ravel(plain.step.figures.reduce_s))
    assert slow.step_time_s.value > plain.step_time_s.value


@pytest.mark.parametrize(
    ("pp", "clusters", "why"), [(1, 2, "there is no pipeline"), (4, 3, "4 stages cannot be divided")]
)
def test_clusters_hold_full_stages(pp: int, clusters: int, why: str) -> None:
    with pytest.raises(NotApplicableError, match=why):
        run(f"cluster-pipeline:clusters={clusters}", pp=pp)
