"""Random operator tables: sizes of every kind, drawn evenly in their logarithm, always the same."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from gnomon.cost import host_rows, passes
from gnomon.cost.machine import COLLECTIVES, EXCHANGES
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

Columns = dict[str, Floats]
MULTIPLY = ("gemm", "gemm_unaligned", "conv", "conv_few", "conv_depthwise", "moe")
HEAD_DIMS = (32.0, 64.0, 80.0, 96.0, 128.0, 192.0, 256.0)
GROUPS = (2.0, 3.0, 4.0, 8.0, 16.0, 24.0, 64.0, 512.0)


@dataclass
class Draw:
    """A source of sizes that depends on nothing but its name."""

    name: str
    rows: int = 150

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(zlib.crc32(self.name.encode()))

    def __call__(self, low: float, high: float) -> Floats:
        return np.round(np.exp(self.rng.uniform(np.log(low), np.log(high), self.rows)))

    def of(self, choices: tuple[float, ...]) -> Floats:
        return self.rng.choice(choices, self.rows)


def columns(kind: str, draw: Draw) -> Columns:
    """Rows of one kind, with all its optional columns."""
    if kind in COLLECTIVES:
        return {"bytes": draw(1, 1e11), "ranks": draw.of(GROUPS)}
    if kind in EXCHANGES:
        sizes = {"tokens": draw(1, 1e6), "hidden": draw(64, 20_000), "ranks": draw.of((2.0, 4.0, 8.0))}
        return sizes | {"experts": draw(32, 512), "topk": draw(1, 16), "blocks": draw(1, 64)}
    if kind.startswith("attention"):
        return _attention(kind, draw)
    if kind.startswith("scan"):
        return _scan(kind, draw)
    if kind in ("mla_decode", "mla_backward", "index_scores"):
        return _latent(kind, draw)
    if kind == "elementwise":
        return {"bytes_read": draw(1, 1e11), "bytes_written": draw(1, 1e11)}
    if kind == "algebra":
        return {"flops": draw(1, 1e16), "bytes": draw(1, 1e12), "steps": draw(1, 1e6)}
    if kind in passes.KINDS:
        return _sort(draw) if kind == passes.SORT else _instructions(draw)
    if kind in host_rows.KINDS:
        sizes = {"rows": draw(1, 1e9), "row_bytes": draw(4, 100_000), "readers": draw.of((1.0, 2.0, 8.0))}
        return sizes | ({"unaligned": draw.of((0.0, 1.0))} if kind == host_rows.IN_PLACE else {})
    if kind == "moe":
        experts = draw(2, 512)
        sizes = {"tokens": draw(1, 50_000), "hidden": draw(64, 20_000), "inter": draw(64, 20_000)}
        return sizes | {"experts": experts, "topk": np.minimum(draw(1, 16), experts)}
    sizes = {"m": draw(1, 50_000), "n": draw(1, 60_000), "k": draw(1, 60_000), "batch": draw(1, 64)}
    if kind == "gemm_unaligned":
        sizes["aligned"] = draw.of((2.0, 4.0, 8.0))
    if kind.startswith("conv"):
        m, n, k, groups = sizes.values()
        sizes["bytes"] = 2 * groups * (m + n * k + m * n)
    return sizes


def _sort(draw: Draw) -> Columns:
    sizes = {"keys": draw(1, 1e10), "key_bytes": draw.of((1.0, 2.0, 4.0, 8.0)), "value_bytes": draw.of((0.0, 4.0, 8.0))}
    return sizes | {"digit_bits": draw.of((4.0, 8.0)), "reads": draw.of((1.0, 2.0))}


def _instructions(draw: Draw) -> Columns:
    """Of the sizes that tensor cores have had, from Volta's 8x8x4 to Blackwell's 256x256x16."""
    sizes = {"m": draw.of((8.0, 16.0, 64.0, 256.0)), "n": draw.of((8.0, 16.0, 128.0, 256.0))}
    sizes |= {"k": draw.of((4.0, 8.0, 16.0, 32.0)), "warps": draw(1, 64), "ilp": draw(1, 8)}
    return sizes | {"cycles": draw(2, 200), "count": draw(1, 1e7)}


def _attention(kind: str, draw: Draw) -> Columns:
    kv_heads, keys = draw(1, 64), draw(1, 200_000)
    sizes = {"batch": draw(1, 512), "heads": kv_heads * draw(1, 256), "kv_heads": kv_heads}
    new = np.minimum(draw(1, 8 if kind == "attention_decode" else 20_000), keys)
    window = np.where(draw.of((0.0, 1.0)) > 0, draw(1, 5000), 0.0)
    sizes |= {"head_dim": draw.of(HEAD_DIMS), "q_len": new, "kv_len": keys}
    return sizes | {"window": window, "causal": draw.of((0.0, 1.0, 1.0))}


def _scan(kind: str, draw: Draw) -> Columns:
    sequences, groups = draw(1, 256), draw.of((1.0, 2.0, 8.0))
    tokens = sequences if "decode" in kind else sequences * draw(1, 8000)
    heads = {"heads": groups * draw(1, 16), "head_dim": draw.of(HEAD_DIMS), "state_dim": draw.of((16.0, 64.0, 128.0))}
    rest = {"groups": groups, "chunk": draw.of((64.0, 128.0, 256.0)), "state_bytes": draw.of((2.0, 4.0))}
    return {"sequences": sequences, "tokens": tokens} | heads | rest


def _latent(kind: str, draw: Draw) -> Columns:
    keys = draw(1, 200_000)
    sizes = {"batch": draw(1, 512), "heads": draw(1, 128), "kv_len": keys}
    if kind.startswith("mla"):
        return sizes | {"kv_rank": draw.of((256.0, 512.0)), "rope_dim": draw.of((32.0, 64.0))}
    return sizes | {"q_len": np.minimum(draw(1, 20_000), keys), "head_dim": draw.of((64.0, 128.0))}


def formats(kind: str, chip: Chip) -> list[str]:
    """Number formats to price such operators in."""
    if kind in MULTIPLY or kind == passes.INSTRUCTION:
        return list(chip.rates_flops)
    if kind == "index_scores":
        return ["fp8"]
    return ["bf16", "fp8"] if kind in ("attention_prefill", "attention_decode") else [chip.half]
