"""Checkpoints, by hand: what a step waits for by the way they are written, and with states on the host."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.api.results import TrainingReport
from gnomon.papers.machines import cluster_file, host

CHIPS, LINK, MEMORY, DISK = 4, 25e9, 200e9, 4e9
PARAMETERS = 6_738_415_616 / CHIPS
BYTES = 14 * PARAMETERS
LOAD: dict[str, Any] = {"seq": 2048, "global_batch": CHIPS, "zero": 1, "recompute": "full"}


def step(*ideas: str) -> TrainingReport:
    machine = host(
        cores=64, memory_gib=512, memory_gb_s=MEMORY / 1e9, adam_gparam_s=3, link_gb_s=LINK / 1e9, nvme_gb_s=DISK / 1e9
    )  # fmt: skip
    with cluster_file("A100-40GB", CHIPS, CHIPS, machine) as on:
        return gnomon.simulate_training("llama-2-7b", on=on, **LOAD, techniques=ideas)


def waits(*ideas: str) -> float:
    return step(*ideas).step_parts.get("waits_s", 0.0)


def test_a_synchronous_one_copies_and_writes() -> None:
    expected = BYTES / LINK + BYTES * CHIPS / DISK
    assert waits("checkpoints:mode=synchronous") == pytest.approx(expected, rel=1e-9)
    assert waits("checkpoints:mode=synchronous,every=10") == pytest.approx(expected / 10, rel=1e-9)


def test_an_asynchronous_one_copies_and_a_lazy_one_hides_that_too() -> None:
    fast = "write_gb_s=1000,copy_gb_s=25"
    assert waits(f"checkpoints:mode=asynchronous,{fast}") == pytest.approx(BYTES / LINK, rel=1e-9)
    assert waits("checkpoints:mode=lazy,write_gb_s=1000,copy_gb_s=100") == 0
    slow = waits("checkpoints:mode=lazy,write_gb_s=1000,copy_gb_s=1")
    plain = step()
    assert slow == pytest.approx(BYTES / 1e9 - (plain.step_time_s.value - _update(plain)), rel=1e-9)


def _update(plain: TrainingReport) -> float:
    return plain.step_parts["optimizer_s"] + plain.step_parts["weight_gather_s"]


def test_states_on_the_host_are_not_copied_there_again() -> None:
    found = waits("checkpoints:mode=asynchronous,write_gb_s=1000", "offload-optimizer")
    chip, memory = 2 * PARAMETERS / LINK, 2 * 12 * PARAMETERS / (0.8 * MEMORY / CHIPS)
    assert found == pytest.approx(max(chip, memory), rel=1e-9)
