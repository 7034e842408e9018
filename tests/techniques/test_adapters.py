"""LoRA, QLoRA and DoRA on priced steps: what is trained, held, sent and run."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import gnomon
from gnomon.engines.training.layer_cost import tapes_of
from gnomon.errors import InputError
from gnomon.graph.ops import Elementwise
from gnomon.spec.answers import TrainingReport

SMALL: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "on": "H100",
    "seq": 2048,
    "global_batch": 4,
    "engine": "transformers",
}


@cache
def simulated(technique: str = "", **more: Any) -> TrainingReport:
    given = SMALL | more
    return gnomon.simulate_training(given.pop("model"), **given, techniques=[technique] if technique else [])


def matrices(found: TrainingReport, roles: tuple[str, ...] = ()) -> list[tuple[int, int]]:
    """Rows and columns of the decoder's matrices."""
    model = found.step.job.model
    return [
        (tensor.rows, tensor.columns)
        for block in model.blocks
        for _ in range(block.count)
        for tensor in block.tensors(model.hidden)
        if tensor.columns > 1 and (not roles or tensor.role in roles)
    ]


TARGETS = {"all-linear": (), "attention": ("q", "k", "v", "out"), "qkv": ("q", "k", "v"), "qv": ("q", "v")}


@pytest.mark.parametrize("rank", [1, 16, 256])
@pytest.mark.parametrize("targets", TARGETS)
def test_what_is_trained_are_thin_matrices_beside_those_of_the_targets(targets: str, rank: int) -> None:
    found = simulated(f"lora:rank={rank},targets={targets}")
    thin = sum(rank * (rows + columns) for rows, columns in matrices(found, TARGETS[targets]))
    assert found.trainable_parameters == thin
    states = found.step.traits.optimizers["adamw"]
    assert found.memory_parts[0]["optimizer"] == pytest.approx(thin * states.state_bytes, rel=1e-9)
    magnitudes = simulated(f"dora:rank={rank},targets={targets}").trainable_parameters - thin
    assert magnitudes == sum(rows for rows, _ in matrices(found, TARGETS[targets]))


@pytest.mark.parametrize(("double", "bits"), [("no", 4.5), ("yes", 4.126953125)])
def test_packed_matrices_take_four_bits_and_their_scales(double: str, bits: float) -> None:
    plain, packed = (
        simulated("lora", optimizer="adamw-bf16"),
        simulated(f"qlora:double_quant={double}", optimizer="adamw-bf16"),
    )
    weights = sum(rows * columns for rows, columns in matrices(plain))
    less = plain.memory_parts[0]["weights"] - packed.memory_parts[0]["weights"]
    assert less == pytest.approx(weights * (2 - bits / 8), rel=1e-9)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_packed_matrices_are_dequantised_for_each_use(recompute: str) -> None:
    step = simulated("qlora", recompute=recompute, optimizer="adamw-bf16").step
    tape = tapes_of(step.job.model, step.cut, step.traits)["layer"]
    ops = (*tape.forward_ops(), *tape.backward_ops(recompute))
    made = sum(op.written_per_row for op in ops if isinstance(op, Elementwise) and op.name.endswith(".unpack"))
    each = sum(2 * rows * columns for rows, columns in matrices(simulated("qlora"))) / step.job.model.layers
    assert made == (2 if recompute == "none" else 3) * each


def test_only_adapters_are_reduced_and_frozen_layers_are_gathered() -> None:
    ranks = {"on": "H100:8", "engine": "megatron", "global_batch": 8}
    plain, tuned = simulated(zero=1, **ranks), simulated("lora", zero=1, **ranks)
    assert tuned.step.figures.reduce_s[0] < 0.2 * plain.step.figures.reduce_s[0]
    both = [simulated("lora", zero=zero, **ranks).step.figures for zero in (1, 3)]
    assert both[1].chunks.kinds[0].lead_forward_s[0] > 0 == both[0].chunks.kinds[0].lead_forward_s[0]
    held = both[1].chunks.kinds[0]
    assert held.frozen.parameters[0] > 50 * held.held.total[0]


def test_adapters_of_megatron_have_collectives_of_their_own() -> None:
    ranks = {"on": "H100:8", "engine": "megatron", "global_batch": 8, "tp": 4}
    step = simulated("lora", **ranks).step
    tape = tapes_of(step.job.model, step.cut, step.traits)["layer"]
    found = {op.name: op.op for op in tape.forward_ops() if "lora" in op.name and hasattr(op, "op")}
    assert found["attention.qkv.lora_a.leave"] == "all_gather" and found["ffn.down.lora_a.leave"] == "all_reduce"
    assert found["ffn.down.lora_b.leave"] == found["attention.out.lora_b.leave"] == "all_gather"
    assert {"normed", "normed.whole"} <= tape.stays("none"), "gathered inputs are saved, beside a rank's own part"


def test_a_larger_rank_is_never_cheaper_and_narrow_weights_take_time() -> None:
    steps = [simulated(f"lora:rank={rank}").step_time_s.value for rank in (8, 32, 128, 512)]
    assert steps == sorted(steps)
    plain = simulated(optimizer="adamw-bf16")
    tuned = simulated("lora", optimizer="adamw-bf16")
    assert tuned.step.flops["model"] < 0.75 * plain.step.flops["model"]
    assert simulated("qlora", optimizer="adamw-bf16").step_time_s.value > tuned.step_time_s.value
    assert simulated("dora", optimizer="adamw-bf16").step_time_s.value > tuned.step_time_s.value


def test_dropout_saves_its_mask_and_what_it_leaves() -> None:
    plain, dropped = (simulated(f"lora:dropout={share}", optimizer="adamw-bf16") for share in (0, 0.1))
    step = plain.step
    saved = [
        tapes_of(one.step.job.model, one.step.cut, one.step.traits)["layer"].saved_activation_bytes("none")
        for one in (plain, dropped)
    ]
    inputs = sum(columns for _, columns in matrices(plain)) / step.job.model.layers
    shared = {
        "normed",
        "ready",
        "active",
        "mixed",
    }  # of which adapters without dropout save those that nothing else does
    assert saved[1] - saved[0] == pytest.approx(3 * inputs - _lost(step, shared), rel=1e-9)


def _lost(step: Any, names: set[str]) -> float:
    """Inputs that nothing saves when adapters save what dropout leaves of them."""
    tape = tapes_of(step.job.model, step.cut, step.traits)["layer"]
    held = {name for node in tape.nodes if not node.name.endswith(".lora_a") for name in node.keeps}
    return sum(tape.sizes[name] for name in names & tape.stays("none") - held)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("lora", {"engine": "megatron@3.0"}, "trains no adapters"),
    ("lora", {"engine": "deepspeed@0.14"}, "trains no adapters"),
    ("qlora", {"engine": "torchtitan"}, "TorchTitan's LoRAConverter has no weights in nf4"),
    ("dora", {"engine": "torchtitan"}, "has no magnitudes"),
    ("qlora", {"engine": "megatron"}, "Megatron-Bridge has no weights in nf4"),
    ("qlora", {"engine": "deepspeed", "dtype": "fp32"}, "dequantised to 16 bits, not to fp32"),
    ("lora:targets=qv", {"engine": "megatron"}, "adapts queries, keys and values as one matrix"),
    ("lora:rank=2", {"engine": "megatron", "on": "H100:4", "tp": 4}, "a rank of 2 cannot be sharded over 4 ranks"),
    ("lora", {"engine": "megatron", "optimizer": "muon"}, "muon's update is priced for full matrices"),
    ("lora", {"engine": "deepspeed", "optimizer": "adam8bit"}, "adam8bit is not priced under DeepSpeed"),
]


@pytest.mark.parametrize(("technique", "more", "why"), REFUSED)
def test_what_is_not_priced_is_refused_with_its_reason(technique: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        simulated(technique, **more)
