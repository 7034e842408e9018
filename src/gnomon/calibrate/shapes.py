"""What to measure first, and what may be measured next: shapes of real models, and others spread between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.spec.workload import Floats

Task = tuple[str, dict[str, Any]]

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1536, 2048, 3072, 4096,
        6144, 8192, 16384)  # fmt: skip
MATRICES = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096),
    (5120, 2048), (2048, 4096), (128, 2048), (151936, 2048),
    (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),
    (2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168), (3072, 2048), (16384, 2048), (2048, 8192),
    (7168, 5120), (5120, 5120), (51200, 5120), (5120, 25600), (4608, 3584), (37888, 3584), (3584, 18944),
    (2112, 7168), (7168, 16384), (36864, 7168), (7168, 18432),
)  # fmt: skip
"""Rows and columns (n, k) of the weights of Llama-3.1 8B and 70B unsharded and at TP 4, Qwen3-30B-A3B, Llama-3.2-1B,
Qwen3-32B, Qwen2.5-7B, DeepSeek-V3."""
HEADS = (
    (32, 8, 128), (64, 8, 128), (32, 4, 128), (8, 1, 128), (32, 8, 64), (28, 4, 128), (40, 8, 128), (16, 16, 128),
    (24, 8, 128), (16, 2, 128), (12, 12, 64), (96, 8, 128), (16, 8, 256), (4, 1, 128),
)  # fmt: skip
"""Query heads, key heads and channels of real models, some cut by tensor parallelism."""
EXPERTS = (
    (2048, 768, 128, 8), (4096, 14336, 8, 2), (4096, 384, 128, 8), (4096, 1536, 64, 8), (7168, 2048, 32, 8),
    (2048, 1408, 64, 6), (2880, 2880, 32, 4), (5120, 8192, 16, 1), (4096, 3584, 8, 2), (2048, 192, 128, 8),
    (7168, 256, 256, 8),
)  # fmt: skip
"""Hidden and inner widths, experts, and experts per token: Qwen3, Mixtral, DeepSeek, gpt-oss, Llama 4."""
MOST_VALUES = 1 << 30
"""Of one operand."""
MOST_EXPERT_VALUES = 1.9e9
POOL = 700


def spread(count: int, *ends: tuple[float, float], start: int = 0) -> Floats:
    """Points that fill a box evenly in the logarithm of its sides, the same every time (additive recurrence)."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (len(ends) + 1))
    steps = ratio ** -np.arange(1, len(ends) + 1)
    places = (0.5 + np.outer(np.arange(start + 1, start + count + 1), steps)) % 1.0
    low, high = np.log(np.array(ends, float)).T
    return np.asarray(np.exp(low + places * (high - low)))


def _of(value: float, multiple: int = 1) -> int:
    return max(multiple, round(value / multiple) * multiple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One kind of operator in one format as one framework runs it: first all of `first`, then the most telling of
    `pool`, `each` per round."""

    name: str
    family: str
    kind: str
    dtype: str
    first: tuple[Task, ...]
    pool: tuple[Task, ...] = ()
    each: int = 0
    rounds: int = 0

    @property
    def most(self) -> int:
        return len(self.first) + self.each * self.rounds


def _drawn_gemms(kernel: str, count: int, *, fixed: dict[str, Any], least: int = 1, start: int = 0) -> Iterator[Task]:
    points = spread(count, (least, 16384), (256, 32768), (256, 32768), start=start)
    for m, n, k in points:
        yield kernel, fixed | {"m": _of(m), "n": _of(n, 64), "k": _of(k, 64)}


def _known_gemms(kernel: str, rows: int, *, fixed: dict[str, Any], least: int = 1) -> Iterator[Task]:
    """Weights of real models, each met by some of the usual numbers of rows; together they meet all."""
    usual = [m for m in ROWS if m >= least]
    for i, (n, k) in enumerate(MATRICES):
        for j in range(rows):
            m = usual[(i * 5 + j * len(usual) // rows) % len(usual)]
            if m * n <= MOST_VALUES:
                yield kernel, fixed | {"m": m, "n": n, "k": k}


def _gemm(name: str, kernel: str, dtype: str, size: tuple[int, int, int, int, int], least: int = 1) -> Design:
    rows, drawn, each, rounds, start = size
    fixed = {"dtype": dtype} if kernel == "gemm" else {}
    first = [*_known_gemms(kernel, rows, fixed=fixed, least=least)]
    first += _drawn_gemms(kernel, drawn, fixed=fixed, least=least, start=start)
    pool = [*_known_gemms(kernel, 27, fixed=fixed, least=least)]
    pool += _drawn_gemms(kernel, POOL, fixed=fixed, least=least, start=start + drawn)
    return _design(name, "gemm", dtype, first, pool, each, rounds)


def _design(
    name: str, kind: str, dtype: str, first: Sequence[Task], pool: Sequence[Task] = (), each: int = 0, rounds: int = 0
) -> Design:
    family = name.partition(".")[0]
    return Design(
        name=name, family=family, kind=kind, dtype=dtype, first=tuple(first), pool=tuple(pool), each=each, rounds=rounds
    )  # fmt: skip


def _heads(i: int) -> dict[str, int]:
    heads, kv_heads, head_dim = HEADS[i % len(HEADS)]
    return {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}


def _decodes(kernel: str, count: int, start: int = 0) -> Iterator[Task]:
    extra = {"q_len": 1} if kernel == "vllm_attention" else {}
    for i, (batch, kv_len) in enumerate(spread(count, (1, 512), (32, 65536), start=start)):
        shape = _heads(start + i) | {"batch": _of(batch), "kv_len": _of(kv_len)} | extra
        if shape["batch"] * shape["kv_len"] * shape["kv_heads"] * shape["head_dim"] <= MOST_VALUES // 2:
            yield kernel, shape


def _prompts(count: int, start: int = 0) -> Iterator[Task]:
    """Prompts under vLLM; every other one goes on after tokens that are cached already."""
    for i, (batch, q_len, before) in enumerate(spread(count, (1, 16), (8, 16384), (64, 32768), start=start)):
        new = _of(q_len)
        keys = new + (_of(before) if i % 2 else 0)
        shape = _heads(start + i) | {"batch": _of(batch), "q_len": max(new, 2), "kv_len": max(keys, 2)}
        if shape["batch"] * new <= 32768 and shape["batch"] * keys * shape["kv_heads"] * shape["head_dim"] <= 1 << 28:
            yield "vllm_attention", shape


def _sequences(count: int, start: int = 0) -> Iterator[Task]:
    for i, (batch, q_len) in enumerate(spread(count, (1, 32), (64, 16384), start=start)):
        if _of(batch) * q_len <= 65536:
            yield "attention_forward", _heads(start + i) | {"batch": _of(batch), "q_len": _of(q_len, 8)}


def _experts(kernel: str, count: int, start: int = 0) -> Iterator[Task]:
    """Every other one of a real model."""
    points = spread(count, (1, 16384), (1024, 8192), (128, 4096), (8, 256), (1, 8), start=start)
    for i, (tokens, hidden, inter, experts, topk) in enumerate(points):
        sizes = _of(hidden, 256), _of(inter, 64), int(2 ** round(np.log2(experts))), _of(topk)
        sizes = EXPERTS[i // 2 % len(EXPERTS)] if i % 2 else sizes
        if 3.0 * sizes[0] * sizes[1] * sizes[2] <= MOST_EXPERT_VALUES:
            shape = dict(zip(("hidden", "inter", "experts", "topk"), sizes, strict=True))
            yield kernel, {"tokens": _of(tokens)} | shape


def _streams(kernel: str, names: Sequence[str], count: int) -> Iterator[Task]:
    for i, name in enumerate(names):
        for tokens, width in spread(count, (1, 16384), (1024, 32768), start=i * count):
            yield kernel, {"name": name, "tokens": _of(tokens), "width": _of(width, 256)}


def _batched(count: int) -> Iterator[Task]:
    for batch, m, n, k in spread(count, (2, 128), (8, 4096), (64, 4096), (64, 4096)):
        shape = {"batch": _of(batch), "m": _of(m), "n": _of(n, 64), "k": _of(k, 64)}
        if shape["batch"] * (shape["m"] * shape["n"] + shape["k"] * (shape["n"] + shape["m"])) < 1 << 29:
            yield "gemm_batched", shape


def _once(name: str, kind: str, tasks: Sequence[Task]) -> Design:
    """Measured as it stands: no model of it is fitted."""
    return _design(name, kind, "bf16", tasks)


SUSTAINED = [dict(zip(("name", "m", "n", "k"), work, strict=True)) for work in (
    ("add", 4096, 0, 8192), ("add", 16384, 0, 8192), ("bf16", 1, 4096, 4096), ("bf16", 8, 16384, 8192),
    ("bf16", 64, 16384, 8192), ("bf16", 256, 2048, 2048), ("bf16", 1024, 1024, 1024), ("bf16", 256, 8192, 8192),
    ("bf16", 4096, 4096, 4096), ("bf16", 8192, 8192, 8192), ("fp8", 8192, 8192, 8192), ("attention", 4, 32, 4096),
    ("rest", 0, 0, 0),
)]  # fmt: skip
"""From light work to the heaviest: watts follow from work that the power limit leaves alone."""
STREAMS = ("add", "mul", "silu", "gelu", "rms_norm", "layer_norm", "softmax", "copy")


def _collectives(cards: int) -> list[Task]:
    from gnomon.calibrate.kernels.collectives import OPS

    ranks = [count for count in (2, 4, 8, 16) if count <= cards]
    sizes = [1 << power for power in range(12, 31, 2)]
    return [("collective", {"op": op, "ranks": n, "size": size}) for op in OPS for n in ranks for size in sizes]


def _sampling() -> list[Task]:
    return [
        ("sampling", {"name": name, "sequences": sequences, "vocabulary": vocabulary})
        for name in ("argmax", "topk", "multinomial")
        for vocabulary in (32000, 128256)
        for sequences in (1, 16, 64, 256)
    ]


def _copies() -> list[Task]:
    return [("host_copy", {"name": n, "size": 1 << p}) for n in ("to_device", "to_host") for p in range(12, 31, 3)]


def _launches() -> list[Task]:
    graphs = [("launch", {"name": "graph", "kernels": count}) for count in (1, 10, 100, 500)]
    return [("launch", {"name": name, "kernels": 1}) for name in ("add", "mm")] + graphs


def _embeddings() -> list[Task]:
    return [
        ("embedding", {"tokens": tokens, "width": width, "vocabulary": 128256})
        for width in (2048, 4096, 8192)
        for tokens in (1, 64, 1024, 8192)
    ]


Maker = Callable[[int], Sequence[Design]]
TORCH: dict[str, Maker] = {
    "launch": lambda _: [_once("launch", "launch", _launches())],
    "copies": lambda _: [_once("copies", "host_copy", _copies())],
    "elementwise": lambda _: [_once("elementwise", "elementwise", [*_streams("stream", STREAMS, 16)])],
    "embedding": lambda _: [_once("embedding", "elementwise", _embeddings())],
    "sampling": lambda _: [_once("sampling", "sampling", _sampling())],
    "gemm": lambda _: [_gemm("gemm.bf16", "gemm", "bf16", (5, 200, 160, 4, 0))],
    "fp16": lambda _: [_gemm("fp16", "gemm", "fp16", (1, 50, 0, 0, 5000))],
    "tf32": lambda _: [_gemm("tf32", "gemm", "tf32", (1, 60, 60, 1, 6000))],
    "int8": lambda _: [_gemm("int8", "gemm_int8", "int8", (1, 60, 60, 1, 7000), least=32)],
    "fp8": lambda _: [_gemm("fp8.torch", "gemm_fp8", "fp8", (3, 100, 100, 2, 8000))],
    "batched": lambda _: [_once("batched", "gemm", [*_batched(60)])],
    "attention": lambda _: [
        _design("attention.forward", "attention_forward", "bf16", [*_sequences(150)], [*_sequences(POOL, 150)], 40, 3),
        _design(
            "attention.torch", "attention_decode", "bf16", [*_decodes("attention_decode", 150)],
            [*_decodes("attention_decode", POOL, 150)], 40, 3,
        ),
    ],
    "moe": lambda _: [
        _design("moe.torch", "moe", "bf16", [*_experts("experts", 120)], [*_experts("experts", POOL, 120)], 40, 3)
    ],
    "collectives": lambda cards: [_once("collectives", "all_reduce", _collectives(cards))],
    "sustained": lambda _: [_once("sustained", "sustained", [("sustained", work) for work in SUSTAINED])],
}  # fmt: skip
VLLM: dict[str, Maker] = {
    "elementwise": lambda _: [
        _once("elementwise.vllm", "elementwise", [*_streams("vllm_stream", ("add_rms_norm", "silu_and_mul"), 40)])
    ],
    "fp8": lambda _: [_gemm("fp8.vllm", "vllm_gemm_fp8", "fp8", (3, 100, 120, 2, 9000))],
    "attention": lambda _: [
        _design(
            "attention.decode", "attention_decode", "bf16", [*_decodes("vllm_attention", 220, 1000)],
            [*_decodes("vllm_attention", POOL, 1220)], 60, 3,
        ),
        _design("attention.prefill", "attention_prefill", "bf16", [*_prompts(200)], [*_prompts(POOL, 200)], 50, 3),
    ],
    "moe": lambda _: [
        _design(
            "moe.vllm", "moe", "bf16", [*_experts("vllm_experts", 130, 1000)],
            [*_experts("vllm_experts", POOL, 1130)], 40, 2,
        )
    ],
}  # fmt: skip
FAMILIES = tuple(TORCH)
"""Families of measurements, in the order they are measured; `sustained` last, since it heats the card."""


def designs(families: Sequence[str], *, vllm: bool, cards: int = 1, formats: Sequence[str] = ()) -> list[Design]:
    """What to measure of these families, in a fixed order; GEMMs in formats the chip lacks are left out."""
    makers = [
        maker for name in FAMILIES if name in families for maker in (TORCH.get(name), VLLM.get(name) if vllm else None)
    ]
    found = [design for maker in makers if maker for design in maker(cards)]
    return [one for one in found if one.kind != "gemm" or one.dtype in formats or not formats]
