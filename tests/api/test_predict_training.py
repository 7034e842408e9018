"""A training step opened up: operators with their FLOPs, and what the step spends beside them, add up to it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import gnomon
from gnomon.api.simulate_training import simulate_training
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.spec.answers import Prediction

STEPS: dict[str, dict[str, Any]] = {
    "one chip": {"on": "H200", "batch": 2},
    "full recompute": {"on": "H200", "batch": 2, "settings": {"recompute": "full", "micro_batch": 1}},
    "selective recompute": {"on": "H200", "batch": 2, "settings": {"recompute": "selective"}, "engine": "megatron"},
    "data parallel": {"on": "H200:8", "batch": 16, "settings": {"zero": 1}},
    "shared weights": {"on": "H100:16", "batch": 32, "settings": {"zero": 3}, "engine": "megatron"},
    "pipeline": {"on": "H100:4", "batch": 8, "pp": 4, "engine": "megatron"},
    "interleaved": {"on": "H100:4", "batch": 8, "pp": 4, "settings": {"vp": 4}},
    "tensor parallel": {"on": "H100:8", "batch": 8, "tp": 8},
    "all shown": {"on": "A100:8", "batch": 8, "tp": 8, "engine": "megatron@2.4"},
}


@cache
def predicted(step: str) -> Prediction:
    return gnomon.predict("llama-3.1-8b", phase="train", tokens=2048, **STEPS[step])


EVERY = pytest.mark.parametrize("step", STEPS)


@EVERY
def test_lines_add_up_to_the_step(step: str) -> None:
    found = predicted(step)
    assert sum(line.time_s.value for line in found.breakdown) == pytest.approx(found.time_s.value)
    times = [line.time_s.value for line in found.breakdown]
    assert times == sorted(times, reverse=True)
    assert min(times) > 0
    assert 0 < found.bound_share <= 1
    by_bound: dict[str, float] = {}
    for line in found.breakdown:
        by_bound[line.bound] = by_bound.get(line.bound, 0.0) + line.time_s.value
    assert found.bound == max(by_bound, key=by_bound.__getitem__)
    assert found.bound_share == pytest.approx(by_bound[found.bound] / found.time_s.value)


@pytest.mark.parametrize("engine", ["megatron@3.0", "megatron"])
def test_hidden_collectives_do_not_count_twice(engine: str) -> None:
    found = gnomon.predict("llama-3.1-8b", phase="train", on="H100:8", tp=8, batch=8, tokens=2048, engine=engine)
    assert sum(line.time_s.value for line in found.breakdown) == pytest.approx(found.time_s.value)


@EVERY
def test_flops_of_the_lines_are_the_ranks(step: str) -> None:
    """Over all ranks, what the step computes; in a pipeline the busiest rank has the head as well as its layers."""
    found = predicted(step)
    model, tokens = load_model("llama-3.1-8b"), STEPS[step]["batch"] * 2048
    layer = 4096 * (4096 * 2 + 1024 * 2) + 3 * 4096 * 14336
    recompute = found.inputs["recompute"]
    runs = {"none": 6.0, "selective": 6.0, "full": 8.0}[recompute]
    last = 2 * 4096 * 14336 if recompute == "full" else 0  # PyTorch does not run the last product again
    attended = 2048 if step == "all shown" else 2049 / 2
    again = {"none": 0.0, "selective": 1.0, "full": 1.0}[recompute]
    attention = 4 * 4096 * attended * ((3 if step == "all shown" else 3.5) + again)
    pp, tp, dp = (found.inputs[name] for name in ("pp", "tp", "dp"))
    layers = 32 / pp * (runs * layer - last + attention)
    expected = tokens / (tp * dp) * (layers + 6 * model.vocab * model.hidden)
    assert sum(line.flops for line in found.breakdown) == pytest.approx(expected, rel=1e-9)


@EVERY
def test_it_is_the_step_that_is_simulated(step: str) -> None:
    found = predicted(step)
    words = {
        name: found.inputs[name] for name in ("tp", "pp", "vp", "dp", "engine", "zero", "recompute", "micro_batch")
    }
    same = simulate_training("llama-3.1-8b", on=STEPS[step]["on"], seq=2048, global_batch=STEPS[step]["batch"], **words)
    assert same.step_time_s.value == found.time_s.value
    assert same.step_time_s.low == found.time_s.low
    assert same.peak_memory_bytes.value == found.memory_bytes.value == pytest.approx(sum(found.memory_parts.values()))
    assert same.energy_j == pytest.approx(found.energy_j.value)
    assert same.cost_usd == pytest.approx(found.cost_usd.value)
    assert found.tokens_per_s == pytest.approx(STEPS[step]["batch"] * 2048 / found.time_s.value)
    assert found.fits == same.fits


def test_lines_say_where_the_time_goes() -> None:
    found = {line.op: line for line in predicted("data parallel").breakdown}
    assert found["gradient reduction"].bound == found["weight gather"].bound == "network"
    assert found["optimizer"].bound == "memory"
    assert found["ffn.gate"].count == found["ffn.gate.dgrad"].count == 32
    assert found["head.logits"].count == 1
    full = {line.op: line for line in predicted("full recompute").breakdown}
    # Two micro-batches of 32 layers, run forward twice; the last product of a layer only once.
    assert (full["ffn.gate"].count, full["ffn.gate.dgrad"].count, full["ffn.down"].count) == (128, 64, 64)
    # A run takes as long as without recomputation, but for the clock.
    plain = {line.op: line for line in ask(batch=2, settings={"micro_batch": 1}).breakdown}
    for op in ("ffn.gate", "ffn.down", "attention.core", "attention.norm"):
        once, again = (lines[op].time_s.value / lines[op].count for lines in (plain, full))
        assert again == pytest.approx(once, rel=0.03)
    staged = {line.op: line for line in predicted("pipeline").breakdown}
    assert staged["ffn.up"].count == 8 * 8
    assert "embedding" not in staged
    assert all(line.bound == "network" for line in predicted("tensor parallel").breakdown if line.kind == "all_gather")


def test_all_of_a_ranks_sequences_go_at_once() -> None:
    assert predicted("data parallel").inputs["micro_batch"] == 2
    assert predicted("one chip").inputs["micro_batch"] == 2
    assert predicted("pipeline").inputs["micro_batch"] == 1


def test_the_built_in_runner_is_the_engine() -> None:
    assert predicted("one chip").inputs["engine"].startswith("torch@")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": ({"tokens": None}, r"--tokens: .*Give --tokens 2048"),
    "context": ({"context": 5}, r"--context: .*Leave it out"),
    "settings": ({"settings": {"max_num_seqs": 4}}, r"--set: unknown setting 'max_num_seqs'.*micro_batch"),
    "engine": ({"engine": "vllm"}, r"--engine: vllm does not train.*torch"),
    "heads": ({"on": "H100:3", "tp": 3}, r"--tp: .*Use 2 on H100-SXM-80GB:2 or 4 on H100-SXM-80GB:4"),
    "experts": ({"model": "qwen3-30b-a3b", "engine": "torch@2.0"}, r"mixtures of experts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=REFUSED[name][1]):
        ask(**REFUSED[name][0])


def ask(**words: Any) -> Prediction:
    given: dict[str, Any] = {"model": "llama-3.1-8b", "on": "H200", "batch": 4, "tokens": 2048} | words
    return gnomon.predict(given.pop("model"), phase="train", **given)


@pytest.mark.parametrize(
    ("words", "flag"),
    [({"batch": 0}, "--batch"), ({"tokens": 0}, "--tokens"), ({"on": "H100:8", "batch": 9}, "--batch")],
)
def test_errors_name_the_flags_of_this_command(words: dict[str, Any], flag: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(**words)
    assert caught.value.where == flag


def test_training_has_no_cache_to_give_a_format() -> None:
    with pytest.raises(InputError, match="kv-dtype"):
        ask(kv_dtype="fp8")


def test_operators_of_the_backward_pass_have_the_names_of_the_field() -> None:
    found = gnomon.predict(
        "mixtral-8x7b", on="H100:16", phase="train", batch=16, tokens=512, engine="megatron", tp=2, ep=8
    )
    kinds = {line.op: line.kind for line in found.breakdown}
    assert not [op for op in kinds if "by_input" in op or "by_weight" in op]
    assert {kinds[op] for op in kinds if op.endswith(".dgrad")} == {"gemm"}
    for op in ("ffn.experts.up.dgrad", "ffn.experts.up.wgrad", "attention.core.backward", "embedding.wgrad"):
        assert op in kinds


def test_an_operator_is_found_by_its_former_name_too() -> None:
    from gnomon.store import save

    found = gnomon.predict("llama-3.2-1b", on="H100:2", phase="train", batch=4, tokens=512)
    save("predict", found.to_dict())
    for former, name in (("ffn.up.by_weight", "ffn.up.wgrad"), ("attention.core.by_input", "attention.core.backward")):
        assert [node.name for node in gnomon.explain("last", op=former).nodes] == [name]


@pytest.mark.parametrize("cut", [{"on": "H200:8", "tp": 2, "pp": 2, "dp": 2}, {"on": "H200:4", "dp": 4}], ids=str)
def test_every_line_of_a_step_has_an_interval(cut: dict[str, Any]) -> None:
    """Bubbles, the optimizer and what is reduced and gathered too, each as far off as what it is made of."""
    load = {"phase": "train", "batch": 8, "tokens": 1024, "engine": "megatron"}
    answer = gnomon.predict("llama-3.2-1b", **load, **cut, settings={"zero": 1})
    kinds = {line.op for line in answer.breakdown if line.kind == "step"}
    assert {"optimizer", "weight gather"} <= kinds
    for line in answer.breakdown:
        assert line.time_s.low < line.time_s.value < line.time_s.high, line.op
        if line.op != "kernel launches":  # what a wait is left of: a difference, which may be next to nothing
            assert line.time_s.high < 3 * line.time_s.value
    assert answer.energy_j.low < answer.energy_j.value < answer.energy_j.high
