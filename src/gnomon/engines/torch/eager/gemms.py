"""GEMMs, convolutions, attention and recurrent nets of a traced module as operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, Literal

from gnomon.engines.torch.eager import recurrent
from gnomon.engines.torch.eager.lowering import Lowering, format_of
from gnomon.graph.ops import ROW_BYTES, Convolution, Gemm, Op, SequenceAttention
from gnomon.spec.traced import Call, TensorSpec

ATTENTION = {"attention.efficient": 0.5, "attention.efficient.backward": 0.5}
"""Efficiency of PyTorch's masked attention relative to FlashAttention. An estimate, not measured."""
_Specs = tuple[TensorSpec, ...]
Way = Literal["forward", "by_input", "by_weight"]


def _out(spec: TensorSpec) -> str:
    return {2.0: "bf16", 1.0: "fp8"}.get(spec.item_bytes, "fp32")


def _matmul(call: Call, how: Lowering) -> Iterator[Op]:
    """`mm`, `addmm`, `bmm`, `baddbmm` and similar: the last two dimensions of two operands."""
    first, second = _operands(call)
    (*batches, m, k), n = first.shape, second.shape[-1] if len(second.shape) > 1 else 1
    added = call.tensors.get("self", ()) if "mat1" in call.tensors or "batch1" in call.tensors else ()
    if m and n and k:
        yield Gemm(
            name="gemm",
            m=m,
            n=n,
            k=k,
            batch=prod(batches) * (4 if first.dtype.startswith("complex") else 1),
            dtype=how.gemm_dtype(first),
            out_dtype=_out(call.results[0]) if call.results else _out(first),
            **_layout(first, second, call.results, how.gemm_dtype(first)),
        )
    if added and len(added[0].shape) > 1 and added[0].stride[0] and call.results:
        yield how.stream("copy", added[0].stored_bytes, call.results[0].bytes, "add", wide=first.item_bytes == 4)


def _layout(first: TensorSpec, second: TensorSpec, results: _Specs, dtype: str) -> dict[str, Any]:
    """Memory layout of a GEMM's operands; fp32 kernels do not depend on alignment."""
    across = (first.stride[-1] != 1) + (len(second.shape) > 1 and second.stride[-2] != 1)
    if dtype == "fp32":
        return {"across": across}
    aligned = gcd(ROW_BYTES, _row_bytes(first), _row_bytes(second))
    return {"across": across, "aligned": aligned, "out_aligned": gcd(ROW_BYTES, *map(_row_bytes, results[:1]))}


def _row_bytes(spec: TensorSpec) -> int:
    """Bytes between two rows, or two columns where these are contiguous; 0 where there is only one."""
    lines = [step for n, step in zip(spec.shape[-2:], spec.stride[-2:], strict=True) if n > 1 and step]
    apart = max(lines) if len(lines) > 1 else 0
    return int(apart * spec.item_bytes)


def _operands(call: Call) -> tuple[TensorSpec, TensorSpec]:
    for names in (("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec"), ("self", "mat2"), ("self", "vec")):
        if all(name in call.tensors for name in names):
            return call.tensors[names[0]][0], call.tensors[names[1]][0]
    first, second = call.inputs[:2]
    return first, second


def _dot(call: Call, how: Lowering) -> Iterator[Op]:
    size = sum(spec.stored_bytes for spec in call.inputs)
    yield how.stream("reduce.rows", size, 0.0, "norm", wide=call.inputs[0].item_bytes == 4)


def _convolution(call: Call, how: Lowering) -> Iterator[Op]:
    x, weight, y = call.tensors["input"][0], call.tensors["weight"][0], call.results[0]
    transposed, groups = bool(call.options.get("transposed")), int(call.options.get("groups", 1))
    sizes = _Sizes.of(x, weight, y, groups, transposed)
    yield (sizes.spread if transposed else sizes.gathered)("forward", y, (x, weight), how)
    if call.tensors.get("bias"):
        yield how.stream("broadcast", y.bytes, y.bytes, "add", wide=y.item_bytes == 4)


def _convolution_backward(call: Call, how: Lowering) -> Iterator[Op]:
    dy, x, weight = (call.tensors[name][0] for name in ("grad_output", "input", "weight"))
    transposed, groups = bool(call.options.get("transposed")), int(call.options.get("groups", 1))
    by_input, by_weight, by_bias = call.options["output_mask"]
    sizes = _Sizes.of(x, weight, dy, groups, transposed)
    if by_input:
        yield (sizes.gathered if transposed else sizes.spread)("by_input", x, (dy, weight), how)
    if by_weight:
        yield sizes.by_weight("by_weight", weight, (dy, x), how)
    if by_bias:
        yield how.stream("reduce.channels", dy.stored_bytes, 0.0, "norm", wide=dy.item_bytes == 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """A convolution's sizes, from its dense side: where each value meets every weight of its group once."""

    dense: int
    """Positions, over all images, of the dense side: the output, or the input of a transposed convolution."""
    other: int
    inner: int
    outer: int
    """Channels of a group on the dense side and on the other."""
    taps: int
    groups: int
    weight: tuple[int, ...]
    """The weights' shape, which distinguishes them from other tensors."""

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
            weight=weight.shape,
        )

    def gathered(self, way: Way, result: TensorSpec, operands: _Specs, how: Lowering) -> Convolution:
        """The implicit GEMM with a row per position of the dense side."""
        return self._op(way, self.dense, self.inner, self.outer * self.taps, result, operands, how)

    def spread(self, way: Way, result: TensorSpec, operands: _Specs, how: Lowering) -> Convolution:
        """The implicit GEMM with a row per position of the other side; strides skip some of the weights at each."""
        met = self.inner * self.taps * self.dense / max(self.other, 1)
        return self._op(way, self.other, self.outer, met, result, operands, how)

    def by_weight(self, way: Way, result: TensorSpec, operands: _Specs, how: Lowering) -> Convolution:
        return self._op(way, self.inner, self.outer * self.taps, self.dense, result, operands, how)

    def _op(
        self, way: Way, m: float, n: float, k: float, result: TensorSpec, operands: _Specs, how: Lowering
    ) -> Convolution:
        turned = [0.0, 0.0]
        if self.taps > 1 or self.dense != self.other:
            for spec in (result, *operands):
                if not spec.channels_last:
                    turned[spec.shape == self.weight] += spec.stored_bytes
        return Convolution(
            name="conv" if way == "forward" else f"conv.{way}",
            m=m,
            n=n,
            k=k,
            groups=self.groups,
            moved=result.bytes + sum(spec.stored_bytes for spec in operands),
            dtype=format_of(result, how.precision.convolutions),
            way=way,
            channels=min(self.inner, self.outer),
            turned=turned[0],
            turned_weights=turned[1],
        )


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
        dtype=format_of(query, "fp32"),
        mask_bytes=sum(spec.stored_bytes for spec in bias),
        efficiency=how.efficiencies.get(name, ATTENTION.get(name, 1.0)),
    )


Lower = Callable[[Call, Lowering], Iterator[Op]]
GEMMS: Mapping[str, Lower] = {
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
    "rnn": recurrent.forward,
    "rnn_backward": recurrent.backward,
}
