"""What is recomputed, by module and by layer: nothing is none, all is full, and more is never faster or larger."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.engines.megatron.engine import Megatron
from gnomon.engines.training.grid import Grid
from gnomon.engines.training.layer_cost import layer_tapes
from gnomon.engines.training.stages import PLAIN, ROLES, WITHIN, PipelineShape, Stages
from gnomon.engines.training.step_table import sizes
from gnomon.errors import InputError
from gnomon.graph.layers import Cut
from gnomon.graph.tape import Tape
from gnomon.load import model as load_model
from gnomon.planning.training.memory import memory_over_time
from gnomon.spec import Recipe, Strategy, TrainingLoad
from gnomon.spec.recompute import MODULES, choice_of, code_of, parse

CHOICES = ("none", "selective", "full", "op", "modules=core_attn", "modules=mlp+moe_act", "full:block=4")
CHOICES += ("full:uniform=2", "every=3", f"modules={'+'.join(MODULES)}", "full:block=10000", "every=10000")
LAYERS = {name: layer_tapes(load_model(name), Cut(seq=512), Megatron().traits(load_model(name))) for name in (
    "llama-3.1-8b", "deepseek-v3", "qwen3-30b-a3b",
)}  # fmt: skip


@pytest.mark.parametrize("text", CHOICES)
def test_choices_are_read_back_from_their_codes(text: str) -> None:
    assert choice_of(code_of(text)) == parse(text)
    assert parse(parse(text).text) == parse(text)
    assert code_of(text) < 2**40
    assert len({code_of(one) for one in CHOICES}) == len(CHOICES)


@pytest.mark.parametrize(
    ("text", "plain"),
    [("full:uniform=1", "full"), ("every=1", "full"), ("full:every=2", "every=2"), ("modules=", "none"),
     ("modules=mlp+core_attn+mlp", "modules=core_attn+mlp")],
)  # fmt: skip
def test_choices_have_one_plainest_form(text: str, plain: str) -> None:
    assert parse(text).text == plain


@pytest.mark.parametrize(
    "text", ["fulll", "full:block", "full:block=0", "full:all=2", "modules=attention", "every=x", "block=2", "op=1"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


def again(tape: Tape, mode: str) -> frozenset[str]:
    return frozenset(node.name for node in tape.recomputed(mode))


@pytest.mark.parametrize("model", LAYERS)
def test_more_modules_never_save_more_and_never_run_less(model: str) -> None:
    for tape in LAYERS[model].values():
        for count in range(len(MODULES)):
            for some in combinations(MODULES, count):
                few = parse(f"modules={'+'.join(some)}").text
                for one in MODULES.keys() - {*some}:
                    more = parse(f"modules={'+'.join((*some, one))}").text
                    assert tape.saved_activation_bytes(more) <= tape.saved_activation_bytes(few) + 1e-9, (few, more)
                    assert again(tape, few) <= again(tape, more)


def test_what_modules_are() -> None:
    """By hand, Llama 3.1 8B: a feed-forward that is recomputed keeps nothing of its own, and its norm is part of it.
    DeepSeek-V3: an activation of 8 of 256 experts, norms without output, and keys and values of 128 heads."""
    (dense,) = LAYERS["llama-3.1-8b"].values()
    lost = dense.saved_activation_bytes("none") - dense.saved_activation_bytes("modules=mlp")
    assert lost == 2 * (4096 + 3 * 14336)  # what the norm made; gate, up and their product
    first, other, *_ = LAYERS["deepseek-v3"].values()
    lost = {
        name: other.saved_activation_bytes("none") - other.saved_activation_bytes(f"modules={name}") for name in MODULES
    }
    assert lost["moe_act"] == 2 * 8 * 2048
    assert lost["layernorm"] == 2 * 2 * 7168
    assert lost["mla_up_proj"] == 2 * (128 * (192 + 192 + 128) + 1536 + 512)
    assert lost["mlp"] == 0 < lost["shared_experts"] < lost["moe"]
    assert first.saved_activation_bytes("modules=moe") == first.saved_activation_bytes("none")


STEP: Mapping[str, Any] = {"on": "H100:8", "seq": 2048, "global_batch": 32, "zero": 1}


def simulated(recompute: str, model: str = "llama-3.1-8b", **more: Any) -> Any:
    return gnomon.simulate_training(model, **STEP | more, recompute=recompute)


def figures(report: Any) -> tuple[float, ...]:
    energy = float(report.step.energy_j.value)
    return (report.step_time_s.value, report.step_time_s.low, energy, report.mfu, report.hfu, *report.step.peaks)


CUTS: dict[str, dict[str, Any]] = {"one stage": {}, "pipeline": {"pp": 4}, "interleaved": {"pp": 2, "vp": 2}}


@pytest.mark.parametrize("cut", CUTS)
def test_all_layers_are_full_however_they_are_chosen(cut: str) -> None:
    full = figures(simulated("full", **CUTS[cut]))
    for text in ("full:uniform=1", "full:block=32"):
        assert figures(simulated(text, **CUTS[cut])) == pytest.approx(full, rel=1e-12)
    assert figures(simulated("every=1", engine="torchtitan", **CUTS[cut])) == pytest.approx(
        figures(simulated("full", engine="torchtitan", **CUTS[cut])), rel=1e-12
    )


def test_no_module_is_none() -> None:
    assert figures(simulated("modules=")) == figures(simulated("none"))


@pytest.mark.parametrize(
    ("written", "plain"), [("modules=", "none"), ("modules=mlp+mlp", "modules=mlp"), ("every=1", "full")]
)
def test_answers_have_a_choice_in_its_plainest_form(written: str, plain: str) -> None:
    found = simulated(written)
    assert found.inputs["recompute"] == plain
    assert written not in str(found)


def test_core_attention_is_what_megatron_selects() -> None:
    assert figures(simulated("modules=core_attn")) == pytest.approx(figures(simulated("selective")), rel=1e-12)


@pytest.mark.parametrize("cut", CUTS)
def test_more_layers_take_longer_and_hold_less(cut: str) -> None:
    reports = [simulated(text, **CUTS[cut]) for text in ("none", *(f"full:block={n}" for n in (1, 3, 6, 8)), "full")]
    for few, more in pairwise(reports):
        assert few.step_time_s.value <= more.step_time_s.value * (1 + 1e-9)
        assert max(few.step.peaks) >= max(more.step.peaks) - 1
    assert reports[0].step_time_s.value < reports[1].step_time_s.value < reports[-1].step_time_s.value
    assert max(reports[0].step.peaks) > max(reports[-1].step.peaks)


def test_layers_recomputed_together_keep_one_input() -> None:
    """Eight layers: of four at a time two inputs stay of eight, and three more layers are there in the backward."""
    kept = [simulated(text, pp=4) for text in ("full", "full:uniform=4")]
    passes = [report.memory_parts[0]["activations"] for report in kept]
    stream = 2 * 4096 * 2048
    in_flight = passes[0] / (8 * stream)
    assert passes[0] - passes[1] == pytest.approx(in_flight * 6 * stream)
    none = simulated("none", pp=4).memory_parts[0]["activations"] / in_flight / 8
    parts = [report.memory_parts[0]["working"] for report in kept]
    assert parts[1] - parts[0] == pytest.approx(3 * none, rel=1e-9)


@pytest.mark.parametrize("recompute", ["full:block=2", "full:uniform=3", "full:uniform=8", "modules=core_attn+mlp"])
@pytest.mark.parametrize("cut", CUTS)
def test_the_highest_moment_is_the_peak(cut: str, recompute: str) -> None:
    step = simulated(recompute, **CUTS[cut]).step
    for rank, peak in enumerate(step.peaks):
        assert max(moment.bytes for moment in memory_over_time(step, rank)) == pytest.approx(peak, rel=1e-6)


def roles(text: str, shape: tuple[int, int], rank: int) -> list[str]:
    """The role of every layer of a rank, chunk by chunk."""
    stages = Stages(load_model("llama-3.1-8b"), roles=len(ROLES))
    made = PipelineShape(*shape, 0, code_of(text))
    edges = np.cumsum([0, *stages.sizes(made.parts)])
    order = stages.ordered(made)
    assert stages.line(made).sum() == 32
    return [
        "".join({"": "R", PLAIN: "-", WITHIN: "w"}[ROLES[kind]] for kind in order[edges[part] : edges[part + 1]])
        for part in made.stages[rank].tolist()
    ]


def test_which_layers() -> None:
    assert roles("full:block=2", (4, 2), 1) == ["RR--", "RR--"]
    assert roles("full:uniform=3", (4, 1), 0) == ["RwwRwwRw"]
    assert roles("every=3", (4, 2), 0) == ["--R-", "-R--"]  # a rank counts through its parts
    assert roles("every=2", (1, 1), 0) == ["-R" * 16]


def test_plans_in_one_grid_are_as_each_alone() -> None:
    model, load = load_model("qwen3-30b-a3b"), TrainingLoad(seq=2048, global_batch=32)
    traits = Megatron().traits(model)
    texts = ["none", "full:block=3", "modules=moe_act", "full", "full:uniform=2"]
    alone = [Grid.of(Strategy(pp=4, dp=2), Recipe(recompute=text)) for text in texts]
    columns = {name: np.concatenate([getattr(one, name) for one in alone]) for name in (
        "tp", "pp", "vp", "dp", "micro_batch", "zero", "recompute", "schedule", "sequence_parallel", "cp", "cp_comm",
        "ep", "expert_tp",
    )}  # fmt: skip
    together = sizes(model, load, Grid(**columns), traits, "bf16")
    for row, one in enumerate(alone):
        found = sizes(model, load, one, traits, "bf16")
        for rank in (0, 3):
            assert together.chunks.peak_bytes(rank)[row] == found.chunks.peak_bytes(rank)[0]
            assert together.chunks.body(rank).total[row] == found.chunks.body(rank).total[0]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "by operator under Megatron-LM": ({"recompute": "op"}, "does not recompute by op"),
    "every second layer under Megatron-LM": ({"recompute": "every=2"}, "does not choose layers"),
    "modules under TorchTitan": ({"recompute": "modules=mlp", "engine": "torchtitan"}, "does not recompute mlp"),
    "modules of 2022": ({"recompute": "modules=mlp", "engine": "megatron@3.0"}, "does not recompute mlp"),
    "latent attention": ({"recompute": "modules=mla_up_proj"}, "lacks latent attention"),
    "layers under transformers": ({"recompute": "full:block=2", "engine": "transformers"}, "does not choose layers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_engine_does_not_have_is_refused(case: str) -> None:
    given, said = REFUSED[case]
    with pytest.raises(InputError, match=said):
        gnomon.simulate_training("llama-3.1-8b", **STEP | {"zero": 0} | given)


def test_a_search_tries_what_mixtures_recompute_cheaply() -> None:
    """Beside nothing and all; dense layers have no such modules."""
    given: dict[str, Any] = {"seq": 4096, "global_batch": 32}
    tried = {
        model: set(gnomon.plan_training(model, cluster="H200:16", **given).axes["recompute"])
        for model in ("mixtral-8x7b", "llama-3.1-8b")
    }
    assert tried["mixtral-8x7b"] == {"none", "modules=moe_act+layernorm", "full"}
    assert tried["llama-3.1-8b"] == {"none", "full"}
