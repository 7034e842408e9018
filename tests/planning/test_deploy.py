"""From names and numbers to one replica."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy, replica_of
from gnomon.planning.deploy import title_of
from gnomon.spec import EngineChoice, Strategy
from gnomon.spec.questions.parts import ServedQuestion


def named(model: Any = "llama-3.1-8b", on: str = "H200", **words: Any) -> tuple[Engine, Deployment, dict[str, Any]]:
    engine = words.pop("engine", "vllm")
    replica = replica_of(ServedQuestion(model=model, on=on, **words), engine)
    deployment = replica.deploy()
    return replica.engine, deployment, replica.inputs(deployment)


def test_a_replica_spans_all_chips_unless_told() -> None:
    assert named(on="H200:4")[1].strategy == Strategy(tp=4)
    assert named(on="H200:4", tp=2)[1].strategy == Strategy(tp=2)


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "expected"),
    [
        (None, None, ("bf16", "bf16")),
        ("fp8", None, ("fp8", "bf16")),
        ("fp8", "fp8", ("fp8", "fp8")),
        ("fp16", None, ("fp16", "fp16")),
        ("bf16", "fp8", ("bf16", "fp8")),
    ],
)
def test_formats(dtype: str | None, kv_dtype: str | None, expected: tuple[str, str]) -> None:
    deployment = named(dtype=dtype, kv_dtype=kv_dtype)[1]
    assert (deployment.dtype, deployment.kv_dtype) == expected


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "olmo-2-7b", "starcoder2-7b", "starcoder-15b", "mamba-2.8b"])
@pytest.mark.parametrize(("on", "half"), [("H100", "bf16"), ("V100", "fp16")])
def test_what_is_stored_in_fp32_runs_in_16_bits(name: str, on: str, half: str) -> None:
    """As vLLM's `auto` has it; the answer's title and inputs say so."""
    engine, deployment, words = named(name, on)
    assert (deployment.dtype, deployment.kv_dtype, words["dtype"], words["kv_dtype"]) == (half,) * 4
    assert f", {half}, " in title_of(engine, deployment)
    weights = engine.memory(deployment).parts["weights"]
    assert weights == pytest.approx(2.0 * load_model(name).parameters, rel=2e-3)


def test_what_stays_wide_of_fp32_is_in_16_bits() -> None:
    """Embeddings beside narrow matrices are in the 16 bits that the rest would have."""
    narrow, model = named("starcoder2-7b", "H100", dtype="fp8")[1].model, load_model("starcoder2-7b")
    assert (model.dtype, narrow.working_dtype, narrow.dtype) == ("fp32", "bf16", "fp8")


def test_fp32_is_not_priced_where_it_is_asked_for() -> None:
    with pytest.raises(InputError, match="'fp32' is not priced"):
        named("gpt2", "H100", dtype="fp32")


def test_settings_are_filled_and_given_ones_kept() -> None:
    _, deployment, words = named(settings={"max_num_seqs": "64"})
    assert deployment.settings["max_num_seqs"] == 64
    assert deployment.settings["max_num_batched_tokens"] == 8192
    assert words["settings"] == {"max_num_seqs": "64"}


def test_words_make_the_same_replica_again() -> None:
    first = named("llama-3.1-70b", "H100:8", tp=4, dtype="fp8", settings={"max_model_len": 8192})
    words = dict(first[2])
    again = named(words.pop("model"), words.pop("on"), **words)
    assert again == first


def test_a_model_can_be_handed_over() -> None:
    model = load_model("llama-3.1-8b")
    _, deployment, words = named(model)
    assert deployment.model is model
    assert words["model"] == "llama-3.1-8b"


def test_an_engine_choice_brings_its_settings() -> None:
    choice = EngineChoice(name="vllm", version="0.24", settings={"max_num_seqs": 8, "max_model_len": 1000})
    engine, deployment = deploy(
        load_model("llama-3.1-8b"), parse_pool("H100"), engine=choice, settings={"max_num_seqs": 16}
    )
    assert engine.version == "0.24.0"
    assert (deployment.settings["max_num_seqs"], deployment.settings["max_model_len"]) == (16, 1000)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"tp": 2}, "--on: one replica needs 2 chips .* pool has 1.*H200-SXM-141GB:2"),
        ({"on": "H200:4", "tp": 8}, "8 chips"),
        ({"dtype": "fp4"}, "unknown number format of weights 'fp4'"),
        ({"dtype": "bf61"}, "bf61"),
        ({"kv_dtype": "bf61"}, "bf61"),
        ({"engine": "tgi"}, "tgi"),
        ({"settings": {"max_num_seqs": 0}}, "max_num_seqs"),
    ],
)
def test_refusals(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        named(**words)


def test_titles_begin_every_answer() -> None:
    engine, deployment, _ = named("meta-llama/Llama-3.1-70B", "h100:4", dtype="fp8")
    assert title_of(engine, deployment) == "Llama-3.1-70B, fp8, 4 x H100-SXM-80GB, vLLM 0.24"
