"""Training in fp32 and tf32: four bytes everywhere, the attention that frameworks have there, and who refuses it."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.engines import training_engine
from gnomon.engines.training.layer_cost import cut_of, tapes_of
from gnomon.engines.training.wide import exported, imported
from gnomon.errors import InputError
from gnomon.graph.core import CoreAttention
from gnomon.graph.dtypes import width
from gnomon.graph.ops import Gemm
from gnomon.load import model as load_model
from gnomon.load.chips import chip as load_chip
from gnomon.spec import Batch

MODEL, SEQ = "llama-3.2-1b", 1024
BATCH = Batch.prefill([1], SEQ)
ENGINES = ("megatron", "deepspeed", "torchtitan", "torch")
STEP: dict[str, Any] = {"seq": SEQ, "global_batch": 32}
COMMAND = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--num-query-groups 8 --ffn-hidden-size 14336 --seq-length 4096 --micro-batch-size 1"
)


def step(dtype: str, engine: str = "megatron", on: str = "H100:8", **given: Any) -> Any:
    return gnomon.simulate_training(MODEL, on=on, dtype=dtype, engine=engine, **(STEP | given))


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_gradients_and_moments_are_of_four_bytes(engine: str) -> None:
    """One copy of the weights, gradients beside it, and two moments."""
    found = step("fp32", engine)
    parameters = load_model(MODEL).parameters
    parts = found.memory_parts[0]
    assert {name: parts[name] / parameters for name in ("weights", "gradients", "optimizer")} == {
        "weights": 4.0, "gradients": 4.0, "optimizer": 8.0,
    }  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["fp32", "tf32"])
def test_gemms_are_in_the_format_and_all_else_in_four_bytes(engine: str, dtype: str) -> None:
    model, traits = load_model(MODEL), training_engine(engine).traits(load_model(MODEL), "adamw", dtype)
    wide, half = (
        tapes_of(model, cut_of(SEQ, one), training_engine(engine).traits(model, "adamw", one))["layer"]
        for one in (dtype, "bf16")
    )
    gemms = [op for node in wide.nodes for op in node.forward + node.dgrad + node.wgrad if isinstance(op, Gemm)]
    assert {op.dtype for op in gemms} == {dtype}
    assert {width(op.out_dtype) for op in gemms} == {4.0}
    attention = [op for op in wide.forward_ops() if isinstance(op, CoreAttention)]
    assert {op.dtype for op in attention} <= {"fp32"}, "what GEMMs are allowed does not hold for it"
    assert bool(attention) == (traits.style.softmax is None) == (engine in ("torchtitan", "torch"))
    if engine == "torchtitan":
        assert wide.saved_activation_bytes("none") == pytest.approx(2 * half.saved_activation_bytes("none"), rel=0.01)


@pytest.mark.battery(4)
@pytest.mark.parametrize("engine", ENGINES[:3])
@pytest.mark.parametrize("chip", ["H100:8", "A100:8", "MI300X:8"])
def test_fewer_bits_are_no_slower(engine: str, chip: str) -> None:
    formats = [one for one in ("bf16", "tf32", "fp32") if (engine, chip, one) != ("megatron", "MI300X:8", "tf32")]
    times = [step(dtype, engine, chip).step_time_s.value for dtype in formats]
    assert times == sorted(times)
    joules = [step(dtype, engine, chip).energy_j for dtype in formats]
    assert joules == sorted(joules)


def test_scores_in_parts_are_whole_squares() -> None:
    """Of queries with keys, and of shares with values: forward once, backward twice."""
    model = load_model(MODEL)
    tape = tapes_of(model, cut_of(SEQ, "fp32"), training_engine("megatron").traits(model, "adamw", "fp32"))["layer"]
    nodes = {node.name: node for node in tape.nodes}
    one = 2.0 * SEQ * SEQ * model.blocks[0].attention.q_width
    for name in ("attention.scores", "attention.context"):
        assert sum(op.count * op.flops(BATCH)[0] for op in nodes[name].forward) == one
        assert sum(op.count * op.flops(BATCH)[0] for op in nodes[name].dgrad) == 2 * one


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"on": "V100-SXM2-16GB:8", "dtype": "tf32"}, "has no tf32"),
        ({"dtype": "tf32", "engine": "torch"}, "does not train in tf32"),
        ({"dtype": "fp32", "engine": "transformers"}, "fp32 is not priced under transformers"),
        ({"dtype": "fp32", "engine": "megatron@3.0"}, r"not priced under Megatron-LM 3\.0"),
        ({"dtype": "tf32", "optimizer": "adamw-bf16"}, "keeps everything in bf16"),
        ({"dtype": "tf32", "cp": 2}, "attention over several ranks takes 16 bits"),
        ({"dtype": "tf32", "on": "MI300X:8"}, "in tf32 on chips of NVIDIA alone"),
        ({"dtype": "fp32", "lengths": "lognormal:mean=300,cv=1"}, "that differ in length takes 16 bits"),
    ],
)
def test_what_has_none_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        step(**given)


@pytest.mark.parametrize(("name", "what"), [("mixtral-8x7b", "experts"), ("mamba-2.8b", "the kind Mamba")])
def test_kernels_of_16_bits_alone_are_refused(name: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        gnomon.simulate_training(name, on="H100:8", dtype="fp32", **STEP)


def test_what_is_stored_in_fp32_trains_in_16_bits_unless_told() -> None:
    assert load_model("t5-large").dtype == "fp32"
    assert gnomon.simulate_training("t5-large", on="H100:8", seq=512, global_batch=8).step.job.dtype == "bf16"


@pytest.mark.parametrize("chip", ["H100", "MI300X"])
@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16"])
def test_scripts_say_what_fp32_runs_in(dtype: str, chip: str) -> None:
    lines = exported(dtype, load_chip(chip))
    environment = dict(line.removeprefix("export ").split("=") for line in lines)
    assert bool(environment) == (dtype != "bf16")
    for unless_told in (False, True):
        assert imported("fp32" if lines else dtype, environment, unless_told) == dtype


@pytest.mark.parametrize(
    ("said", "dtype"),
    [
        ("", "tf32"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=0 ", "tf32"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 ", "tf32"),
        ("NVIDIA_TF32_OVERRIDE=0 ", "fp32"),
        ("NVIDIA_TF32_OVERRIDE=0 TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 ", "fp32"),
    ],
)
@pytest.mark.parametrize("implementation", ["", "transformer_engine", "local"])
def test_transformer_engine_takes_tf32_unless_told(said: str, dtype: str, implementation: str) -> None:
    """PyTorch does not unless told so; what a command mixes is listed."""
    words = f"{COMMAND} --transformer-impl {implementation}" if implementation else COMMAND
    found = gnomon.import_plan(f"{said}{words}", on="H100")
    own = implementation != "local"
    told = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1" in said
    assert found.plan.dtype == (dtype if own or told else "fp32")
    listed = [one for one in found.ignored if "TF32" in one.option]
    assert bool(listed) == (own and dtype == "tf32" and not told)
