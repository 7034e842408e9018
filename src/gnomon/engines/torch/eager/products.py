"""Matrix products, convolutions, attention and recurrent nets of a traced module as operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from gnomon.graph.ops import Convolution, Elementwise, Gemm, Op, SequenceAttention
from gnomon.spec.traced import Call, TensorSpec

ATTENTION = {"attention.efficient": 0.5, "attention.efficient.backward": 0.5}
"""Beside FlashAttention, the pace of PyTorch's kernel for masks. An estimate: it is not measured yet."""
LAYOUT = "rope"
"""The measured pace that turning a tensor for a convolution takes, as any copy into another order of dimensions."""
_Specs = tuple[TensorSpec, ...]
RNN_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What fp32 products run in: PyTorch's own defaults are full fp32 for matrices and tf32 for convolutions."""

    products: str = "fp32"
    convolutions: str = "tf32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    precision: Precision
    paces: Mapping[str, float]

    def product_dtype(self, spec: TensorSpec) -> str:
        return _format(spec, self.precision.products)

    def stream(self, name: str, read: float, written: float, like: str, count: int = 1) -> Elementwise:
        pace = self.paces.get(name, self.paces[like])
        return Elementwise(name=name, rows=1, read_per_row=read, written_per_row=written, count=count, pace=pace)


def _format(spec: TensorSpec, wide: str) -> str:
    """The format a product runs in; what a data sheet does not list goes as fp32."""
    return spec.dtype if spec.dtype in ("bf16", "fp16", "fp8", "int8") else wide


def _out(spec: TensorSpec) -> str:
    return {2.0: "bf16", 1.0: "fp8"}.get(spec.item_bytes, "fp32")


def _matmul(call: Call, how: Lowering) -> Iterator[Op]:
    """`mm`, `addmm`, `bmm`, `baddbmm` and their like: the last two dimensions of two operands."""
    first, second = _operands(call)
    (*batches, m, k), n = first.shape, second.shape[-1] if len(second.shape) > 1 else 1
    added = call.tensors.get("self", ()) if "mat1" in call.tensors or "batch1" in call.tensors else ()
    if m and n and k:
        yield Gemm(
            name="gemm",
            m=m,
            n=n,
            k=k,
            batch=prod(batches),
            dtype=how.product_dtype(first),
            out_dtype=_out(call.results[0]) if call.results else _out(first),
        )
    if added and len(added[0].shape) > 1 and added[0].stride[0] and call.results:
        yield how.stream("copy", added[0].stored_bytes, call.results[0].bytes, "add")


def _operands(call: Call) -> tuple[TensorSpec, TensorSpec]:
    for names in (("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec"), ("self", "mat2"), ("self", "vec")):
        if all(name in call.tensors for name in names):
            return call.tensors[names[0]][0], call.tensors[names[1]][0]
    first, second = call.inputs[:2]
    return first, second


def _dot(call: Call, how: Lowering) -> Iterator[Op]:
    size = sum(spec.stored_bytes for spec in call.inputs)
    yield how.stream("reduce", size, 0.0, "norm.float32")


def _convolution(call: Call, how: Lowering) -> Iterator[Op]:
    x, weight, y = call.tensors["input"][0], call.tensors["weight"][0], call.results[0]
    transposed, groups = bool(call.options.get("transposed")), int(call.options.get("groups", 1))
    sizes = _Sizes.of(x, weight, y, groups, transposed)
    yield (sizes.spread if transposed else sizes.gathered)("conv", y, (x, weight), how)
    yield from _turned((x, y), how)
    if call.tensors.get("bias"):
        yield how.stream("pointwise", y.bytes, y.bytes, "add")


def _convolution_backward(call: Call, how: Lowering) -> Iterator[Op]:
    dy, x, weight = (call.tensors[name][0] for name in ("grad_output", "input", "weight"))
    transposed, groups = bool(call.options.get("transposed")), int(call.options.get("groups", 1))
    by_input, by_weight, by_bias = call.options["output_mask"]
    sizes = _Sizes.of(x, weight, dy, groups, transposed)
    if by_input:
        yield (sizes.gathered if transposed else sizes.spread)("conv.by_input", x, (dy, weight), how)
        yield from _turned((dy, x), how)
    if by_weight:
        yield sizes.by_weight("conv.by_weight", weight, (dy, x), how)
        yield from _turned((dy, x), how)
    if by_bias:
        yield how.stream("reduce", dy.stored_bytes, 0.0, "norm.bfloat16" if dy.item_bytes == 2 else "norm.float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """A convolution's sizes, seen from its dense side: where one value meets every weight of its group once."""

    dense: int
    """Positions, over all images, of the side that the weights slide over: the output, or a transposed one's input."""
    other: int
    inner: int
    outer: int
    """Channels of a group on the dense side and on the other."""
    taps: int
    groups: int

    @classmethod
    def of(cls, x: TensorSpec, weight: TensorSpec, y: TensorSpec, groups: int, transposed: bool) -> _Sizes:
        places = {True: prod(x.shape[2:]) * x.shape[0], False: prod(y.shape[2:]) * y.shape[0]}
        return cls(
            dense=places[transposed],
            other=places[not transposed],
            inner=weight.shape[0] // groups,
            outer=weight.shape[1],
            taps=prod(weight.shape[2:]),
            groups=groups,
        )

    def gathered(self, name: str, result: TensorSpec, operands: _Specs, how: Lowering) -> Convolution:
        """A row for every position of the dense side."""
        return self._op(name, self.dense, self.inner, self.outer * self.taps, result, operands, how)

    def spread(self, name: str, result: TensorSpec, operands: _Specs, how: Lowering) -> Convolution:
        """A row for every position of the other side; strides leave out some of the weights at each."""
        met = self.inner * self.taps * self.dense / max(self.other, 1)
        return self._op(name, self.other, self.outer, met, result, operands, how)

    def by_weight(self, name: str, result: TensorSpec, operands: _Specs, how: Lowering) -> Convolution:
        return self._op(name, self.inner, self.outer * self.taps, self.dense, result, operands, how)

    def _op(
        self, name: str, m: float, n: float, k: float, result: TensorSpec, operands: _Specs, how: Lowering
    ) -> Convolution:
        moved = result.bytes + sum(spec.stored_bytes for spec in operands)
        dtype = _format(result, how.precision.convolutions)
        return Convolution(name=name, m=m, n=n, k=k, groups=self.groups, moved=moved, dtype=dtype)


def _turned(specs: _Specs, how: Lowering) -> Iterator[Op]:
    """16-bit convolutions want channels last: cuDNN turns what does not lie so, and turns its result back."""
    for spec in specs:
        if spec.item_bytes == 2 and not spec.channels_last:
            yield how.stream("conv.layout", spec.stored_bytes, spec.stored_bytes, LAYOUT)


def _attention(call: Call, how: Lowering) -> Iterator[Op]:
    query, key, value = (call.tensors[name][0] for name in ("query", "key", "value"))
    bias = call.tensors.get("attn_bias", ())
    backward = call.op.endswith("_backward")
    flash = "flash" in call.op or "cudnn" in call.op
    sequences, heads, queries, head_dim = query.shape
    name = "attention" if flash else "attention.efficient" if query.item_bytes == 2 else "attention.wide"
    name = f"{name}.backward" if backward else name
    yield SequenceAttention(
        name=name,
        phase="backward" if backward else "forward",
        sequences=sequences,
        heads=heads,
        kv_heads=key.shape[1],
        queries=queries,
        keys=key.shape[2],
        head_dim=head_dim,
        value_dim=value.shape[-1],
        causal=bool(call.options.get("is_causal")),
        dtype=_format(query, "fp32"),
        mask_bytes=sum(spec.stored_bytes for spec in bias),
        pace=how.paces.get(name, ATTENTION.get(name, 1.0)),
    )


def _rnn(call: Call, how: Lowering) -> Iterator[Op]:
    """All layers, one after the other: the input's product over all steps at once, then a product and a cell a step."""
    for layer in _rnn_layers(call, how.precision.convolutions):
        yield from layer.forward(how)


def _rnn_backward(call: Call, how: Lowering) -> Iterator[Op]:
    by_input, by_state = bool(call.options["by_input"]), bool(call.options["by_state"])
    for place, layer in enumerate(_rnn_layers(call, how.precision.convolutions)):
        yield from layer.backward(how, by_input or place >= layer.sides, by_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RnnLayer:
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

    def _gemm(self, m: int, n: int, k: int, count: int = 1) -> Gemm:
        out = "fp32" if self.item_bytes == 4 else "bf16"
        return Gemm(name="gemm", m=m, n=n, k=k, dtype=self.dtype, out_dtype=out, count=count)

    @property
    def _each(self) -> int:
        return max(self.rows // max(self.steps, 1), 1)

    def forward(self, how: Lowering) -> Iterator[Op]:
        all_gates = self.gates * self.hidden
        yield self._gemm(self.rows, all_gates, self.wide)
        yield self._gemm(self._each, all_gates, self.output, self.steps)
        if self.output != self.hidden:
            yield self._gemm(self._each, self.output, self.hidden, self.steps)
        values = self._each * self.hidden * self.item_bytes
        yield how.stream("cell", (2 * self.gates + 1) * values, (self.gates + 2) * values, "gelu", self.steps)

    def backward(self, how: Lowering, by_input: bool, by_state: bool) -> Iterator[Op]:
        """The state before the first step gets a gradient only where it is asked for."""
        all_gates, taken = self.gates * self.hidden, self.steps - (not by_state)
        if taken:
            yield self._gemm(self._each, self.output, all_gates, taken)
        yield self._gemm(all_gates, self.output, self.rows)
        yield self._gemm(all_gates, self.wide, self.rows)
        if by_input:
            yield self._gemm(self.rows, self.wide, all_gates)
        if self.output != self.hidden:
            yield self._gemm(self._each, self.hidden, self.output, self.steps)
            yield self._gemm(self.output, self.hidden, self.rows)
        values = self._each * self.hidden * self.item_bytes
        read, written = (self.gates + 4) * values, (self.gates + 1) * values
        yield how.stream("cell.backward", read, written, "gelu.backward", self.steps)


def _rnn_layers(call: Call, wide: str) -> Iterator[_RnnLayer]:
    """`wide` is what fp32 runs in: recurrent nets follow cuDNN's setting, as convolutions do."""
    rows, state, weights = call.tensors["rows"][0], call.tensors["state"], call.tensors["weights"]
    gates, layers = RNN_GATES[str(call.options["cell"])], int(call.options["layers"])
    sides, output = 1 + bool(call.options["both"]), state[0].shape[-1]
    inner = [spec for spec in weights if len(spec.shape) == 2]
    apart = len(inner) // (layers * sides)
    for place in range(layers * sides):
        by_input = inner[place * apart]
        yield _RnnLayer(
            rows=rows.shape[0],
            steps=int(call.options["steps"]),
            wide=by_input.shape[1],
            hidden=by_input.shape[0] // gates,
            output=output,
            gates=gates,
            dtype=_format(rows, wide),
            item_bytes=rows.item_bytes,
            sides=sides,
        )


Lower = Callable[[Call, Lowering], Iterator[Op]]
PRODUCTS: Mapping[str, Lower] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "addbmm"), _matmul),
    **dict.fromkeys(("_scaled_mm", "_int_mm", "_addmm_activation"), _matmul),
    "dot": _dot,
    "vdot": _dot,
    "convolution": _convolution,
    "_convolution": _convolution,
    "cudnn_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(
        (
            f"_scaled_dot_product_{kernel}_attention{way}"
            for kernel in ("flash", "efficient", "cudnn")
            for way in ("", "_backward")
        ),
        _attention,
    ),
    "rnn": _rnn,
    "rnn_backward": _rnn_backward,
}
