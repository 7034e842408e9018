"""Options of Megatron-DeepSpeed's `pretrain_gpt.py` that exports write, with the kind of value each takes, read in
`megatron/arguments.py` of deepspeedai/Megatron-DeepSpeed (commit 207b2d5aad) and in DeepSpeed's own
`add_config_arguments`. The program itself cannot be installed, so this is its parser here."""

from __future__ import annotations

import argparse

SWITCHES = (
    "--deepspeed", "--swiglu", "--use-rotary-position-embeddings", "--no-position-embedding", "--disable-bias-linear",
    "--untie-embeddings-and-output-weights", "--sequence-parallel", "--no-pipeline-parallel",
    "--checkpoint-activations", "--deepspeed-activation-checkpointing", "--checkpoint-in-cpu", "--use-flash-attn-v2",
    "--cpu-optimizer", "--bf16", "--fp16",
)  # fmt: skip
WHOLE = (
    "--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--num-key-value-heads",
    "--kv-channels", "--rotary-position-embeddings-theta", "--max-position-embeddings", "--vocab-size",
    "--make-vocab-size-divisible-by", "--tensor-model-parallel-size", "--pipeline-model-parallel-size",
    "--ds-sequence-parallel-size", "--zero-stage", "--micro-batch-size", "--global-batch-size", "--seq-length",
    "--train-iters", "--eval-iters", "--eval-interval", "--log-interval", "--save-interval",
)  # fmt: skip
NUMBERS = (
    "--attention-dropout", "--hidden-dropout", "--adam-beta1", "--adam-beta2", "--weight-decay", "--clip-grad", "--lr",
    "--min-lr", "--lr-warmup-fraction",
)  # fmt: skip
CHOICES = {
    "--normalization": ("layernorm", "rmsnorm"),
    "--tokenizer-type": ("NullTokenizer", "HFTokenizer", "GPT2BPETokenizer"),
    "--recompute-granularity": ("full", "selective"),
    "--lr-decay-style": ("constant", "linear", "cosine", "inverse-square-root"),
}
TEXTS = ("--deepspeed_config", "--data-path", "--save")


def parser() -> argparse.ArgumentParser:
    """A reader of these options alone, which ends where a word is not understood."""
    made = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for flag in SWITCHES:
        made.add_argument(flag, action="store_true")
    for flags, kind in ((WHOLE, int), (NUMBERS, float), (TEXTS, str)):
        for flag in flags:
            made.add_argument(flag, type=kind)
    for flag, choices in CHOICES.items():
        made.add_argument(flag, choices=choices)
    return made
