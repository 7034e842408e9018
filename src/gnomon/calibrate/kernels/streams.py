"""Kernels that stream: PyTorch's own norms, activations and sums, look-ups in a table, and the choice of a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Lab

TOP = 50
"""How many tokens `topk` keeps."""


def stream(lab: Lab, name: str, tokens: int, width: int) -> Row:
    """One of PyTorch's kernels over tokens x width values; the bytes are those that must move.

    Operands do not take turns: in a model, the kernel before has just written them.
    """
    torch, f, size = lab.torch, lab.torch.nn.functional, 2.0 * tokens * width
    x, y = lab.random("bf16", (tokens, width), (tokens, width))
    ones, out = torch.ones_like(x[0]), torch.empty_like(x)
    calls: dict[str, tuple[int, Callable[[int], Any]]] = {
        "copy": (1, lambda _i: out.copy_(x)),
        "add": (2, lambda _i: torch.add(x, y, out=out)),
        "mul": (2, lambda _i: torch.mul(x, y, out=out)),
        "silu": (1, lambda _i: f.silu(x)),
        "gelu": (1, lambda _i: f.gelu(x, approximate="tanh")),
        "rms_norm": (1, lambda _i: f.rms_norm(x, (width,), ones)),
        "layer_norm": (1, lambda _i: f.layer_norm(x, (width,), ones, ones)),
        "softmax": (1, lambda _i: torch.softmax(x, -1)),
    }
    reads, call = calls[name]
    timing = lab.time(call)
    return lab.row("elementwise", "bf16", timing, bytes_read=reads * size, bytes_written=size, kernel=name)


def embedding(lab: Lab, tokens: int, width: int, vocabulary: int) -> Row:
    """Rows of a table at random places."""
    table = lab.random("bf16", (vocabulary, width))[0]
    index = [
        lab.torch.randint(0, vocabulary, (tokens,), device="cuda", generator=lab.generator) for _ in range(8)
    ]  # fmt: skip
    timing = lab.time(lambda i: lab.torch.nn.functional.embedding(index[i], table), len(index))
    size = 2.0 * tokens * width
    return lab.row("elementwise", "bf16", timing, bytes_read=size, bytes_written=size, kernel="embedding")


def sampling(lab: Lab, name: str, sequences: int, vocabulary: int) -> Row:
    """The next token of each sequence from its logits in fp32."""
    torch = lab.torch
    logits = lab.random("bf16", (sequences, vocabulary))[0].float()
    calls: dict[str, Callable[[int], Any]] = {
        "argmax": lambda _i: logits.argmax(-1),
        "topk": lambda _i: logits.topk(TOP, -1),
        "multinomial": lambda _i: torch.multinomial(torch.softmax(logits, -1), 1),
    }
    read = 4.0 * sequences * vocabulary
    timing = lab.time(calls[name])
    return lab.row("sampling", "fp32", timing, batch=sequences, n=vocabulary, bytes_read=read, kernel=name)
