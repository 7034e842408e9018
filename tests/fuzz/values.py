"""Words for flags and fields: those that are meant, those that nearly are, and those that nobody means.

Sizes that are accepted and take long by themselves (a million requests) are left out: they are work, not attacks.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.case import Draw

CONFIGS = Path(__file__).parents[2] / "src/gnomon/catalog/data/models"
NUMBERS: tuple[Any, ...] = (
    0, 1, 2, 3, 7, 8, 64, 100, 1024, -1, -7, 0.5, 1.5, -0.0, 1e-9, 1e-300, 5e-324, 1e18, 2**31, 2**53, 2**63, 10**30,
    1e300, math.inf, -math.inf, math.nan,
)  # fmt: skip
TEXTS = (
    "", " ", "x", "nonsense", "0", "-1", "1e3", "1e999", "nan", "inf", "-inf", "None", "null", "true", "0x10", "1_000",
    "1,5", "½", "٣", "\u202eabc", "💥", "a\x00b", "a\nb", "\x1b[2J", "'", '"', "$(touch ran)", "`touch ran`", "; ls",
    "../../etc/passwd", "~nobody/x", "/dev/zero", "/dev/null", ".", "..", "*", "--help", "-", "é" * 30, "x" * 300,
    "9" * 400, "x" * 70_000, "%s%n", "{0}", "!!python/object:os.system", "run.py:build", "\ufeff", "a=b", "a:b", ":",
)  # fmt: skip
MODELS = ("llama-3.2-1b", "llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "bert-base", "dit-xl-2-256", "jamba-52b")
CHIPS = (
    "H100", "H200", "A100", "L4", "T4", "B200", "MI300X", "RTX-4090", "H100:8", "A100:4", "T4:2", "H100:64", "V100",
)  # fmt: skip
DTYPES = ("bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4", "fp32", "auto")
SETTINGS = (
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size",
    "async_scheduling", "enforce_eager", "enable_prefix_caching", "max_cudagraph_capture_size",
)  # fmt: skip
MEANT: dict[str, tuple[str, ...]] = {
    "MODEL": MODELS,
    "CHIP": CHIPS,
    "CHIP[:N]": CHIPS,
    "CHIP:N": CHIPS,
    "CHIP:N[,CHIP:N]": (*CHIPS, "H100:2,L4:4", "T4:8,H100:1"),
    "PHASE": ("prefill", "decode", "train"),
    "D": DTYPES,
    "D[,D]": (*DTYPES, "bf16,fp8"),
    "FORMAT": DTYPES,
    "NAME[@VERSION]": ("vllm", "vllm@0.24", "torch", "megatron", "transformers", "sglang"),
    "ENGINE": ("vllm", "transformers"),
    "WxH": ("640x480", "1x1", "100000x100000"),
    "TECHNIQUE": ("int4-weights", "auto", "offload-optimizer", "checkpoints:every=10", "swapped-sessions", "ring"),
    "GOALS": ("ttft_p90=1s", "tpot_p90=40ms", "ttft_p99=1us", "e2e_mean=2s,ttft_p50=100ms"),
    "WHAT": ("cost", "throughput", "latency", "energy"),
    "TIME": ("1s", "7m20s", "0s", "-1s", "1us"),
    "TARGET": ("vllm", "kubernetes", "megatron", "torchrun"),
    "MODE": ("none", "selective", "full"),
    "0..3": ("0", "1", "2", "3"),
    "SLUG": ("gptq", "zero-offload", "offload-optimizer", "datastates-llm", "cuda", "int4-weights", "checkpoints"),
    "[SLUG]": ("gptq", "cuda", "datastates-llm"),
    "NAME": ("H100", "llama-3.2-1b", "adamw", "adamw-bf16", "1f1b", "interleaved", "gpipe", "p2p", "megatron", "mine"),
    "[last|ID|FILE]": ("last", "predict-1", "answer.json", "plan.yaml"),
    "PLAN": ("plan.yaml", "train.yaml", "last", "answer.json", "nothing.yaml"),
    "FILE.csv": ("out.csv", "table.csv", "trace.csv", "/dev/full", "no/such/x.csv"),
    "FILE.json": ("out.json", "answer.json", "/dev/full", "no/such/x.json"),
    "FILE.yaml": ("out.yaml", "chip.yaml", "/dev/full"),
    "FILE.md": ("out.md", "/dev/full"),
    "FILE.csv|.svg|.png": ("m.csv", "m.txt", "/dev/full"),
    "DIR": ("folder", "plan.yaml", "no/such", "."),
    "PATH": ("table.csv", "result.json", ".", "nothing"),
    "SHELL": ("bash", "zsh", "fish", "tcsh"),
    "WORDS": ("offload", "kv cache", "moe"),
    "KIND": ("gemm", "attention", "encoder"),
    "cuda|cpu": ("cuda", "cpu"),
    "NAME=VALUE": ("layers=2", "hidden=64"),
    "NAME[,NAME]": ("gemm", "attention,moe"),
}
"""What is meant by the words that stand for a flag's value in its help."""
WORDS = (
    *MODELS, *CHIPS, *DTYPES, "NVLink4", "RoCE 200", "PCIe server", "DGX-H100", "FR", "aws", "us-east-1", "1s", "1B",
    "dense", "moe", "attention", "latent", "mamba2", "float16", "float8_e4m3fn", "1f1b", "gpipe", "interleaved",
    "full", "megatron", "torch", "vllm", "linear", "sigmoid", "softmax", "estimated",
)  # fmt: skip
"""Texts that some field means."""
COUNTS = ("0", "1", "2", "3", "4", "7", "8", "16", "100", "512", "1k", "2Ki", "-1", "1.5", "1e12", "1e30", "nan")
RATES = ("1", "4", "0.5", "0", "-1", "1e-9", "1e9", "nan", "inf")
SLOW = {"--fresh", "--quick", "--all", "--page", "--jobs", "--install"}
"""Flags that ask for minutes of work, or for processes of their own."""


@cache
def known_models() -> tuple[str, ...]:
    """Names of the catalog."""
    return tuple(sorted(file.stem for file in CONFIGS.glob("*.json")))


def value(draw: Draw, flag: str, metavar: str, wild: float) -> str:
    """A value for a flag: one that is meant, but for a share of `wild` ones."""
    luck = draw.random()
    if luck < wild:
        return draw.choice((draw.choice(TEXTS), draw.choice(TEXTS), str(draw.choice(NUMBERS))))
    if metavar == "MODEL" and luck < 0.3:
        return draw.choice(known_models())
    if metavar == "KEY=VALUE":
        return f"{draw.choice(SETTINGS)}={draw.choice([*COUNTS, 'true', 'false', '0.5', '1.0'])}"
    if flag == "--rate":
        return draw.choice(RATES)
    return draw.choice(MEANT.get(metavar, COUNTS))


def junk(draw: Draw) -> Any:
    """A value that a field of a file may be given."""
    return draw.choice((draw.choice(NUMBERS), draw.choice(TEXTS), True, False, None, [], {}, [1, 2], {"a": 1}))


def tree(draw: Draw, depth: int = 0) -> Any:
    """Anything that JSON or YAML can hold."""
    luck = draw.random()
    if depth > 4 or luck < 0.5:
        return junk(draw)
    if luck < 0.75:
        return [tree(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(TEXTS[:20]) + str(draw.randrange(9)): tree(draw, depth + 1) for _ in range(draw.randrange(5))}
