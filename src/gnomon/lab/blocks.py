"""Decoder blocks of plain PyTorch operators, the weights of each in one flat tensor that can be streamed.

A block is a norm, attention over its own tokens, a norm and an MLP four times as wide, without biases: 12 weights per
squared width, as OPT's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.lab.base import BF16_BYTES, Check
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.priced import attention_s, gemm_s, stream_s

ROWS = (3, 1, 4, 4)
"""Weights of queries, keys and values; output; up; down, in squared widths."""
BACKWARD = 2.0
"""GEMMs of a backward pass over those of the forward."""


def parameters(width: int) -> int:
    return sum(ROWS) * width * width


def block_bytes(width: int) -> int:
    return BF16_BYTES * parameters(width)


def views(flat: Any, width: int) -> tuple[Any, Any, Any, Any]:
    """The weights of a block's four linear layers, in one flat tensor."""
    qkv, out, up, down = flat.split([rows * width * width for rows in ROWS])
    return qkv.view(3 * width, width), out.view(width, width), up.view(4 * width, width), down.view(width, 4 * width)


def forward(torch: Any, x: Any, flat: Any, heads: int) -> Any:
    """A block's output for x [sequences, tokens, width]."""
    functional = torch.nn.functional
    sequences, tokens, width = x.shape
    qkv, out, up, down = views(flat, width)
    split = functional.linear(functional.layer_norm(x, (width,)), qkv).view(sequences, tokens, 3, heads, -1)
    query, key, value = split.permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + functional.linear(mixed.transpose(1, 2).reshape(x.shape), out)
    wide = functional.linear(functional.layer_norm(x, (width,)), up)
    return x + functional.linear(functional.gelu(wide), down)


def drawn(bench: Bench, count: int, width: int, dtype: Any = None) -> list[Any]:
    """Weights of so many blocks in pinned host memory."""
    generator, dtype = bench.generator(SEED + 11), dtype or bench.torch.bfloat16
    found = []
    for _ in range(count):
        flat = bench.normal(parameters(width), dtype=dtype, generator=generator, scale=0.4 * width**-0.5)
        found.append(bench.pinned_copy(flat))
    bench.synchronize()
    return found


def inputs(bench: Bench, sequences: int, tokens: int, width: int, dtype: Any = None) -> Any:
    dtype = dtype or bench.torch.bfloat16
    return bench.normal(sequences, tokens, width, dtype=dtype, generator=bench.generator(SEED + 12))


def run(torch: Any, x: Any, weights: Iterable[Any], heads: int) -> Any:
    """The output of blocks whose weights are all there."""
    for flat in weights:
        x = forward(torch, x, flat, heads)
    return x


def plainly(torch: Any, x: Any, flat: Any, heads: int) -> Any:
    """A block by its definition: softmax over scores that are written out."""
    sequences, tokens, width = x.shape
    qkv, out, up, down = views(flat, width)

    def norm(values: Any) -> Any:
        centred = values - values.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    query, key, value = (norm(x) @ qkv.T).view(sequences, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(-1, -2) / (width / heads) ** 0.5
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
    mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ value
    x = x + mixed.transpose(1, 2).reshape(x.shape) @ out.T
    wide = norm(x) @ up.T
    return x + (wide * 0.5 * (1 + torch.erf(wide / 2**0.5))) @ down.T


def against_definition(bench: Bench) -> Check:
    """A small block in fp32 against its definition in fp64."""
    torch, width, heads = bench.torch, 64, 4
    (flat,) = drawn(bench, 1, width, torch.float64)
    flat, x = flat.to(bench.device), inputs(bench, 2, 33, width, torch.float64)
    truth = plainly(torch, x, flat, heads)
    apart = forward(torch, x.float(), flat.float(), heads).double() - truth
    found = float(apart.abs().max() / truth.abs().max())
    return Check(what="a block in fp32 against its definition in fp64, relative", difference=found, bound=1e-4)


def forward_s(machine: Machine, width: int, heads: int, sequences: int, tokens: int) -> float:
    """Predicted seconds of one block's forward."""
    rows = sequences * tokens
    gemms = sum(gemm_s(machine, rows, n * width, k * width) for n, k in ((3, 1), (1, 1), (4, 1), (1, 4)))
    mixed = attention_s(machine, sequences, heads, tokens, width // heads, causal=True)
    return gemms + mixed + passes_s(machine, width, rows)


def backward_s(machine: Machine, width: int, heads: int, sequences: int, tokens: int) -> float:
    """Predicted seconds of one block's backward, without a forward run again."""
    rows = sequences * tokens
    gemms = sum(
        gemm_s(machine, rows, k * width, n * width) + gemm_s(machine, n * width, k * width, rows)
        for n, k in ((3, 1), (1, 1), (4, 1), (1, 4))
    )
    mixed = attention_s(machine, sequences, heads, tokens, width // heads, causal=True, backward=True)
    return gemms + mixed + BACKWARD * passes_s(machine, width, rows)


def passes_s(machine: Machine, width: int, rows: int) -> float:
    """Two norms, two sums, the activation of the MLP and one copy of the heads, each a kernel of its own."""
    size = float(BF16_BYTES * rows * width)
    small = 2 * stream_s(machine, size, size) + 2 * stream_s(machine, 2 * size, size)
    return small + stream_s(machine, 4 * size, 4 * size) + stream_s(machine, size, size)
