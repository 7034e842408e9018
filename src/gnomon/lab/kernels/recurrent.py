# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""A Triton kernel that runs all steps of an LSTM with its recurrent matrices held on the multiprocessor."""

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize=["steps", "batch"])
def lstm(
    inputs,
    recurrent,
    out,
    steps,
    batch,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
):
    """inputs [steps + 1, batch, heads, 4, dim] with biases in them, the last step's unused; recurrent [heads, 4, dim,
    dim], by which a hidden state is multiplied from the left; gates in the order input, forget, cell, output; out
    [steps, batch, heads, dim].

    The next step's inputs are loaded before this step's matmuls.
    """
    head = tl.program_id(0)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, DIM)
    there = (rows < batch)[:, None]
    weights = recurrent + head * 4 * DIM * DIM + inner[:, None] * DIM + inner[None, :]
    to_input = tl.load(weights)
    to_forget = tl.load(weights + DIM * DIM)
    to_cell = tl.load(weights + 2 * DIM * DIM)
    to_output = tl.load(weights + 3 * DIM * DIM)
    source = inputs + ((rows * HEADS + head) * 4 * DIM)[:, None] + inner[None, :]
    target = out + ((rows * HEADS + head) * DIM)[:, None] + inner[None, :]
    hidden = tl.zeros((ROWS, DIM), dtype=inputs.dtype.element_ty)
    cell = tl.zeros((ROWS, DIM), dtype=tl.float32)
    next_input = tl.load(source, mask=there, other=0.0)
    next_forget = tl.load(source + DIM, mask=there, other=0.0)
    next_cell = tl.load(source + 2 * DIM, mask=there, other=0.0)
    next_output = tl.load(source + 3 * DIM, mask=there, other=0.0)
    for _ in range(steps):
        gate_input = next_input.to(tl.float32)
        gate_forget = next_forget.to(tl.float32)
        gate_cell = next_cell.to(tl.float32)
        gate_output = next_output.to(tl.float32)
        source += batch * HEADS * 4 * DIM
        next_input = tl.load(source, mask=there, other=0.0)
        next_forget = tl.load(source + DIM, mask=there, other=0.0)
        next_cell = tl.load(source + 2 * DIM, mask=there, other=0.0)
        next_output = tl.load(source + 3 * DIM, mask=there, other=0.0)
        gate_input = tl.dot(hidden, to_input, acc=gate_input)
        gate_forget = tl.dot(hidden, to_forget, acc=gate_forget)
        gate_cell = tl.dot(hidden, to_cell, acc=gate_cell)
        gate_output = tl.dot(hidden, to_output, acc=gate_output)
        cell = tl.sigmoid(gate_forget) * cell + tl.sigmoid(gate_input) * _tanh(gate_cell)
        hidden = (tl.sigmoid(gate_output) * _tanh(cell)).to(inputs.dtype.element_ty)
        tl.store(target, hidden, mask=there)
        target += batch * HEADS * DIM
