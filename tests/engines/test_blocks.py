"""Quantised matrices and tensor parallelism: what vLLM refuses is refused where it is predicted, fitted and planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.export.random_plans import checkpoint

import gnomon
from gnomon.engines.vllm.blocks import obstacle
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.spec import Strategy
from gnomon.spec.narrowed import in_format

WIDTHS = {"qwen3-235b-a22b": 1536, "qwen3-30b-a3b": 768, "deepseek-v3": 2048, "minimax-m2": 1536, "kimi-k2": 2048}
"""Inner channels of an expert."""


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_experts_in_blocks_of_fp8(name: str, tp: int, tmp_path: Path) -> None:
    """The inner width of a rank is a multiple of 128, whichever way the config says that it has blocks."""
    found = load_model(name)
    model = found if found.dtype == "fp8" else load_model(Path(checkpoint(tmp_path, name, "fp8")))
    assert bool(obstacle(model, Strategy(tp=tp))) == bool(WIDTHS[name] // tp % 128)
    assert not obstacle(model, Strategy(tp=tp, ep=tp)) or tp == 1
    spread = Strategy(tp=1, dp=tp)
    assert bool(obstacle(model, spread)) == bool(WIDTHS[name] // tp % 128)


def test_every_answer_refuses_it(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, "qwen3-235b-a22b", "fp8")
    said = r"192 columns of expert gate, which vLLM refuses. Use --tp 4 or --ep 8 or --on H200-SXM-141GB:4"
    with pytest.raises(InputError, match=said):
        gnomon.predict(place, on="H200:8", batch=4, context=100)
    with pytest.raises(InputError, match=said):
        gnomon.fit(place, on="H200:8")
    with pytest.raises(InputError, match=said):
        gnomon.simulate_serving(place, on="H200:8", rate=1.0, input=10, output=2, requests=2)
    assert gnomon.predict(place, on="H200:8", batch=4, context=100, ep=8).fits


@pytest.mark.heavy
def test_a_search_leaves_such_degrees_out() -> None:
    report = gnomon.plan_serving("minimax-m2", fleet="H200:8", rate=1.0, input=64, output=8, requests=50)
    for score in report.pareto:
        strategy = score.plan.strategy
        assert strategy.tp < 8 or strategy.ep == 8


@pytest.mark.parametrize(
    ("name", "tp", "refused"),
    [
        ("qwen2.5-72b", 1, False), ("qwen2.5-72b", 2, True), ("qwen2.5-72b", 8, True), ("llama-3.1-8b", 8, False),
        ("llama-2-7b", 2, False), ("llama-2-7b", 4, True), ("llama-3.1-70b", 8, False), ("mixtral-8x7b", 8, False),
    ],
)  # fmt: skip
def test_groups_of_int4(name: str, tp: int, refused: bool) -> None:
    """The inputs of a rank are whole groups of 128; experts have kernels that take others."""
    assert bool(obstacle(in_format(load_model(name), "int4"), Strategy(tp=tp))) == refused


def test_formats_without_blocks_are_cut_anywhere() -> None:
    for name in ("llama-2-7b", "qwen2.5-72b", "qwen3-30b-a3b"):
        for dtype in ("fp8", "int8", "bf16"):
            assert not obstacle(in_format(load_model(name), dtype), Strategy(tp=8))
