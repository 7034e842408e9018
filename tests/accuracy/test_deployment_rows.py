"""Published servers as their scripts started them, and rows that others of the same plan contradict."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.accuracy.test_rows import SERVED

from gnomon.accuracy.deployment_rows import DeploymentCase, case_of, consistent, kept_out
from gnomon.accuracy.scores import compared
from gnomon.accuracy.scripts import SCRIPTS, script_of
from gnomon.engines.vllm.options import BY_NAME


def case(clients: int, tpot_ms: float, ttft_ms: float = 100.0, **changes: str) -> DeploymentCase:
    row = SERVED | changes | {"row_id": f"inferencex-{clients}-{tpot_ms}", "concurrency": str(clients)}
    return case_of(row | {"tpot_ms": str(tpot_ms), "ttft_ms": str(ttft_ms)})


def left(*cases: DeploymentCase) -> list[int]:
    return [one.clients for one in consistent(cases)]


def test_more_clients_take_no_less_time() -> None:
    assert left(case(4, 10), case(8, 11), case(16, 12)) == [4, 8, 16]
    assert left(case(4, 10), case(8, 11), case(16, 5), case(32, 14)) == [4, 8, 32]
    assert left(case(4, 10), case(8, 9.5)) == [4, 8]


def test_a_server_that_runs_fewer_at_once_than_it_says() -> None:
    """Eight times the clients wait longer than they are served, and take as long per token."""
    assert left(case(8, 10), case(64, 10.5, ttft_ms=60_000)) == [8]
    assert left(case(8, 10), case(64, 10.5, ttft_ms=900)) == [8, 64]
    assert left(case(8, 10), case(64, 30, ttft_ms=60_000)) == [8, 64]


def test_half_of_the_plans_is_kept_out() -> None:
    plans = [case(4, 10, isl=str(size)) for size in range(1000, 1200)]
    assert 70 < sum(one.kept_out for one in plans) < 130
    assert case(4, 10).kept_out == case(64, 30).kept_out


def test_errors_of_the_half_that_is_kept_out() -> None:
    about = {"group": "vLLM of 2025-26", "chip": "H100", "precision": "fp8"}
    rows = [
        about | {"kept_out": out} | compared("TPOT", "s", 1.0, 1.0 + error, None)
        for out, error in ((True, 0.1), (False, 0.5))
    ]
    found = kept_out(rows)
    assert [row["mean_error"] for row in found["totals"]] == [pytest.approx(0.1)]
    assert found["precision"][0]["precision"] == "fp8"


@pytest.mark.parametrize(
    ("model", "chip", "precision", "version", "settings"),
    [
        ("gpt-oss-120b", "B200-SXM-180GB", "nvfp4/mxfp4", "0.15.1 | image", {"moe_activation": "mxfp8"}),
        ("gpt-oss-120b", "H100-SXM-80GB", "nvfp4/mxfp4", "0.18.0", {"moe_backend": "marlin"}),
        ("gpt-oss-120b", "H100-SXM-80GB", "nvfp4/mxfp4", "", {"max_num_seqs": None}),
        ("minimax-m2", "B200-SXM-180GB", "fp8", "0.17.0 | image", {"moe_backend": "triton"}),
        ("minimax-m2", "B200-SXM-180GB", "fp8", "0.19.0", {"block_size": 32}),
    ],
)
def test_the_script_of_a_row(
    model: str, chip: str, precision: str, version: str, settings: Mapping[str, object]
) -> None:
    found = script_of(model, chip, precision, version)
    assert found is not None
    assert settings.items() <= found.settings.items()
    assert script_of("another", chip, precision, version) is None


def test_scripts_name_settings_that_there_are() -> None:
    assert {name for script in SCRIPTS for name in script.settings} <= BY_NAME.keys()
