"""Recurrent nets as cuDNN runs them: one call over all layers and steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from gnomon.engines.torch.eager.lowering import Lowering, format_of
from gnomon.graph.ops import ROW_BYTES, Gemm, Op
from gnomon.spec.traced import Call

RNN_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def forward(call: Call, how: Lowering) -> Iterator[Op]:
    """All layers, one after the other: one GEMM of the input over all steps, then a GEMM and a cell per step."""
    for layer in _layers(call, how.precision.convolutions):
        yield from layer.forward(how)


def backward(call: Call, how: Lowering) -> Iterator[Op]:
    by_input, by_state = bool(call.options["by_input"]), bool(call.options["by_state"])
    for place, layer in enumerate(_layers(call, how.precision.convolutions)):
        yield from layer.backward(how, by_input or place >= layer.sides, by_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One layer in one direction. `rows` are time steps times sequences."""

    rows: int
    steps: int
    wide: int
    """Values of its input."""
    hidden: int
    output: int
    gates: int
    dtype: str
    item_bytes: float
    sides: int

    def _gemm(self, m: int, n: int, k: int, count: int = 1, across: int = 0) -> Gemm:
        """Rows of activations times a weight matrix."""
        return self._any_gemm(m, n, k, (n, k), across, count)

    def _by_weight(self, m: int, n: int) -> Gemm:
        return self._any_gemm(m, n, self.rows, (m, n), 2)

    def _any_gemm(self, m: int, n: int, k: int, sides: tuple[int, int], across: int, count: int = 1) -> Gemm:
        out = "fp32" if self.item_bytes == 4 else "bf16"
        aligned = (
            gcd(ROW_BYTES, *(int(self.item_bytes) * side for side in sides)) if self.dtype != "fp32" else ROW_BYTES
        )
        return Gemm(
            name="gemm", m=m, n=n, k=k, dtype=self.dtype, out_dtype=out, count=count, aligned=aligned, across=across
        )

    @property
    def _each(self) -> int:
        return max(self.rows // max(self.steps, 1), 1)

    def forward(self, how: Lowering) -> Iterator[Op]:
        all_gates = self.gates * self.hidden
        yield self._gemm(self.rows, all_gates, self.wide)
        yield self._gemm(self._each, all_gates, self.output, self.steps)
        if self.output != self.hidden:
            yield self._gemm(self._each, self.output, self.hidden, self.steps)
        values, wide = self._each * self.hidden * self.item_bytes, self.item_bytes == 4
        yield how.stream(
            "cell", (2 * self.gates + 1) * values, (self.gates + 2) * values, "gelu", wide=wide, count=self.steps
        )

    def backward(self, how: Lowering, by_input: bool, by_state: bool) -> Iterator[Op]:
        """The initial state gets a gradient only where `by_state`."""
        all_gates, taken = self.gates * self.hidden, self.steps - (not by_state)
        if taken:
            yield self._gemm(self._each, self.output, all_gates, taken, across=1)
        yield self._by_weight(all_gates, self.output)
        yield self._by_weight(all_gates, self.wide)
        if by_input:
            yield self._gemm(self.rows, self.wide, all_gates, across=1)
        if self.output != self.hidden:
            yield self._gemm(self._each, self.hidden, self.output, self.steps, across=1)
            yield self._by_weight(self.output, self.hidden)
        values, wide = self._each * self.hidden * self.item_bytes, self.item_bytes == 4
        read, written = (self.gates + 4) * values, (self.gates + 1) * values
        yield how.stream("cell.backward", read, written, "gelu.backward", wide=wide, count=self.steps)


def _layers(call: Call, wide: str) -> Iterator[_Layer]:
    """Layers by direction. `wide` is what fp32 runs in: recurrent nets follow cuDNN's setting, as convolutions do."""
    rows, state, weights = call.tensors["rows"][0], call.tensors["state"], call.tensors["weights"]
    gates, layers = RNN_GATES[str(call.options["cell"])], int(call.options["layers"])
    sides, output = 1 + bool(call.options["both"]), state[0].shape[-1]
    inner = [spec for spec in weights if len(spec.shape) == 2]
    apart = len(inner) // (layers * sides)
    for place in range(layers * sides):
        by_input = inner[place * apart]
        yield _Layer(
            rows=rows.shape[0],
            steps=int(call.options["steps"]),
            wide=by_input.shape[1],
            hidden=by_input.shape[0] // gates,
            output=output,
            gates=gates,
            dtype=format_of(rows, wide),
            item_bytes=rows.item_bytes,
            sides=sides,
        )
