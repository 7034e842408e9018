"""NanoFlow (Zhu et al. 2024): tokens per second of a GPU where compute, memory and network overlap inside a step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.cost.step import StepPrice
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.papers.base import Ours
from gnomon.spec import Batch, Strategy

CHIP, STEP = "A100-SXM-80GB", 2048
NANO = ("nano-batches",)
LENGTHS = {
    "512 in, 512 out": (512, 512),
    "1,024 in, 512 out": (1024, 512),
    "512 in, 1,024 out": (512, 1024),
    "Splitwise": (1155, 211),
    "LMSYS": (102, 222),
    "ShareGPT": (246, 322),
}
CONSTANT, LONGEST = tuple(LENGTHS)[:3], "512 in, 1,024 out"
OPERATORS = {
    "K, Q and V": "attention.qkv",
    "O": "attention.out",
    "up and gate": "ffn.up",
    "down": "ffn.down",
    "decode attention": "attention.decode",
    "prefill attention": "attention.prefill",
}
PORTED = {"llama-3-70b": 8, "qwen2.5-72b": 8, "mixtral-8x7b": 8, "llama-3-8b": 1}
RATE = 260e12
"""FLOP/s of a GPU, of which the paper's optimum is made."""
EARLY, SEQUENCES = "vllm@0.5", 256


@cache
def _price(model: str, ranks: int, lengths: tuple[int, int], techniques: tuple[str, ...]) -> StepPrice:
    """A step of a full batch: prompts come in as fast as answers end."""
    read, made = lengths
    prompts = STEP * read / (read + made)
    strategy, settings = Strategy(tp=ranks, techniques=techniques), {"max_num_seqs": STEP}
    pool = parse_pool(f"{CHIP}:{ranks}")
    engine, deployment = deploy(load_model(model), pool, strategy=strategy, settings=settings)
    steps = Batch.stack([Batch.decode(STEP - prompts, read + made / 2), Batch.prefill(prompts / read, read)])
    together = Batch(
        *(getattr(steps, name).sum(keepdims=True) for name in steps.__dataclass_fields__ if name != "documents")
    )
    return engine.step_model(deployment).price(together).sustained


def _device_s(price: StepPrice) -> float:
    """Without what the host takes, which is scheduled asynchronously."""
    return sum(line.time_s.value for line in price.operators)


def _rate(model: str, ranks: int, lengths: tuple[int, int], techniques: tuple[str, ...] = NANO) -> float:
    return STEP / ranks / _device_s(_price(model, ranks, lengths, techniques))


@cache
def _early(lengths: tuple[int, int]) -> float:
    """vLLM 0.5: prompts in steps of their own, of which each sequence has one, then decodes of all."""
    read, made = lengths
    words: dict[str, Any] = {"on": f"{CHIP}:8", "engine": EARLY, "sustained": True}
    decode = gnomon.predict("llama-2-70b", phase="decode", batch=SEQUENCES, context=read + made // 2, **words)
    prefill = gnomon.predict("llama-2-70b", phase="prefill", batch=1, tokens=read, **words)
    each_s = prefill.time_s.value + made * decode.time_s.value / SEQUENCES
    return (read + made) / each_s / 8


def _throughput() -> Iterator[Ours]:
    for name, lengths in LENGTHS.items():
        yield f"{name}: a GPU", _rate("llama-2-70b", 8, lengths)
    yield f"one after the other, {LONGEST}: a GPU", _rate("llama-2-70b", 8, LENGTHS[LONGEST], ())
    gains = []
    for name in CONSTANT:
        early = _early(LENGTHS[name])
        yield f"vLLM 0.5, {name}: a GPU", early
        gains.append(_rate("llama-2-70b", 8, LENGTHS[name]) / early)
    yield "over vLLM 0.5, constant lengths", sum(gains) / len(gains)


def _operators() -> Iterator[Ours]:
    price = _price("llama-2-70b", 8, LENGTHS[LONGEST], ())
    for name, op in OPERATORS.items():
        yield f"operators: {name}", 1e3 * sum(line.time_s.value for line in price.operators if line.op == op)
    sums = [line.time_s.value for line in price.operators if line.kind == "all_reduce"]
    yield "operators: collectives", 1e3 * sum(sums)


def _ported() -> Iterator[Ours]:
    shares = []
    for model, ranks in PORTED.items():
        optimum = RATE / (2 * load_model(model).active_parameters)
        shares.append(100 * _rate(model, ranks, LENGTHS["1,024 in, 512 out"]) / optimum)
    yield "ported models: least share of the optimum", min(shares)
    yield "ported models: largest share of the optimum", max(shares)


def figures() -> Iterator[Ours]:
    yield from _throughput()
    yield from _operators()
    yield from _ported()
    yield "optimum: a GPU", RATE / (2 * 70e9)
