"""Writes today's predictions down: `python -m tests.golden.update`. The test beside it keeps them from drifting."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import gnomon

FILE = Path(__file__).with_name("predictions.json")
DIGITS = 8
"""Digits kept: one step of the last one is well below what the test lets pass."""

DECODES = ((1, 128), (32, 1024), (250, 4000))
PREFILLS = ((1, 512, 0), (1, 8192, 0), (4, 1000, 3000))
PLACES = (
    ("llama-3.1-8b", "H200", "bf16"),
    ("llama-3.1-8b", "H100", "fp8"),
    ("qwen3-30b-a3b", "H200", "bf16"),
    ("qwen3-30b-a3b", "H100:2", "bf16"),
    ("llama-3.1-70b", "H200:2", "fp8"),
    ("llama-3.1-70b", "H100:4", "bf16"),
    ("llama-3.1-70b", "H100:8", "bf16"),
)

PARALLEL = (
    ("qwen3-30b-a3b", "H200:8", {"ep": 8}),
    ("qwen3-30b-a3b", "H200:8", {"dp": 8, "ep": 8}),
    ("qwen3-30b-a3b", "H100:16", {"tp": 2, "dp": 8, "ep": 16}),
    ("mixtral-8x7b", "H100:8", {"tp": 2, "dp": 4}),
    ("llama-3.1-70b", "H100:16", {"pp": 4}),
    ("llama-3.1-70b", "H100:16", {"cp": 2}),
)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """A name for each prediction, and what to ask."""
    for (model, on, dtype), (batch, context) in product(PLACES, DECODES):
        words = {"phase": "decode", "batch": batch, "context": context}
        yield f"{model} {on} {dtype} decode {batch} x {context}", {"model": model, "on": on, "dtype": dtype} | words
    for (model, on, dtype), (batch, tokens, context) in product(PLACES, PREFILLS):
        words = {"phase": "prefill", "batch": batch, "tokens": tokens, "context": context}
        name = f"{model} {on} {dtype} prefill {batch} x {tokens} + {context}"
        yield name, {"model": model, "on": on, "dtype": dtype} | words
    narrow = {"model": "llama-3.1-8b", "on": "H200", "kv_dtype": "fp8", "batch": 250, "context": 4000}
    yield "llama-3.1-8b H200 bf16, fp8 cache, decode 250 x 4000", narrow
    for model, on, degrees in PARALLEL:
        said = " ".join(f"{name} {degree}" for name, degree in degrees.items())
        words = {"model": model, "on": on, "batch": 256, "context": 1024} | degrees
        yield f"{model} {on} bf16 {said} decode 256 x 1024", words


def today() -> dict[str, float]:
    """Seconds by name."""
    return {name: gnomon.predict(**words).time_s.value for name, words in cases()}


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["GNOMON_HOME"] = home  # without the user's own profiles
        found = today()
    rounded = {name: float(f"{value:.{DIGITS}g}") for name, value in found.items()}
    FILE.write_text(json.dumps(rounded, indent=1) + "\n")
    print(f"{len(rounded)} predictions written to {FILE.name}")


if __name__ == "__main__":
    main()
