"""Tensor-parallel collectives in pieces beside GEMMs: what they save, and that it is never more than there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon import catalog
from gnomon.cost import tapes
from gnomon.cost.machine import Machine
from gnomon.engines import training_engine
from gnomon.errors import InputError
from gnomon.graph import layers
from gnomon.graph.ops import Collective, Gemm
from gnomon.graph.tape import Tape
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch, Pool

MODELS = ("llama-3-8b", "llama-3-70b", "gpt3-175b", "qwen3-30b-a3b")
MODES = ("none", "selective", "full")


def layer_of(model: str, tp: int, engine: str = "megatron", **cut: Any) -> Tape:
    found = gnomon.load.model(model)
    expert_tp = {"expert_tp": 1} if found.is_moe else {}
    way = layers.Cut(seq=4096, tp=tp, sequence_parallel=True, tp_overlap=True, **(expert_tp | cut))
    return layers.layer(found, found.blocks[-1], way, training_engine(engine).traits(found).style)


def machine_of(link: float = 1.0) -> Machine:
    """An H100 node whose links are so many times as fast."""
    chip = catalog.chip("H100")
    scaleup = replace(chip.scaleup, bandwidth_bytes_s=chip.scaleup.bandwidth_bytes_s * link)
    return Machine(Pool(chip=replace(chip, scaleup=scaleup), count=8, per_node=8), profile_for(chip), "torch")


def seconds(tape: Tape, machine: Machine, batch: Batch, mode: str) -> tuple[float, float]:
    times = tapes.price(tape.priced_ops(), machine, batch)
    there, back = tapes.forward(tape, times, batch), tapes.backward(tape, mode, times, batch)
    return tuple(float(one.seconds(np.ones(1))[0]) for one in (there, back))  # type: ignore[return-value]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tokens", [512, 8192, 65536])
def test_a_pass_is_never_slower_and_never_shorter_than_the_longer_part(model: str, mode: str, tokens: int) -> None:
    batch = Batch.prefill(tokens // 4096 or 1, min(tokens, 4096))
    for link in (0.1, 1.0, 10.0):
        machine, tape = machine_of(link), layer_of(model, 4)
        assert tape.pieces
        whole, cut = seconds(replace(tape, pieces=()), machine, batch, mode), seconds(tape, machine, batch, mode)
        times = tapes.price(tape.priced_ops(), machine, batch)
        for one in tape.pieces:
            alone, gemms = float(times[one.collective][0]), sum(float(times[op][0]) for op in one.gemms)
            saved = float(tapes._pieces_s([one], times)[0])
            assert 0 <= saved <= min(alone, gemms) + 1e-15
            assert alone + gemms - saved >= max(alone, gemms) * (1 - 1e-12)
        assert all(a <= b for a, b in zip(cut, whole, strict=True))


def test_pieces_are_as_many_bytes_and_flops_as_the_whole() -> None:
    batch = Batch.prefill(2, 4096)
    for engine in ("megatron", "torchtitan"):
        for one in layer_of("llama-3-70b", 8, engine).pieces:
            assert isinstance(one.collective, Collective) and isinstance(one.hop, Collective)
            assert one.hop.count * one.hop.bytes(batch)[0] == pytest.approx(one.collective.bytes(batch)[0] * 7 / 8)
            for gemm, piece in zip(one.gemms, one.cut, strict=True):
                assert isinstance(gemm, Gemm) and isinstance(piece, Gemm)
                assert piece.count * piece.flops(batch)[0] == pytest.approx(gemm.flops(batch)[0])


def test_gathers_scatters_and_the_gathers_of_gradients_are_cut() -> None:
    found = {(one.nodes, one.backward) for one in layer_of("llama-3-8b", 4).pieces}
    assert found == {
        (("attention.enter", "attention.qkv"), False),
        (("attention.leave", "attention.out"), False),
        (("attention.leave", "attention.out"), True),
        (("ffn.enter", "ffn.up"), False),
        (("ffn.leave", "ffn.down"), False),
        (("ffn.leave", "ffn.down"), True),
    }


def test_small_gemms_gain_less_than_the_collectives_take() -> None:
    """Of what could be hidden, a larger part where GEMMs are large."""
    shares = []
    for tokens in (1024, 65536):
        batch, tape, machine = Batch.prefill(tokens // 1024, 1024), layer_of("llama-3-8b", 8), machine_of()
        times = tapes.price(tape.priced_ops(), machine, batch)
        there = [one for one in tape.pieces if not one.backward]
        least = [min(float(times[one.collective][0]), sum(float(times[g][0]) for g in one.gemms)) for one in there]
        shares.append(float(tapes._pieces_s(there, times)[0]) / sum(least))
    assert 0 <= shares[0] < shares[1] < 1


def step(engine: str = "megatron", **others: Any) -> Any:
    asked: dict[str, Any] = {
        "on": "H100:16",
        "seq": 4096,
        "global_batch": 32,
        "tp": 4,
        "zero": 1,
        "tp_overlap": True,
    } | others
    return gnomon.simulate_training(asked.pop("model", "llama-3-8b"), engine=engine, **asked)


@pytest.mark.parametrize("others", [{}, {"pp": 2}, {"recompute": "full"}, {"engine": "torchtitan", "zero": 2}], ids=str)
def test_a_step_gains(others: dict[str, Any]) -> None:
    plain, cut = (step(**(others | {"tp_overlap": on})) for on in (False, True))
    assert cut.step_time_s.value < plain.step_time_s.value
    assert cut.peak_memory_bytes.value == plain.peak_memory_bytes.value


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"sequence_parallel": False}, "ranks all-reduce"),
        ({"tp": 16, "model": "gpt3-175b", "seq": 2048}, "16 ranks take more than its 8"),
        ({"engine": "torchtitan@2024-eager", "zero": 2}, "does not cut collectives"),
        ({"engine": "megatron@3.0"}, "does not cut collectives"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(others: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        step(**others)
    assert caught.value.where == "--tp-overlap"
