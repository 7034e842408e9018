# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""A Triton kernel for all layers of a narrow perceptron: rows stay in registers from the first layer to the last."""

import triton
import triton.language as tl


@triton.jit
def layers(x, weights, out, rows, LAYERS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr):
    """out [rows, WIDTH]: x [rows, WIDTH] times weights [LAYERS, WIDTH, WIDTH], with a ReLU after each but the last.

    A weight matrix has its outputs in rows, as PyTorch's linear layers do.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    at = row[:, None].to(tl.int64) * WIDTH + column[None, :]
    there = (row < rows)[:, None]
    values = tl.load(x + at, mask=there, other=0.0)
    turned = weights + column[None, :] * WIDTH + column[:, None]
    for layer in tl.range(0, LAYERS - 1, num_stages=STAGES):
        summed = tl.dot(values, tl.load(turned + layer * WIDTH * WIDTH))
        values = tl.maximum(summed, 0.0).to(values.dtype)
    summed = tl.dot(values, tl.load(turned + (LAYERS - 1) * WIDTH * WIDTH))
    tl.store(out + at, summed.to(values.dtype), mask=there)
