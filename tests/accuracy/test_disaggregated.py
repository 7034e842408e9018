"""Published rows with prefill and decode replicas apart: what is read of them, and how they are predicted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.accuracy.test_rows import SERVED

from gnomon.accuracy import disaggregated
from gnomon.accuracy.deployment_rows import Unfit
from gnomon.accuracy.disaggregated_rows import KNOWN, NO_CLIENTS, UNRECORDED, case_of, per_chip
from gnomon.accuracy.disaggregated_scripts import SCRIPTS, decode_script


def plan(**changes: int) -> str:
    found = dict[str, int]()
    for role, workers, tp in (("prefill", 1, 4), ("decode", 4, 8)):
        shape = {"batch_size": 1, "num_workers": workers, "tp_size": tp, "pp_size": 1, "attention_dp_size": 1,
                 "moe_tp_size": 1, "moe_ep_size": tp}  # fmt: skip
        found |= {f"{role}_{name}": value for name, value in shape.items()}
    return json.dumps(found | changes)


def row(**changes: str) -> dict[str, str]:
    about = {
        "row_id": "inferencex-1", "mode": "disagg", "engine_family": "TensorRT-LLM", "model": "deepseek-ai/DeepSeek-V3",
        "gpu": "GB200", "n_gpus": "36", "tp": "", "weight_precision": "nvfp4/mxfp4", "engine_version": "0.5.1-rc0 | x",
        "isl": "1024", "osl": "1024", "concurrency": "256", "ttft_ms": "800", "tpot_ms": "15", "plan_detail": plan(),
    }  # fmt: skip
    return SERVED | about | changes


def test_a_row_as_pools() -> None:
    case = case_of(row())
    assert case.group == KNOWN
    assert (case.prefill.replicas, case.prefill.tp, case.decode.replicas, case.decode.tp, case.chips) == (
        1,
        4,
        4,
        8,
        36,
    )
    assert case.decode.written("GB200").startswith("decode=GB200:32,tp=8,ep=8,replicas=4,")
    assert (case.running, case.most) == (64, 128)


def test_what_the_configurations_say_of_mtp() -> None:
    """256 clients are in the list without MTP alone, 64 in both."""
    assert case_of(row(concurrency="64")).group == UNRECORDED
    with pytest.raises(Unfit, match="not a point"):
        case_of(row(concurrency="77"))


def test_clients_that_are_not_recorded() -> None:
    case = case_of(row(concurrency="", plan_detail=plan(decode_batch_size=12)))
    assert (case.group, case.clients, case.running) == (NO_CLIENTS, 48, 12)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"plan_detail": "{}"}, "plan not recorded"),
        ({"plan_detail": "x"}, "plan not recorded"),
        ({"plan_detail": plan(decode_pp_size=2)}, "pipeline"),
        ({"plan_detail": plan(decode_moe_tp_size=2)}, "experts spread over some"),
        ({"n_gpus": "40"}, "do not take its GPUs"),
        ({"engine_family": "SambaNova"}, "no engine"),
    ],
)
def test_rows_that_cannot_be_compared(changes: dict[str, str], why: str) -> None:
    with pytest.raises(Unfit, match=why):
        case_of(row(**changes))


def test_a_point_is_in_one_list() -> None:
    """No row can be of two points."""
    seen: set[tuple[Any, ...]] = set()
    for one in SCRIPTS:
        for clients in one.clients:
            key = one.chip, one.precision, one.lengths, clients, one.replicas, one.ranks, one.release
            assert key not in seen
            seen.add(key)
            assert one.most >= 1
    found = decode_script("GB200", "fp8", (8192, 1024), 63, (3, 8), "0.8.1.post2")
    assert found is not None and found.most == 16


def test_a_closed_loop_has_a_request_of_every_client_under_way() -> None:
    """Ten clients of 101 tokens in 2 s each are 505 tokens/s."""
    assert per_chip(10, 101, 1.0, 0.01, 1) == pytest.approx(505)


@pytest.mark.heavy
def test_pools_are_simulated() -> None:
    case = case_of(row(concurrency="64"))
    rows = {one["what"]: one for one in disaggregated.compare(case)}
    assert set(rows) == {"TPOT", "TTFT", "tokens/s per chip"}
    assert all(one["low"] < one["predicted"] < one["high"] for one in rows.values())
    assert rows["TTFT"]["predicted"] < 64 * rows["TPOT"]["predicted"]


@pytest.mark.slow
def test_replicas_that_are_refused_under_load_are_priced_by_a_step() -> None:
    """Prefill with data-parallel attention leaves the decode step as it is."""
    case = case_of(row(plan_detail=plan(prefill_tp_size=1, prefill_attention_dp_size=4)))
    found = disaggregated.compare(case)
    if len(found) == 1:
        assert found[0]["what"] == disaggregated.ONE_STEP
    simulated = disaggregated.compare(case_of(row()))
    assert found[0]["predicted"] == pytest.approx(simulated[0]["predicted"], rel=0.15)
