"""Megatron-LM's command: every option is one of its own, takes its value, and keeps its rules at the start."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.export import megatron_flags
from tests.export.megatron_options import SWITCH, parser_of, published
from tests.export.training import a_training_plan, started

from gnomon.engines.megatron import launch, options
from gnomon.errors import InputError, UnknownNameError
from gnomon.load import model as load_model
from gnomon.load.training import job_of
from gnomon.spec import (
    AttentionMixer,
    Block,
    DenseFfn,
    EngineChoice,
    Model,
    MoeFfn,
    Plan,
    Recipe,
    Strategy,
    TrainingLoad,
)
from gnomon.spec.training import OPTIMIZERS, RECOMPUTE

WRITTEN = {
    *megatron_flags.SWITCHES,
    *megatron_flags.WHOLE,
    *megatron_flags.SIZES,
    *megatron_flags.NUMBERS,
    *megatron_flags.TEXTS,
    *megatron_flags.CHOICES,
}


@pytest.fixture(scope="module")
def listed() -> dict[str, dict[str, Any]]:
    return {flag: option for option in published() for flag in option["flags"]}


@pytest.fixture(scope="module")
def megatron() -> argparse.ArgumentParser:
    return parser_of(published())


def command(plan: Plan) -> list[str]:
    return launch.command(job_of(plan))


def run_script(plan: Plan) -> str:
    return launch.run_script(job_of(plan), plan)


def not_expressed(plan: Plan) -> list[str]:
    return launch.not_expressed(job_of(plan), plan)


def parsed(megatron: argparse.ArgumentParser, plan: Plan) -> argparse.Namespace:
    words = command(plan)
    arguments, left = megatron.parse_known_args(words[words.index("pretrain_gpt.py") + 1 :])
    assert left == []
    return arguments


def test_every_option_is_megatrons(listed: dict[str, dict[str, Any]]) -> None:
    for flag in megatron_flags.SWITCHES:
        assert listed[flag]["action"] in SWITCH, flag
    for flag in megatron_flags.WHOLE:
        assert (listed[flag]["type"], listed[flag]["nargs"], listed[flag]["choices"]) == ("int", None, None), flag
    for flag in megatron_flags.SIZES:
        assert (listed[flag]["type"], listed[flag]["nargs"], listed[flag]["choices"]) == ("int", "+", None), flag
    for flag in megatron_flags.NUMBERS:
        assert (listed[flag]["type"], listed[flag]["nargs"], listed[flag]["choices"]) == ("float", None, None), flag
    for flag in megatron_flags.TEXTS:
        assert listed[flag]["action"] == "_StoreAction", flag
        assert listed[flag]["type"] not in ("int", "float"), flag
        assert listed[flag]["choices"] is None, flag
    for flag, names in megatron_flags.CHOICES.items():
        assert set(names) <= {str(choice).rpartition(".")[2] for choice in listed[flag]["choices"]}, flag


def values(plan: Plan) -> dict[str, options.Value]:
    return launch.options(job_of(plan))


def kept(plan: Plan) -> None:
    """Only written-down options, each with a value of its kind."""
    for flag, value in values(plan).items():
        if value is False:
            assert flag in WRITTEN
        elif flag in megatron_flags.CHOICES:
            assert value in megatron_flags.CHOICES[flag], flag
        else:
            kinds = {**dict.fromkeys(megatron_flags.SWITCHES, bool), **dict.fromkeys(megatron_flags.WHOLE, int)}
            kinds |= {**dict.fromkeys(megatron_flags.NUMBERS, float), **dict.fromkeys(megatron_flags.TEXTS, str)}
            kinds |= dict.fromkeys((*megatron_flags.SIZES, *megatron_flags.LISTS), tuple)
            one_of_many = flag in megatron_flags.LISTS and isinstance(value, str)
            assert one_of_many or type(value) is kinds[flag], flag


def test_the_script_starts_megatron(megatron: argparse.ArgumentParser, tmp_path: Path) -> None:
    plan = a_training_plan(load=TrainingLoad(seq=4096, global_batch=64, tokens=1e9))
    script = run_script(plan)
    seen = started(script, tmp_path, "--seed", "1", MEGATRON_PATH="/a b")
    assert seen["words"][10] == "/a b/pretrain_gpt.py"
    assert seen["queues"] == "1"
    arguments = megatron.parse_args(seen["words"][11:])
    assert arguments.seed == 1
    assert arguments.train_iters == 3815  # 1e9 tokens by 262,144 a step, begun steps too
    words = command(plan)
    assert words[:6] == ["torchrun", *seen["words"][:4], "pretrain_gpt.py"]
    assert words[6:] == seen["words"][11:-2]


def test_a_llama(megatron: argparse.ArgumentParser) -> None:
    said = parsed(megatron, a_training_plan())
    shape = (said.num_layers, said.hidden_size, said.ffn_hidden_size, said.num_attention_heads, said.kv_channels)
    assert shape == (32, 4096, 14336, 32, 128)
    assert (said.group_query_attention, said.num_query_groups) == (True, 8)
    assert (said.swiglu, said.normalization, said.layernorm_epsilon) == (True, "RMSNorm", 1e-5)
    assert (said.add_bias_linear, said.add_qkv_bias) == (False, False)
    assert (said.position_embedding_type, said.rotary_base, said.max_position_embeddings) == ("rope", 500000, 131072)
    assert (said.use_rope_scaling, said.rope_scaling_factor) == (True, 8.0)
    assert said.untie_embeddings_and_output_weights
    assert (said.vocab_size, said.tokenizer_type, said.mock_data) == (128256, "NullTokenizer", True)
    assert (said.tensor_model_parallel_size, said.pipeline_model_parallel_size) == (2, 1)
    assert (said.micro_batch_size, said.global_batch_size, said.seq_length, said.train_iters) == (1, 64, 4096, 20)
    assert (said.sequence_parallel, said.bf16, said.fp16) == (True, True, False)
    assert (said.hidden_dropout, said.attention_dropout) == (0.0, 0.0)
    assert said.recompute_granularity is None


@pytest.mark.parametrize(
    ("model", "settings", "kind", "modules"),
    [
        ("llama-3.1-8b", {}, "full_iteration", None),
        ("mixtral-8x7b", {"capacity_factor": 1.0, "pad_to_capacity": True}, "full_iteration", None),
        ("mixtral-8x7b", {}, "transformer_engine", ("attn", "moe_router", "moe_preprocess")),
        ("deepseek-v2-lite", {}, "transformer_engine", ("attn", "moe_router", "moe_preprocess", "mlp")),
    ],
)
def test_cuda_graphs(model: str, settings: dict[str, Any], kind: str, modules: tuple[str, ...] | None) -> None:
    recipe = Recipe(cuda_graphs=True, sequence_parallel=True, **settings)
    plan = a_training_plan(recipe, model=model)
    said = values(plan)
    assert (said["--cuda-graph-impl"], said.get("--cuda-graph-modules")) == (kind, modules)
    assert said["--te-rng-tracker"] is True
    kept(plan)
    assert "--cuda-graph-impl" not in values(a_training_plan(model=model))


GPT = Model(
    name="gpt",
    family="gpt",
    hidden=768,
    vocab=50257,
    blocks=(
        Block(
            mixer=AttentionMixer(heads=12, kv_heads=12, head_dim=64, qkv_bias=True, out_bias=True),
            ffn=DenseFfn(inner=3072, gated=False, bias=True),
            count=12,
        ),
    ),
    max_context=1024,
    tied_embeddings=True,
    norm_bias=True,
    learned_positions=1024,
)


def use(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setattr("gnomon.load.training.load_model", lambda _: model)


def test_a_gpt(megatron: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, GPT)
    plan = a_training_plan(load=TrainingLoad(seq=1024, global_batch=64))
    kept(plan)
    said = parsed(megatron, plan)
    assert (said.swiglu, said.normalization, said.add_bias_linear) == (False, "LayerNorm", True)
    assert (said.position_embedding_type, said.max_position_embeddings) == ("learned_absolute", 1024)
    assert not said.untie_embeddings_and_output_weights
    assert not said.group_query_attention
    assert not_expressed(plan)[1:] == ["a vocabulary of 50,257 tokens: Megatron-LM pads it to 50,432"]
    with pytest.raises(InputError, match="1025 is more than the 1024 positions"):
        command(a_training_plan(Recipe(sequence_parallel=False), load=TrainingLoad(seq=1025, global_batch=64)))


def test_experts(megatron: argparse.ArgumentParser) -> None:
    plan = a_training_plan(model="qwen3-30b-a3b", strategy=Strategy(dp=8, ep=4))
    kept(plan)
    said = parsed(megatron, plan)
    assert (said.num_experts, said.moe_router_topk, said.moe_ffn_hidden_size) == (128, 8, 768)
    assert (said.expert_model_parallel_size, said.qk_layernorm) == (4, True)
    assert said.moe_layer_freq == 1
    for changes, where in (
        ({"strategy": Strategy(dp=8, ep=3)}, "128 experts cannot be split into 3"),
        ({"strategy": Strategy(dp=2, ep=4)}, "2 ranks of data and context parallelism cannot be split into 4"),
        ({"strategy": Strategy(dp=4, ep=4), "model": "llama-3.1-8b"}, "has no experts"),
    ):
        with pytest.raises(InputError, match=re.escape(where)):
            command(replace(plan, **changes))
    with pytest.raises(InputError, match="Set it to true"):
        command(a_training_plan(Recipe(sequence_parallel=False), model="qwen3-30b-a3b"))


def test_layers_that_differ(megatron: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    mixer = AttentionMixer(heads=12, kv_heads=12, head_dim=64, qkv_bias=True)
    dense = Block(mixer=mixer, ffn=DenseFfn(inner=3072, bias=True), count=2)
    sparse = Block(mixer=replace(mixer, window=64), ffn=MoeFfn(experts=8, topk=2, inner=512, shared_inner=256), count=4)
    use(monkeypatch, replace(GPT, blocks=(dense, sparse), learned_positions=0, max_context=4096, norm_bias=False))
    plan = a_training_plan(strategy=Strategy())
    kept(plan)
    said = parsed(megatron, plan)
    assert said.moe_layer_freq == "([0]*2+[1]*4)"
    assert (said.ffn_hidden_size, said.moe_ffn_hidden_size, said.moe_shared_expert_intermediate_size) == (
        3072,
        512,
        256,
    )
    assert (said.add_bias_linear, said.add_qkv_bias, said.window_size) == (False, True, None)
    lines = "\n".join(not_expressed(plan))
    assert "biases in some linear layers only" in lines
    assert "a sliding window in some layers only" in lines


def test_latent_attention_experts_and_uneven_stages(megatron: argparse.ArgumentParser) -> None:
    strategy = Strategy(tp=2, pp=8, dp=64, ep=64)
    plan = a_training_plan(
        Recipe(zero=1, expert_tp=1), model="deepseek-v3", dtype="fp8", strategy=strategy,
        load=TrainingLoad(seq=4096, global_batch=8192),
    )  # fmt: skip
    kept(plan)
    said = parsed(megatron, plan)
    assert (said.multi_latent_attention, said.q_lora_rank, said.kv_lora_rank) == (True, 1536, 512)
    assert (said.qk_head_dim, said.qk_pos_emb_head_dim, said.v_head_dim) == (128, 64, 128)
    assert (said.expert_model_parallel_size, said.expert_tensor_parallel_size) == (64, 1)
    assert (said.moe_router_score_function, said.moe_router_num_groups, said.moe_router_group_topk) == ("sigmoid", 8, 4)
    assert (said.bf16, said.fp8, said.fp8_recipe) == (True, "hybrid", "delayed")
    layout = said.pipeline_model_parallel_layout
    assert [part.count("t") for part in layout.split("|")] == [7, 7, 8, 8, 8, 8, 8, 7]
    assert (layout[0], layout[-1]) == ("E", "L")
    assert any("draft" in line for line in not_expressed(plan))


@pytest.mark.parametrize(
    ("dtype", "recipe"),
    [
        ("fp8", ("hybrid", "delayed")),
        ("fp8-current", ("hybrid", "tensorwise")),
        ("fp8-blocks", ("e4m3", "blockwise")),
        ("mxfp8", ("e4m3", "mxfp8")),
        ("nvfp4", ("e2m1", "nvfp4")),
        ("bf16", None),
    ],
)
def test_recipes_of_eight_bits_and_fewer(
    megatron: argparse.ArgumentParser, dtype: str, recipe: tuple[str, str] | None
) -> None:
    said = parsed(megatron, a_training_plan(dtype=dtype, chip="B200"))
    eight, four = (said.fp8, said.fp8_recipe) if said.fp8 else None, (said.fp4, said.fp4_recipe) if said.fp4 else None
    assert said.bf16
    assert (eight, four) == ((None, recipe) if dtype == "nvfp4" else (recipe, None))


def test_context_parallel_ranks(megatron: argparse.ArgumentParser) -> None:
    for name, flag in (("p2p", "p2p"), ("a2a", "a2a"), ("allgather", "all_gather")):
        plan = a_training_plan(Recipe(cp_comm=name), strategy=Strategy(cp=4, dp=2))
        said = parsed(megatron, plan)
        assert (said.context_parallel_size, said.cp_comm_type) == (4, [flag])


@pytest.mark.parametrize(("name", "zero", "flag"), [("lion", 0, "lion"), ("sgd", 1, "sgd"), ("muon", 0, "muon")])
def test_optimizers(megatron: argparse.ArgumentParser, name: str, zero: int, flag: str) -> None:
    assert parsed(megatron, a_training_plan(Recipe(optimizer=name, zero=zero))).optimizer == flag


@pytest.mark.parametrize("name", ["adam8bit", "adafactor"])
def test_an_optimizer_it_does_not_have_is_no_other(name: str) -> None:
    with pytest.raises(InputError, match=f"Megatron-LM has no optimizer {name}"):
        command(a_training_plan(Recipe(optimizer=name)))


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_experts_are_trained_in_bf16(dtype: str) -> None:
    with pytest.raises(InputError, match=f"trains experts in bf16, fp8 or fp4, not in {dtype}"):
        command(a_training_plan(model="qwen3-30b-a3b", strategy=Strategy(dp=8), dtype=dtype))


def test_parts_of_unequal_stages_are_said_once(megatron: argparse.ArgumentParser) -> None:
    """Megatron-LM takes a layout or a number of parts a rank, never both."""
    uneven = a_training_plan(
        Recipe(schedule="interleaved"),
        strategy=Strategy(pp=4, vp=3, dp=2),
        load=TrainingLoad(seq=4096, global_batch=64),
    )
    said = parsed(megatron, uneven)
    assert len(said.pipeline_model_parallel_layout.split("|")) == 12
    assert said.num_virtual_stages_per_pipeline_rank is None
    even = parsed(megatron, replace(uneven, strategy=Strategy(pp=4, vp=2, dp=2)))
    assert (even.pipeline_model_parallel_layout, even.num_virtual_stages_per_pipeline_rank) == (None, 2)


def test_a_window(megatron: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    block = replace(GPT.blocks[0], mixer=replace(GPT.blocks[0].mixer, window=512))
    use(monkeypatch, replace(GPT, blocks=(block,)))
    assert parsed(megatron, a_training_plan(load=TrainingLoad(seq=1024, global_batch=64))).window_size == "511,0"
    assert parsed(megatron, a_training_plan(load=TrainingLoad(seq=512, global_batch=64))).window_size is None


@pytest.mark.parametrize(
    ("config", "flag", "said"),
    [
        ({"rope_theta": 10000.5, "rope_scaling": None}, None, "a rotary base of 10000.5"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, 500000, "rotary embeddings of type 'yarn'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": "x"}}, 500000, "rotary embeddings of type 'llama3'"),
        ({"rope_scaling": "strange"}, 500000, ""),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 7e4, "rope_type": "default"}}, 70000, ""),
    ],
)
def test_rotary_positions(config: dict[str, Any], flag: int | None, said: str, tmp_path: Path) -> None:
    from gnomon.load import config_of

    whole = {key: value for key, value in (config_of("llama-3.1-8b") | config).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    plan = a_training_plan(model=str(tmp_path))
    assert values(plan).get("--rotary-base") == flag
    assert [line for line in not_expressed(plan) if "rotary" in line] == ([said] if said else [])


@pytest.mark.parametrize(
    ("zero", "strategy", "expected"),
    [
        (0, None, (False, False, False)),
        (1, None, (True, False, False)),
        (2, "optim_grads", (True, True, True)),
        (3, "optim_grads_params", (True, True, True)),
    ],
)
def test_sharing_out(
    megatron: argparse.ArgumentParser, zero: int, strategy: str | None, expected: tuple[bool, ...], tmp_path: Path
) -> None:
    plan = a_training_plan(Recipe(zero=zero))
    said = parsed(megatron, plan)
    assert (said.use_distributed_optimizer, said.use_megatron_fsdp, said.overlap_param_gather) == expected
    assert said.overlap_grad_reduce
    if strategy:
        assert said.data_parallel_sharding_strategy == strategy
        assert said.ckpt_format == "fsdp_dtensor"
        assert not said.gradient_accumulation_fusion
    queues = started(run_script(plan), tmp_path, CUDA_DEVICE_MAX_CONNECTIONS="1")["queues"]
    assert queues == (None if strategy else "1")


def test_what_the_plans_engine_does_not_overlap() -> None:
    torch = EngineChoice(name="torch")
    assert values(a_training_plan(Recipe(zero=1), engine=torch))["--overlap-grad-reduce"] is False
    assert values(a_training_plan(Recipe(zero=3), engine=torch))["--overlap-grad-reduce"] is True


def test_recomputing(megatron: argparse.ArgumentParser) -> None:
    full = parsed(megatron, a_training_plan(Recipe(recompute="full")))
    assert (full.recompute_granularity, full.recompute_method, full.recompute_num_layers) == ("full", "uniform", 1)
    selective = parsed(megatron, a_training_plan(Recipe(recompute="selective")))
    assert (selective.recompute_granularity, selective.recompute_modules) == ("selective", ["core_attn"])
    assert selective.recompute_method is None
    some = parsed(megatron, a_training_plan(Recipe(recompute="full:block=4"), strategy=Strategy(pp=4, dp=2)))
    assert (some.recompute_method, some.recompute_num_layers) == ("block", 4)
    modules = parsed(megatron, a_training_plan(Recipe(recompute="modules=core_attn+mlp")))
    assert (modules.recompute_granularity, modules.recompute_modules) == ("selective", ["core_attn", "mlp"])
    for text in ("every=2", "op"):
        with pytest.raises(InputError, match="does not recompute by"):
            run_script(a_training_plan(Recipe(recompute=text)))


def test_states_in_the_working_format(megatron: argparse.ArgumentParser) -> None:
    said = parsed(megatron, a_training_plan(Recipe(optimizer="adamw-bf16", zero=1)))
    assert said.use_precision_aware_optimizer
    assert (said.exp_avg_dtype, said.exp_avg_sq_dtype, said.main_grads_dtype) == ("bf16", "bf16", "bf16")
    assert not said.accumulate_allreduce_grads_in_fp32
    moments = parsed(megatron, a_training_plan(Recipe(optimizer="adamw-moments-bf16", zero=1)))
    assert moments.use_precision_aware_optimizer and moments.accumulate_allreduce_grads_in_fp32
    assert (moments.exp_avg_dtype, moments.exp_avg_sq_dtype, moments.main_grads_dtype) == ("bf16", "bf16", "fp32")
    one = parsed(megatron, a_training_plan(Recipe(optimizer="adamw-moments-bf16", zero=0), strategy=Strategy(dp=1)))
    assert one.use_distributed_optimizer
    plain = parsed(megatron, a_training_plan(Recipe(optimizer="adamw", zero=1)))
    assert (plain.use_precision_aware_optimizer, plain.accumulate_allreduce_grads_in_fp32) == (False, True)


def lines(recipe: Recipe, **changes: Any) -> str:
    return "\n".join(not_expressed(a_training_plan(recipe, **changes))[1:])


def test_what_cannot_be_said() -> None:
    even = {"strategy": Strategy(pp=2, dp=4)}  # a vocabulary that needs no padding
    assert lines(Recipe(), **even) == ""
    assert lines(Recipe(schedule="gpipe"), **even) == "the gpipe schedule: Megatron-LM runs 1f1b"
    alone = "schedule gpipe: one pipeline rank has only one order of passes"
    assert lines(Recipe(schedule="gpipe"), strategy=Strategy(dp=8)) == alone
    assert lines(Recipe(recompute="selective"), **even) == ""
    assert "as in torch" in lines(Recipe(recompute="selective"), **even, engine=EngineChoice(name="torch"))
    assert lines(Recipe(optimizer="adamw-bf16", zero=1), **even) == (
        "optimizer states in bf16 alone: Megatron-LM keeps a master copy of the weights in fp32"
    )
    assert lines(Recipe(optimizer="adamw-bf16"), **even).endswith("moments and gradients too: they need zero 1 or more")
    assert lines(Recipe(optimizer="adamw-bf16"), **even, dtype="fp32") == ""
    offloaded = Strategy(dp=8, techniques=("offload-optimizer",))
    assert lines(Recipe(), strategy=offloaded) == "the technique offload-optimizer"


def test_unknown_formats_are_errors() -> None:
    with pytest.raises(UnknownNameError, match="dtype: unknown training format 'fp4'"):
        command(a_training_plan(dtype="fp4"))


degrees = st.sampled_from([1, 2, 4, 8])
plans = st.builds(
    lambda recipe, **changes: a_training_plan(recipe, load=TrainingLoad(seq=4096, global_batch=256), **changes),
    st.builds(
        Recipe,
        micro_batch=st.sampled_from([1, 2]),
        schedule=st.sampled_from(["gpipe", "1f1b", "interleaved"]),
        recompute=st.sampled_from((*RECOMPUTE, "full:block=2", "full:uniform=4", "modules=core_attn+mlp")),
        zero=st.integers(0, 3),
        optimizer=st.sampled_from(OPTIMIZERS),
        sequence_parallel=st.booleans(),
    ),
    model=st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"]),
    strategy=st.builds(
        Strategy, tp=degrees, pp=degrees, vp=st.sampled_from([1, 2]), cp=degrees, dp=degrees, ep=degrees
    ),
    dtype=st.sampled_from(["bf16", "fp16", "fp32"]),
    engine=st.sampled_from([EngineChoice(name="megatron"), EngineChoice(name="torch")]),
)


def startable(plan: Plan) -> bool:
    try:
        return bool(run_script(plan))
    except InputError:
        return False


@given(plans.filter(startable))
@settings(max_examples=examples(200))
def test_only_written_down_options_are_used(plan: Plan) -> None:
    kept(plan)
    assert run_script(plan) == run_script(plan)


@given(plans.filter(startable))
@settings(max_examples=examples(200))
def test_whatever_is_written_megatron_takes(megatron: argparse.ArgumentParser, plan: Plan) -> None:
    said = parsed(megatron, plan)
    world = plan.chips
    ranks = said.tensor_model_parallel_size * said.pipeline_model_parallel_size * said.context_parallel_size
    assert world == ranks * plan.strategy.dp
    assert said.global_batch_size % (said.micro_batch_size * plan.strategy.dp) == 0
    assert not (said.num_virtual_stages_per_pipeline_rank and said.pipeline_model_parallel_layout)
    parts = said.pipeline_model_parallel_size * (said.num_virtual_stages_per_pipeline_rank or 1)
    assert said.num_layers % parts == 0 or said.pipeline_model_parallel_layout
    assert said.bf16 or not said.moe_grouped_gemm
    assert said.overlap_grad_reduce or not said.overlap_param_gather
    assert said.use_distributed_optimizer or not (said.overlap_param_gather or said.use_precision_aware_optimizer)
    assert said.use_precision_aware_optimizer or said.main_grads_dtype == said.exp_avg_dtype == "fp32"
    assert not (said.accumulate_allreduce_grads_in_fp32 and said.main_grads_dtype != "fp32")
    assert (said.ckpt_format == "fsdp_dtensor") == said.use_megatron_fsdp
    assert (said.recompute_method is None) == (said.recompute_granularity != "full")
    assert said.tensor_model_parallel_size > 1 or not said.sequence_parallel
    assert said.seq_length <= said.max_position_embeddings
    assert said.fp16 + said.bf16 == (plan.dtype != "fp32")
    assert load_model(plan.model).is_moe == (said.num_experts is not None)


def test_layers_in_bf16_and_gathered_weights(megatron: argparse.ArgumentParser) -> None:
    for dtype in ("fp8-current", "mxfp8"):
        plan = a_training_plan(Recipe(zero=1, fp8_param_gather=True, bf16_layers="2,3"), dtype=dtype, chip="B200")
        said = parsed(megatron, plan)
        assert (said.fp8_param_gather, said.reuse_grad_buf_for_mxfp8_param_ag) == (True, dtype == "mxfp8")
        assert said.use_distributed_optimizer
        ends = (said.num_layers_at_start_in_bf16, said.num_layers_at_end_in_bf16)
        assert (said.first_last_layers_bf16, *ends) == (True, 2, 3)
