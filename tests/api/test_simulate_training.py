"""One training step: its figures agree with each other, and what is impossible names the nearest that is not."""

from __future__ import annotations

import json
import re
from functools import cache
from math import ceil
from typing import Any

import numpy as np
import pytest

from gnomon import catalog
from gnomon.api.simulate_training import simulate_training
from gnomon.errors import GnomonError, InputError
from gnomon.spec.answers import TrainingReport
from gnomon.spec.estimate import DRAWS

H100 = catalog.chip("H100")
PLANS: dict[str, dict[str, Any]] = {
    "one chip": {"on": "H200"},
    "data parallel": {"on": "H100:16", "zero": 1},
    "shared weights": {"on": "H100:16", "zero": 3},
    "tensor parallel": {"on": "H100:8", "tp": 8},
    "tensor parallel, whole sequences": {"on": "H100:8", "tp": 8, "sequence_parallel": False},
    "pipeline": {"on": "H100:8", "pp": 8},
    "gpipe": {"on": "H100:4", "pp": 4, "schedule": "gpipe"},
    "interleaved": {"on": "H100:16", "pp": 4, "vp": 4, "tp": 2, "recompute": "full"},
    "everything": {"on": "A100:32", "pp": 2, "tp": 4, "zero": 1, "micro_batch": 2, "recompute": "selective"},
}
ENGINES = ("megatron@3.0", "megatron", "torch")


def simulated(plan: str, engine: str) -> TrainingReport:
    words: dict[str, Any] = {"seq": 2048, "global_batch": 32, "engine": engine, "tokens": 1e10}
    return simulate_training("llama-3.1-8b", **words | PLANS[plan])


answer = cache(simulated)


EVERY = pytest.mark.parametrize(
    ("plan", "engine"),
    [(plan, engine) for plan in PLANS for engine in ENGINES if (plan, engine) != ("shared weights", "megatron@3.0")],
)


@EVERY
def test_figures_agree(plan: str, engine: str) -> None:
    found = answer(plan, engine)
    chip, ranks = catalog.chip(found.plan.chip), found.plan.strategy.ranks
    seconds = found.step_time_s.value
    assert sum(found.step_parts.values()) == pytest.approx(seconds)
    assert min(found.step_parts.values()) >= 0
    assert found.tokens_per_s_per_gpu == pytest.approx(32 * 2048 / seconds / ranks)
    assert 0.05 < found.mfu <= found.hfu < 1
    # A fused attention makes its scores again in the backward pass, whatever else is recomputed.
    assert (found.mfu < found.hfu) == (engine != "megatron@3.0" or found.inputs["recompute"] != "none")
    assert 0 <= found.exposed_communication_s < seconds
    assert -1e-12 < found.bubble_fraction < 1
    assert 0 < found.energy_j <= ranks * chip.tdp_w * seconds
    assert found.cost_usd == pytest.approx(ranks * chip.price_usd_h * seconds / 3600)
    assert found.micro_batches * found.plan.strategy.dp * found.inputs["micro_batch"] == 32


@EVERY
def test_every_rank_has_its_memory(plan: str, engine: str) -> None:
    found = answer(plan, engine)
    strategy = found.plan.strategy
    assert [row["rank"] for row in found.ranks] == list(range(strategy.ranks))
    each = [sum(parts.values()) for parts in found.memory_parts]
    assert len(each) == strategy.pp
    for row in found.ranks:
        # Tensor- and data-parallel ranks are neighbours; pipeline stages stand apart.
        assert row["pipeline_rank"] == row["rank"] // (strategy.tp * strategy.dp)
        assert row["peak_memory_bytes"] == pytest.approx(each[row["pipeline_rank"]])
    assert found.peak_memory_bytes.value == pytest.approx(max(each))
    assert found.fits == (max(each) <= found.usable_memory_bytes)
    assert found.usable_memory_bytes < catalog.chip(found.plan.chip).memory_bytes
    assert all(value >= 0 for parts in found.memory_parts for value in parts.values())


@EVERY
def test_bands_are_there_and_repeat(plan: str, engine: str) -> None:
    step = answer(plan, engine).step_time_s
    assert step.low < step.value < step.high
    assert step.high / step.low < 5  # 4.3 where the step is nothing but launches, by their spread from host to host
    assert len(step.draws) == DRAWS
    again = simulated(plan, engine)
    assert again.to_dict() == answer(plan, engine).to_dict()
    json.dumps(again.to_dict(), allow_nan=False)


def test_a_whole_run() -> None:
    found = answer("everything", "megatron")
    steps = ceil(1e10 / (32 * 2048))
    assert found.run["steps"] == steps
    assert found.run["days"] == pytest.approx(steps * found.step_time_s.value / 86400)
    assert found.run["cost_usd"] == pytest.approx(steps * found.cost_usd)
    assert found.run["energy_kwh"] == pytest.approx(steps * found.energy_j / 3.6e6)
    assert simulate_training("llama-3.1-8b", on="H100:8", tp=8, seq=2048, global_batch=8).run == {}


def test_alone_there_is_nobody_to_talk_to() -> None:
    for engine in ENGINES:
        found = answer("one chip", engine)
        assert found.exposed_communication_s == 0
        assert found.bubble_fraction == pytest.approx(0, abs=1e-12)
        assert found.step_parts["weight_gather_s"] == found.step_parts["gradient_reduction_s"] == 0
    assert answer("tensor parallel", "megatron").exposed_communication_s > 0


@pytest.mark.parametrize("batch", [8, 32, 128])
def test_a_long_pipeline_has_the_bubble_of_the_books(batch: int) -> None:
    """(p - 1) / (m + p - 1) of a pipeline whose chunks are equal; the head makes the last one longer."""
    found = simulate_training("gpt-22b", on="A100:8", pp=8, seq=2048, global_batch=batch)
    book = 7 / (batch + 7)
    assert book <= found.bubble_fraction < book + 0.15
    parts = simulate_training("gpt-22b", on="A100:8", pp=8, vp=6, seq=2048, global_batch=batch)
    assert parts.bubble_fraction < found.bubble_fraction


def test_flops_are_those_of_the_books() -> None:
    """Narayanan et al. 2021, appendix: 72 B s l h^2 (1 + s / 6h + V / 12 l h), attention over the whole square."""
    found = simulate_training("gpt-22b", on="A100:8", tp=8, seq=2048, global_batch=4, engine="megatron@2.4")
    layers, h, v, s = 48, 6144, 51200, 2048
    assert found.step.flops["model"] == pytest.approx(
        72 * 4 * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h)), rel=2e-3
    )


@pytest.mark.parametrize(
    ("model", "on", "dtype"),
    [("gpt2-xl", "H100", "bf16"), ("gpt2-xl", "V100", "fp16"), ("llama-3.2-1b", "V100", "fp16"),
     ("opt-125m", "H100", "fp16"), ("opt-125m", "TPU-v5e", "bf16")],
)  # fmt: skip
def test_unasked_it_is_in_a_format_that_the_chip_has(model: str, on: str, dtype: str) -> None:
    """As stored where the chip has that, else in its own 16 bits; and the answer says so."""
    found = simulate_training(model, on=f"{on}:4", seq=512, global_batch=4)
    assert found.inputs["dtype"] == found.plan.dtype == dtype
    assert f", {dtype}, " in found.title
    asked = simulate_training(model, on=f"{on}:4", seq=512, global_batch=4, dtype=dtype)
    assert asked.step_time_s.value == found.step_time_s.value


def test_a_smaller_tp_over_slower_links() -> None:
    """Sixteen ranks cross nodes, which the collectives of every layer feel."""
    inside, across = (simulate_training("gpt-22b", on=f"A100:{tp}", tp=tp, seq=2048, global_batch=4) for tp in (8, 16))
    assert across.exposed_communication_s > inside.exposed_communication_s


def test_more_micro_batches_take_as_much_longer() -> None:
    one, two = (
        simulate_training("llama-3.2-1b", on="H200", seq=2048, global_batch=batch).step_parts["pipeline_s"]
        for batch in (8, 16)
    )
    assert two == pytest.approx(2 * one)


def test_draws_move_with_the_pieces() -> None:
    """The step's draws are those of its bound, and its bound is nearly the step."""
    step = answer("interleaved", "megatron").step
    draws = step.step_s.draws / step.step_s.value
    assert np.std(draws) > 0.005
    assert step.figures.grid.size == DRAWS + 1


def ask(model: str = "llama-3.1-8b", **words: Any) -> GnomonError | None:
    try:
        simulate_training(model, **{"seq": 2048, "global_batch": 16} | words)
    except GnomonError as error:
        return error
    return None


# A request, the flag it is about, and what the hint names.
NEAREST: dict[str, tuple[dict[str, Any], str, str]] = {
    "heads": ({"on": "H100:3", "tp": 3}, "--tp", "Use 2 on H100-SXM-80GB:2 or 4 on H"),
    "key-value heads": ({"on": "H100:16", "tp": 16}, "--tp", "Use 8."),
    "layers": (
        {"on": "H100:5", "pp": 5, "engine": "megatron@3.0"},
        "--pp x --vp",
        "Use --pp 4 on H100-SXM-80GB:4 or 8",
    ),
    "layers of parts": (
        {"on": "H100:4", "pp": 4, "vp": 3, "engine": "megatron@3.0"},
        "--pp x --vp",
        "Use --vp 2 or 4.",
    ),
    "more stages than layers": ({"on": "H100:64", "pp": 64}, "--pp x --vp", "Use --pp 32."),
    "batch": ({"on": "H100:3"}, "--global-batch", "Use 15 or 18."),
    "micro-batches": ({"on": "H100:4", "micro_batch": 3}, "--global-batch", "Use 12 or 24."),
    "a batch too small": ({"on": "H100:32"}, "--global-batch", "Use 32."),
    "interleaved micro-batches": (
        {"on": "H100:12", "pp": 4, "vp": 2, "global_batch": 18},
        "--global-batch",
        "12 or 24",
    ),
    "chips left over": (
        {"on": "H100:10", "tp": 4, "global_batch": 24},
        "--on",
        "Use --on H100-SXM-80GB:8 or --on H100-SXM-80GB:12.",
    ),
    "chips too few": ({"on": "H100:2", "tp": 4}, "--on", "Use --on H100-SXM-80GB:4."),
    "chips that dp does not fill": ({"on": "H100:16", "tp": 4, "dp": 2}, "--dp", "--on H100-SXM-80GB:8"),
    "a cut sequence": ({"on": "H100:4", "tp": 4, "seq": 2050}, "--seq", "Use 2048 or 2052."),
    "positions": ({"model": "gpt-1.7b", "on": "H100", "seq": 4096}, "--seq", "Use at most 2048."),
    "parts without interleaving": (
        {"on": "H100:4", "pp": 4, "vp": 2, "schedule": "1f1b"},
        "--vp",
        "interleaved schedule",
    ),
    "nobody to interleave with": ({"on": "H100", "vp": 2}, "--pp", "Use 2 on H100-SXM-80GB:2."),
    "context parallel": ({"on": "H100:2", "cp": 2, "engine": "transformers"}, "--cp", "Use 1."),
    "expert parallel": ({"on": "H100", "ep": 2}, "--ep", "Use 1."),
    "states shared out before their time": (
        {"on": "H100:4", "zero": 1, "engine": "megatron@2.4"},
        "--zero",
        "2026.08",
    ),
    "weights shared out before their time": (
        {"on": "H100:4", "zero": 3, "engine": "megatron@3.0"},
        "--zero",
        "Use 0 or 1",
    ),
    "half-filled 1f1b": (
        {"on": "H100:8", "pp": 8, "micro_batch": 4, "engine": "torch"},
        "--global-batch",
        " 32 or more",
    ),
}


@pytest.mark.parametrize("case", NEAREST)
def test_the_impossible_names_the_nearest_possible(case: str) -> None:
    words, where, hint = NEAREST[case]
    error = ask(**words)
    assert isinstance(error, InputError)
    assert error.where == where
    assert hint in error.hint


# Which word to change to a number the hint names, and with it.
TRIED = {
    "heads": ("tp", "on"),
    "key-value heads": ("tp", "on"),
    "layers": ("pp", "on"),
    "more stages than layers": ("pp", "on"),
    "batch": ("global_batch",),
    "micro-batches": ("global_batch",),
    "a batch too small": ("global_batch",),
    "interleaved micro-batches": ("global_batch",),
    "chips left over": ("on",),
    "chips too few": ("on",),
    "chips that dp does not fill": ("on",),
    "a cut sequence": ("seq",),
    "positions": ("seq",),
    "half-filled 1f1b": ("global_batch",),
}


def tried(words: dict[str, Any], change: tuple[str, ...]) -> list[GnomonError | None]:
    """What becomes of the request with each number that its hint names."""
    error = ask(**words)
    assert error is not None
    numbers = re.findall(r"\d+", error.hint.replace("H100-SXM-80GB:", ""))
    assert numbers
    return [ask(**words | {name: f"H100:{n}" if name == "on" else int(n) for name in change}) for n in numbers]


@pytest.mark.parametrize("case", TRIED)
def test_what_is_named_is_possible(case: str) -> None:
    assert set(tried(NEAREST[case][0], TRIED[case])) == {None}


@pytest.mark.parametrize("tp", [9, 12, 20, 24, 40])
def test_named_degrees_cut_all_heads(tp: int) -> None:
    assert set(tried({"on": f"H100:{tp}", "tp": tp}, ("tp", "on"))) == {None}


@pytest.mark.parametrize("batch", [7, 10, 18, 30])
def test_named_batches_go_with_interleaving(batch: int) -> None:
    words = {"on": "H100:16", "pp": 4, "vp": 2, "global_batch": batch}
    assert set(tried(words, ("global_batch",))) == {None}


UNKNOWN = {
    "recompute": ("some", "none"),
    "schedule": ("1f2b", "1f1b"),
    "optimizer": ("adam", "adamw"),
    "engine": ("megatrom", "megatron"),
    "on": ("H101", "H100"),
}


@pytest.mark.parametrize("word", UNKNOWN)
def test_unknown_words_name_the_near_ones(word: str) -> None:
    given, near = UNKNOWN[word]
    error = ask(**{"on": "H100:8", word: given})
    assert error is not None
    assert f"'{given}'" in str(error)
    assert near in error.hint


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("tp", 0),
        ("pp", -1),
        ("micro_batch", 0),
        ("seq", 0),
        ("global_batch", 0),
        ("zero", 4),
        ("zero", -1),
        ("tp", 1.5),
    ],
)
def test_what_is_no_size_is_refused_by_its_flag(word: str, value: Any) -> None:
    error = ask(**{"on": "H100:8", word: value})
    assert isinstance(error, InputError)
    assert error.where == f"--{word.replace('_', '-')}"
    assert str(value) in str(error)
