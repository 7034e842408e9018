"""Checkpoints, by hand: what a step waits for by the way they are written, and with states on the host."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.papers.machines import cluster, host
from gnomon.spec.answers import TrainingReport

CHIPS, LINK, MEMORY, DISK = 4, 25e9, 200e9, 4e9
PARAMETERS = 6_738_415_616 / CHIPS
BYTES = 14 * PARAMETERS
LOAD: dict[str, Any] = {"seq": 2048, "global_batch": CHIPS, "zero": 1, "recompute": "full"}


def step(*applied: str) -> TrainingReport:
    machine = host(
        cores=64, memory_gib=512, memory_gb_s=MEMORY / 1e9, adam_gparam_s=3, link_gb_s=LINK / 1e9, nvme_gb_s=DISK / 1e9
    )  # fmt: skip
    on = cluster("A100-40GB", CHIPS, CHIPS, machine)
    return gnomon.simulate_training("llama-2-7b", on=on, **LOAD, techniques=applied)


def waits(*applied: str) -> float:
    return step(*applied).step_parts.get("waits_s", 0.0)


EVERY_STEP = "async-checkpointing:every=1"
LOCAL = f"{EVERY_STEP},storage=local"


def test_a_synchronous_one_copies_and_writes() -> None:
    expected = BYTES / LINK + BYTES * CHIPS / DISK
    assert waits(f"{LOCAL},mode=synchronous") == pytest.approx(expected, rel=1e-9)
    assert waits("async-checkpointing:mode=synchronous,every=10,storage=local") == pytest.approx(
        expected / 10, rel=1e-9
    )


def test_an_asynchronous_one_copies_and_a_lazy_one_hides_that_too() -> None:
    fast = "storage_gb_s=1000,copy_gb_s=25"
    assert waits(f"{EVERY_STEP},mode=asynchronous,{fast}") == pytest.approx(BYTES / LINK, rel=1e-9)
    assert waits(f"{EVERY_STEP},mode=lazy,storage_gb_s=1000,copy_gb_s=100") == 0
    slow = waits(f"{EVERY_STEP},mode=lazy,storage_gb_s=1000,copy_gb_s=1")
    plain = step()
    assert slow == pytest.approx(BYTES / 1e9 - (plain.step_time_s.value - _update(plain)), rel=1e-9)


def _update(plain: TrainingReport) -> float:
    return plain.step_parts["optimizer_s"] + plain.step_parts["weight_gather_s"]


def test_states_on_the_host_are_not_copied_there_again() -> None:
    found = waits(f"{EVERY_STEP},mode=asynchronous,storage_gb_s=1000", "offload-optimizer")
    chip, memory = 2 * PARAMETERS / LINK, 2 * 12 * PARAMETERS / (0.8 * MEMORY / CHIPS)
    assert found == pytest.approx(max(chip, memory), rel=1e-9)


def test_writes_that_storage_cannot_keep_up_with_are_waited_for_in_every_mode() -> None:
    """However they are hidden, as many bytes are written as storage takes in the time."""
    write = BYTES * CHIPS / 1e9
    for mode in ("asynchronous", "lazy"):
        found = step(f"{EVERY_STEP},mode={mode}")
        assert found.step_time_s.value >= write * (1 - 1e-9)


def test_storage_is_shared_unless_it_is_told_and_named_in_the_answer() -> None:
    copy, whole = BYTES / LINK, BYTES * CHIPS
    told = f"{EVERY_STEP},mode=synchronous"
    assert waits(told) == pytest.approx(copy + whole / 1e9, rel=1e-9)
    assert waits(f"{told},storage_gb_s=5") == pytest.approx(copy + whole / 5e9, rel=1e-9)
    assert waits(f"{told},shared_gb_s=20") == pytest.approx(copy + whole / 20e9, rel=1e-9)
    assert waits(f"{told},storage_gb_s=5,shared_gb_s=20") == waits(f"{told},storage_gb_s=5")
    (assumed,) = step(told).assumed
    assert "1 GB/s" in assumed and "shared storage" in assumed and "storage_gb_s" in assumed
    (assumed,) = step(f"{told},storage_gb_s=5").assumed
    assert "5 GB/s" in assumed and "assumed" not in assumed
    (assumed,) = step(f"{told},storage=local").assumed
    assert "its own disks at 4 GB/s" in assumed
    with pytest.raises(gnomon.GnomonError, match="storage is local"):
        step(f"{told},storage=local,shared_gb_s=20")


def test_shared_storage_is_shared_by_all_hosts() -> None:
    words = "async-checkpointing:every=1,mode=synchronous,copy_gb_s=1000,shared_gb_s=10"
    one, two = (
        gnomon.simulate_training(
            "llama-2-7b", on=f"A100-80GB:{chips}", **{**LOAD, "global_batch": chips}, techniques=[words]
        ).step_parts["waits_s"]
        for chips in (8, 16)
    )
    assert one == pytest.approx(two, rel=0.02), "two hosts write half as much each at half the rate each"


def test_a_rate_that_nobody_told_is_known_only_so_well() -> None:
    band = step(f"{EVERY_STEP},mode=synchronous").step_time_s
    told = step(f"{EVERY_STEP},mode=synchronous,storage_gb_s=1").step_time_s
    assert told.value == pytest.approx(band.value, rel=1e-9)
    assert band.high / band.low > 3 > 1.5 > told.high / told.low


@pytest.mark.parametrize("chip", ["RTX-4090", "V100-SXM2-32GB", "A100-80GB", "H100", "B200", "GB200", "MI300X", "L40S"])
def test_no_default_writes_faster_than_storage_that_anybody_has(chip: str) -> None:
    """A host's own disks at most as one fast drive a chip; shared storage at most what the largest clusters sustain."""
    for storage, most in (("local", 8e9 * 8), ("shared", 3.5e9)):
        found = gnomon.simulate_training(
            "gpt2-xl", on=f"{chip}:1", seq=1024, global_batch=8,
            techniques=[f"async-checkpointing:every=1,mode=synchronous,storage={storage},copy_gb_s=1000"],
        )  # fmt: skip
        size = 14 * 1_557_611_200
        assert size / found.step_parts["waits_s"] <= most


def test_the_name_and_the_parameter_it_had_before() -> None:
    assert waits("checkpoints:every=1,mode=synchronous,write_gb_s=7") == waits(
        f"{EVERY_STEP},mode=synchronous,storage_gb_s=7"
    )
    with pytest.raises(gnomon.GnomonError, match="async-checkpointing is given twice"):
        step("checkpoints", "async-checkpointing")
    with pytest.raises(gnomon.GnomonError, match="write_gb_s is given twice"):
        step("checkpoints:storage_gb_s=7,write_gb_s=7")
