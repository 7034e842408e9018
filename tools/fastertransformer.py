"""Fits what FasterTransformer takes beside its operators to a third of its guide's tables, and reports on the rest.

    python -m tools.fastertransformer

Rows of `measurements/published/fastertransformer.csv` are of docs/gpt_guide.md of NVIDIA/FasterTransformer at 07fdd2fc
(A100-80GB with NVSwitch, fp16): seconds of a batch of prompts and all tokens of their answers.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from gnomon.engines.fastertransformer import ENGINE, engine
from gnomon.papers.machines import cluster
from gnomon.papers.shapes import network

ROWS = Path(__file__).resolve().parents[1] / "measurements" / "published" / "fastertransformer.csv"
CHIP, VOCAB, MOST = "A100-SXM-80GB", 51_200, 2048
EACH = [round(value * 1e-6, 9) for value in np.arange(0.0, 81.0, 2.0)]
"""Seconds that are tried for a layer, and for an all-reduce."""
Row = Mapping[str, str]


def rows(part: str) -> list[Row]:
    with ROWS.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["part"] == part]


def _steps(row: Row) -> tuple[list[float], int]:
    """Seconds of one prompt's step and of one decode in the middle of the answers, and how many of those there are."""
    layers, hidden, heads = (int(row[name]) for name in ("layers", "hidden", "heads"))
    given, made, batch, tp = (int(row[name]) for name in ("input", "output", "batch", "tp"))
    mixer = {"kind": "attention", "heads": heads, "kv_heads": heads, "head_dim": hidden // heads}
    mixer |= {"qkv_bias": True, "out_bias": True, "rotary_dim": 0}
    ffn = {"kind": "dense", "inner": 4 * hidden, "gated": False, "bias": True}
    blocks = [{"count": layers, "mixer": mixer, "ffn": ffn}]
    model = network(row["id"], hidden=hidden, vocab=VOCAB, max_context=MOST, dtype="fp16", blocks=blocks)
    on: Any = {"on": cluster(CHIP, tp, 8) if tp > 1 else CHIP, "tp": tp, "engine": ENGINE.name}
    prompt = gnomon.predict(model, phase="prefill", tokens=given, **on).time_s.value
    decode = gnomon.predict(model, phase="decode", batch=batch, context=given + made // 2, **on).time_s.value
    return [prompt, decode], made - 1


def _beside(row: Row, layer_s: float, reduce_s: float) -> float:
    return int(row["layers"]) * (layer_s + (2 * reduce_s if int(row["tp"]) > 1 else 0.0))


def errors(some: Sequence[Row], layer_s: float, reduce_s: float) -> np.ndarray:
    """Logarithms of predicted over measured."""
    found = []
    for row in some:
        if row["id"] not in _CACHE:
            _CACHE[row["id"]] = _steps(row)
        (prompt, decode), count = _CACHE[row["id"]]
        then, now = _beside(row, engine.LAYER_S, engine.REDUCE_S), _beside(row, layer_s, reduce_s)
        # A batch of prompts is compute-bound: it takes as many times as long as one of them.
        total = int(row["batch"]) * (prompt - then) + now + count * (decode - then + now)
        found.append(np.log(total / (float(row["latency_ms"]) * 1e-3)))
    return np.array(found)


_CACHE: dict[str, tuple[list[float], int]] = {}


def main() -> None:
    tried = {pair: float((errors(rows("fit"), *pair) ** 2).mean()) for pair in product(EACH, EACH)}
    layer_s, reduce_s = min(tried, key=lambda pair: tried[pair])
    print(f"a layer {layer_s * 1e6:.0f} us, an all-reduce {reduce_s * 1e6:.0f} us")
    for part in ("fit", "check"):
        found = errors(rows(part), layer_s, reduce_s)
        for row, error in zip(rows(part), found, strict=True):
            print(f"  {part:5} {row['id']:12} {float(row['latency_ms']):8.1f} ms {np.expm1(error):+.1%}")
        print(f"  {part}: mean error {np.abs(np.expm1(found)).mean():.1%}")


if __name__ == "__main__":
    main()
