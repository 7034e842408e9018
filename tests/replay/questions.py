"""Questions whose answers are stored: predictions, fits, simulations and plans over many models, chips, formats,
degrees and techniques. Drawn once from a seed; what is refused is a question too, and its refusal is the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

Words = tuple[str, ...]

DECODERS = (
    "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "mistral-7b", "mixtral-8x7b", "qwen2.5-7b",
    "qwen3-8b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gemma-2-9b", "gemma-3-27b", "phi-4", "gpt-oss-120b", "gpt-oss-20b",
    "deepseek-v3", "deepseek-v2-lite", "yi-34b", "command-r-35b", "olmo-2-7b", "glm-4.5-air", "kimi-k2",
    "nemotron-h-8b", "jamba-52b", "qwen3-next-80b-a3b", "granite-4.0-h-small", "bloom-176b",
)  # fmt: skip
NETWORKS: tuple[tuple[str, Words], ...] = (
    ("qwen2.5-vl-7b", ("--phase", "prefill", "--tokens", "100", "--images", "1")),
    ("bert-base", ("--phase", "prefill", "--tokens", "256", "--batch", "8")),
    ("whisper-large-v3", ("--phase", "decode", "--source", "1500", "--batch", "4")),
    ("t5-large", ("--phase", "decode", "--source", "512", "--batch", "4")),
    ("dit-xl-2-256", ("--steps", "20", "--batch", "4")),
)
CHIPS = (
    "H100", "H200", "A100", "A100-40GB", "L40S", "L4", "A10G", "T4", "V100", "RTX-4090", "RTX-5090", "B200", "B300",
    "GB200", "H20", "H800", "MI300X", "MI355X", "MI250X", "Gaudi3", "TPU-v5e", "TPU-v6e", "M4-Max", "RTX-PRO-6000",
    "Arc-Pro-B60", "Trainium2",
)  # fmt: skip
FORMATS = ("bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
SERVED_TECHNIQUES = ("int4-weights", "int4-weights:bits=3", "unpacked-weights", "swapped-sessions")
TRAINED = ("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen2.5-7b")
RECIPES = ("none", "selective", "full")


def questions() -> list[Words]:
    """All of them, in a fixed order."""
    kinds: tuple[tuple[int, Callable[[np.random.Generator], Words]], ...] = (
        (450, _predict),
        (24, _fit),
        (36, _simulate),
        (24, _plan),
        (60, _train),
        (20, _plan_train),
    )
    found: list[Words] = [*_predictions_of_networks(), *_predictions_of_training(), *_plans_of_a_trace()]
    for seed, (count, kind) in enumerate(kinds):
        rng = np.random.default_rng([2026, seed])
        found += [kind(rng) for _ in range(count)]
    return found


def _one(rng: np.random.Generator, values: tuple[str, ...]) -> str:
    return str(rng.choice(np.array(values)))


def _flag(rng: np.random.Generator, flag: str, values: tuple[str, ...], chance: float) -> Words:
    return (flag, _one(rng, values)) if rng.random() < chance else ()


def _between(rng: np.random.Generator, low: int, high: int) -> str:
    return str(int(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _on(rng: np.random.Generator) -> str:
    return f"{_one(rng, CHIPS)}:{2 ** int(rng.integers(0, 4))}"


def _predict(rng: np.random.Generator) -> Words:
    phase = _one(rng, ("decode", "prefill"))
    size = ("--batch", _between(rng, 1, 512), "--context", _between(rng, 1, 30_000))
    if phase == "prefill":
        size = ("--batch", _between(rng, 1, 8), "--tokens", _between(rng, 1, 12_000))
    words = ("predict", _one(rng, DECODERS), "--on", _on(rng), "--phase", phase, *size)
    words += _flag(rng, "--dtype", FORMATS, 0.6) + _flag(rng, "--kv-dtype", ("fp8", "bf16"), 0.2)
    words += _flag(rng, "--with", SERVED_TECHNIQUES, 0.1)
    words += (
        _flag(rng, "--ep", ("2", "4", "8"), 0.15) + _flag(rng, "--pp", ("2",), 0.1) + _flag(rng, "--cp", ("2",), 0.05)
    )
    return words + _flag(rng, "--dp", ("2", "4"), 0.05) + _flag(rng, "--set", ("enforce_eager=true",), 0.05)


def _fit(rng: np.random.Generator) -> Words:
    words = ("fit", _one(rng, DECODERS), "--on", _on(rng))
    return words + _flag(rng, "--dtype", FORMATS, 0.6) + _flag(rng, "--context", ("4096", "32768"), 0.5)


def _load(rng: np.random.Generator) -> Words:
    lengths = ("--input", _between(rng, 50, 4000), "--output", _between(rng, 10, 400))
    return ("--rate", _between(rng, 1, 30), *lengths)


def _simulate(rng: np.random.Generator) -> Words:
    small = DECODERS[:3] + DECODERS[4:9]
    words = ("simulate", "serve", _one(rng, small), "--on", _on(rng), *_load(rng), "--requests", "300")
    return words + _flag(rng, "--dtype", ("fp8", "int4"), 0.4) + _flag(rng, "--set", ("max_num_seqs=32",), 0.3)


def _plan(rng: np.random.Generator) -> Words:
    goals = f"ttft_p90={_between(rng, 200, 3000)}ms,tpot_p90={_between(rng, 15, 120)}ms"
    fleet = f"{_one(rng, CHIPS[:10])}:{2 ** int(rng.integers(0, 4))}"
    words = ("plan", "serve", _one(rng, DECODERS[:2] + DECODERS[4:8]), "--fleet", fleet, *_load(rng), "--slo", goals)
    words += _flag(rng, "--objective", ("throughput", "latency", "energy"), 0.3)
    return (*words, *_flag(rng, "--router", ("round-robin", "least-requests"), 0.3), "--requests", "500")


def _train(rng: np.random.Generator) -> Words:
    chips = 2 ** int(rng.integers(3, 7))
    words = ("simulate", "train", _one(rng, TRAINED), "--on", f"{_one(rng, CHIPS[:6])}:{chips}")
    words += ("--seq", _one(rng, ("1024", "2048", "4096")), "--global-batch", "128")
    words += _flag(rng, "--tp", ("2", "4", "8"), 0.6) + _flag(rng, "--pp", ("2", "4"), 0.4)
    words += _flag(rng, "--zero", ("0", "1", "2", "3"), 0.6) + _flag(rng, "--recompute", RECIPES, 0.6)
    words += _flag(rng, "--cp", ("2",), 0.15) + _flag(rng, "--optimizer", ("adamw-bf16", "lion"), 0.2)
    words += _flag(rng, "--with", ("offload-optimizer", "vocabulary-parallel", "checkpoints:every=50"), 0.2)
    return words + _flag(rng, "--engine", ("torch",), 0.3) + _flag(rng, "--dtype", ("fp8",), 0.1)


def _plan_train(rng: np.random.Generator) -> Words:
    chips = 2 ** int(rng.integers(3, 6))
    words = ("plan", "train", _one(rng, TRAINED[:3]), "--cluster", f"{_one(rng, CHIPS[:4])}:{chips}")
    words += ("--seq", _one(rng, ("2048", "4096")), "--global-batch", "64", "--tokens", "1e9")
    return words + _flag(rng, "--engine", ("torch",), 0.3) + _flag(rng, "--with", ("auto",), 0.2)


def _predictions_of_networks() -> Iterator[Words]:
    for name, words in NETWORKS:
        for chip in ("H100", "H200", "A100"):
            yield ("predict", name, "--on", chip, *words)


def _predictions_of_training() -> Iterator[Words]:
    for model in TRAINED[:3]:
        for chips in ("H200:8", "A100:16", "H100:64"):
            yield ("predict", model, "--on", chips, "--phase", "train", "--batch", "64", "--tokens", "2048")


def _plans_of_a_trace() -> Iterator[Words]:
    for chips, rate in (("L4:8", "20"), ("H100:2", "60")):
        words = ("plan", "serve", "llama-3.1-8b", "--fleet", chips, "--trace", "examples/chat.csv", "--rate", rate)
        yield (*words, "--slo", "ttft_p90=1s,tpot_p90=80ms")
