"""Calls of a traced module as kernels: exact FLOPs and bytes, launches, memory."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.calls import call, last, tensor, traced

from gnomon import catalog
from gnomon.cost.machine import Machine
from gnomon.engines.torch.eager import Precision, lower, peak
from gnomon.engines.torch.eager.algebra import ALGEBRA
from gnomon.engines.torch.eager.gemms import ATTENTION, GEMMS
from gnomon.engines.torch.eager.lower import FORWARD_S, GRAPH_S, INNER_S
from gnomon.engines.torch.eager.price import ONE
from gnomon.engines.torch.eager.streams import rules
from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.errors import InputError
from gnomon.graph.ops import Convolution, Elementwise, Gemm, Op, SequenceAttention
from gnomon.load import parse_pool
from gnomon.load.profiles import profile_for
from gnomon.spec.traced import Call, Storage, TensorSpec


def kernels(*calls: Call, **precision: str) -> tuple[Op, ...]:
    return tuple(op for one in lower(traced(*calls), Precision(**precision)).launched for op in one.ops)


def flops(ops: tuple[Op, ...]) -> float:
    return sum(op.count * float(op.flops(ONE)[0]) for op in ops)


def moved(op: Op) -> tuple[float, float]:
    assert isinstance(op, Elementwise)
    return op.count * op.read_per_row, op.count * op.written_per_row


def test_products() -> None:
    a, b = tensor(64, 32), tensor(32, 16)
    (plain,) = kernels(call("mm", (tensor(64, 16),), self=a, mat2=b))
    assert isinstance(plain, Gemm) and (plain.m, plain.n, plain.k, plain.batch) == (64, 16, 32, 1)
    (biased,) = kernels(call("addmm", (tensor(64, 16),), self=tensor(16), mat1=a, mat2=b))
    assert biased == plain
    _, copied = kernels(call("addmm", (tensor(64, 16),), self=tensor(64, 16), mat1=a, mat2=b))
    assert moved(copied) == (2048, 2048)
    (many,) = kernels(call("bmm", (tensor(8, 64, 16),), self=tensor(8, 64, 32), mat2=tensor(8, 32, 16)))
    assert isinstance(many, Gemm) and many.batch == 8 and flops((many,)) == 8 * flops((plain,))


@pytest.mark.parametrize(("given", "setting", "found"), [("bf16", {}, "bf16"), ("fp32", {}, "fp32"),
                                                         ("fp32", {"gemms": "tf32"}, "tf32")])  # fmt: skip
def test_number_formats_of_products(given: str, setting: dict[str, str], found: str) -> None:
    a, b = tensor(64, 32, dtype=given), tensor(32, 16, dtype=given)
    (op,) = kernels(call("mm", (tensor(64, 16, dtype=given),), self=a, mat2=b), **setting)
    assert op.dtype == found


CONV: dict[str, Any] = {"transposed": False, "groups": 1}


def test_a_convolution_and_its_gradients_do_the_same_work() -> None:
    x, w, y = last(4, 16, 32, 32), last(24, 16, 3, 3), last(4, 24, 16, 16)
    (forward,) = kernels(call("convolution", (y,), CONV, input=x, weight=w))
    by = {"grad_output": y, "input": x, "weight": w}
    both = kernels(call("convolution_backward", (x, w), CONV | {"output_mask": [True, True, False]}, **by))
    expected = 2.0 * 4 * 16 * 16 * 24 * 16 * 9
    assert [op.name for op in both] == ["conv.by_input", "conv.by_weight"]
    for op in (forward, *both):
        assert isinstance(op, Convolution)
        assert flops((op,)) == expected
        assert op.moved == 2.0 * (4 * 16 * 32 * 32 + 24 * 16 * 9 + 4 * 24 * 16 * 16)
    only = kernels(call("convolution_backward", (x, w), CONV | {"output_mask": [False, True, True]}, **by))
    assert [op.name for op in only] == ["conv.by_weight", "reduce.channels"]


def test_grouped_and_transposed_convolutions() -> None:
    x, w, y = last(4, 16, 8, 8), last(16, 1, 3, 3), last(4, 16, 8, 8)
    (thin,) = kernels(call("convolution", (y,), CONV | {"groups": 16}, input=x, weight=w))
    assert isinstance(thin, Convolution) and thin.groups == 16 and thin.n == 1
    assert flops((thin,)) == 2.0 * 4 * 8 * 8 * 16 * 9
    grown = last(4, 8, 16, 16)
    (up,) = kernels(call("convolution", (grown,), CONV | {"transposed": True}, input=x, weight=last(16, 8, 4, 4)))
    assert flops((up,)) == 2.0 * 4 * 8 * 8 * 16 * 8 * 16
    assert isinstance(up, Convolution) and up.m == 4 * 16 * 16 and up.n == 8


def test_channels_that_do_not_lie_last_are_turned_but_for_points() -> None:
    def found(make: Any, size: int, stride: int = 1) -> Convolution:
        x, w, y = (make(*shape) for shape in ((4, 16, 8, 8), (32, 16, size, size), (4, 32, 8 // stride, 8 // stride)))
        conv, bias = kernels(call("convolution", (y,), CONV, input=x, weight=w, bias=tensor(32)))
        assert isinstance(conv, Convolution) and bias.name == "broadcast"
        return conv

    assert (found(last, 3).turned, found(last, 3).turned_weights) == (0.0, 0.0)
    assert (found(tensor, 3).turned, found(tensor, 3).turned_weights) == (2.0 * 4 * 48 * 64, 2.0 * 32 * 16 * 9)
    assert found(tensor, 1).turned == 0.0
    assert (found(tensor, 1, 2).turned, found(tensor, 1, 2).turned_weights) == (2.0 * 4 * (16 * 64 + 32 * 16), 0.0)


def test_products_know_how_their_rows_lie() -> None:
    def found(n: int, k: int, dtype: str = "bf16") -> list[tuple[int, int, int]]:
        x, w, y = (tensor(*shape, dtype=dtype) for shape in ((64, k), (n, k), (64, n)))
        turned = {"w": tensor(k, n, dtype=dtype, stride=(1, k)), "y": tensor(n, 64, dtype=dtype, stride=(1, n))}
        made = (
            kernels(call("mm", (y,), self=x, mat2=turned["w"])),
            kernels(call("mm", (x,), self=y, mat2=w)),
            kernels(call("mm", (w,), self=turned["y"], mat2=x)),
        )
        return [(op.across, op.aligned, op.out_aligned) for (op,) in made if isinstance(op, Gemm)]

    assert found(32, 48) == [(0, 16, 16), (1, 16, 16), (2, 16, 16)]
    assert found(33, 48) == [(0, 16, 2), (1, 2, 16), (2, 2, 16)]
    assert found(32, 50) == [(0, 4, 16), (1, 4, 4), (2, 4, 4)]
    assert found(33, 48, "fp32")[0] == (0, 16, 16)


@pytest.mark.parametrize(
    ("dim", "form"), [([0], "reduce"), ([-1], "reduce.rows"), ([0, 2, 3], "reduce.channels"), ([2, 3], "reduce.rows")]
)
def test_sums_by_what_they_leave(dim: list[int], form: str) -> None:
    x = tensor(64, 2048) if max(dim) < 1 or dim == [-1] else tensor(8, 32, 32, 32)
    (op,) = kernels(call("sum", (tensor(64),), {"dim": dim}, self=x))
    assert op.name == form


def test_rows_of_whole_vectors_are_looked_up_one_by_one() -> None:
    def seconds_like(width: int) -> float:
        index = tensor(100_000, dtype="int64")
        (op,) = kernels(call("index_select", (tensor(100_000, width),), self=tensor(10_000, width), index=index))
        assert isinstance(op, Elementwise)
        return sum(moved(op)) / op.efficiency

    assert seconds_like(64) == pytest.approx(seconds_like(256), rel=1e-9)
    assert seconds_like(4) < seconds_like(64)


def test_attention() -> None:
    q, k = tensor(2, 8, 64, 32), tensor(2, 4, 128, 32)
    given = {"query": q, "key": k, "value": k}
    (full,) = kernels(call("_scaled_dot_product_flash_attention", (q,), {"is_causal": False}, **given))
    assert isinstance(full, SequenceAttention)
    assert flops((full,)) == 4.0 * 2 * 8 * 64 * 128 * 32 and full.bytes(ONE)[0] == 2.0 * 2 * 2 * (8 * 64 + 4 * 128) * 32
    (causal,) = kernels(call("_scaled_dot_product_flash_attention", (q,), {"is_causal": True}, **given))
    assert flops((causal,)) == 4.0 * 2 * 8 * (64 * 65 / 2) * 32
    (back,) = kernels(call("_scaled_dot_product_flash_attention_backward", (q, k, k), {"is_causal": False}, **given))
    assert flops((back,)) == 2.5 * flops((full,)) and back.kind == "attention_backward"
    mask = tensor(2, 8, 64, 128, stride=(0, 0, 128, 1))
    (masked,) = kernels(call("_scaled_dot_product_efficient_attention", (q,), {}, **given, attn_bias=mask))
    assert isinstance(masked, SequenceAttention)
    assert (
        masked.mask_bytes == 2 * 64 * 128
        and masked.efficiency == efficiencies().get(masked.name, ATTENTION[masked.name]) < 1
    )


def test_a_recurrent_net_is_products_and_a_cell_a_step() -> None:
    rows, state = tensor(5 * 3, 8), tensor(1, 3, 16)
    weights = (tensor(64, 8), tensor(64, 16), tensor(64), tensor(64))
    options = {"cell": "lstm", "layers": 1, "both": False, "steps": 5}
    ops = kernels(call("gnomon.rnn", (), options, rows=rows, state=(state, state), weights=weights))
    assert [(op.name, op.count) for op in ops] == [("gemm", 1), ("gemm", 5), ("cell", 5)]
    assert flops(ops) == 2.0 * 15 * 64 * (8 + 16)
    back = {"gradient": tensor(15, 16), "rows": rows, "state": (state, state), "weights": weights}
    ops = kernels(call("gnomon.rnn_backward", (), options | {"by_input": False, "by_state": False}, **back))
    assert flops(ops) == 2.0 * 64 * (12 * 16 + 15 * 16 + 15 * 8)


BIG, ROWS = tensor(1000, 64), tensor(1000, dtype="int64")
STREAMS: dict[str, tuple[Call, str, float, float]] = {
    "add": (call("add", (tensor(64, 64),), pointwise=True, self=tensor(64, 64), other=tensor(64, 64)),
            "pointwise", 16384, 8192),
    "in place": (call("add_", (), changed=("self",), pointwise=True, self=tensor(64, 64), other=tensor(64)),
                 "broadcast", 8320, 8192),
    "expanded": (call("mul", (tensor(64, 64),), pointwise=True, self=tensor(64, 64),
                      other=tensor(64, 64, stride=(0, 1))), "broadcast", 8320, 8192),
    "transposed": (call("clone", (tensor(64, 32),), self=tensor(64, 32, stride=(1, 64))), "copy.strided", 4096, 4096),
    "widen": (call("_to_copy", (tensor(64, dtype="fp32"),), self=tensor(64)), "widen", 128, 256),
    "fill": (call("fill_", (), changed=("self",), self=tensor(64)), "zero", 0, 128),
    "copy": (call("copy_", (), changed=("self",), self=tensor(64), src=tensor(64)), "copy", 128, 128),
    "gather": (call("index_select", (tensor(100, 64),), self=BIG, index=tensor(100, dtype="int64")),
               "gather", 100 * 64 * 2 + 800, 12800),
    "scatter": (call("index_add_", (), changed=("self",), self=BIG, index=tensor(100, dtype="int64"),
                     source=tensor(100, 64)), "scatter", 2 * 12800 + 800, 12800),
    "scatter into a copy": (call("index_add", (tensor(1000, 64),), self=BIG, index=tensor(100, dtype="int64"),
                                 source=tensor(100, 64)), "scatter", 128000 + 2 * 12800 + 800, 128000 + 12800),
    "embedding": (call("embedding_dense_backward", (tensor(1000, 64),), grad_output=tensor(100, 64),
                       indices=tensor(100, dtype="int64")), "embedding.backward", 12800 + 800, 128000 + 12800),
    "norm": (call("native_layer_norm_backward", (tensor(64, 64),), grad_out=tensor(64, 64), input=tensor(64, 64)),
             "layer_norm.backward", 4 * 8192, 8192),
    "loss": (call("nll_loss_forward", (tensor(),), self=tensor(64, 1000), target=tensor(64, dtype="int64")),
             "nll_loss", 512, 2),
    "batch norm": (call("native_batch_norm", (tensor(64, 64),), {"training": True}, input=tensor(64, 64)),
                   "batch_norm", 16384, 8192),
    "batch norm at rest": (call("native_batch_norm", (tensor(64, 64),), {"training": False}, input=tensor(64, 64)),
                           "batch_norm.inference", 8192, 8192),
    "adamw": (call("_fused_adamw_", (), changed=("self", "grads", "exp_avgs", "exp_avg_sqs"), self=tensor(64),
                   grads=tensor(64), exp_avgs=tensor(64), exp_avg_sqs=tensor(64)), "adamw", 4 * 128, 3 * 128),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_bytes_of_what_streams(name: str) -> None:
    one, kernel, read, written = STREAMS[name]
    (op,) = kernels(one)
    assert (op.name, *moved(op)) == (kernel, read, written)


def test_views_and_empty_tensors_launch_nothing() -> None:
    x = tensor(64, 64)
    look = TensorSpec(shape=(4096,), stride=(1,), dtype="bf16", item_bytes=2.0, storage=x.storage)
    assert kernels(call("view", (look,), self=x), call("empty_like", (tensor(64, 64),), self=x)) == ()
    assert kernels(call("relu", (tensor(0, 64),), pointwise=True, self=tensor(0, 64))) == ()


def test_an_operator_nobody_described_is_named() -> None:
    odd = call("_odd", (tensor(64, 64, dtype="fp32"),), self=tensor(64, 64, dtype="fp32"))
    found = lower(traced(odd, odd))
    assert found.unknown == {"aten._odd": 2}
    assert moved(found.launched[0].ops[0]) == (16384, 16384)


@pytest.mark.parametrize("name", ["linalg_matrix_exp", "linalg_eig", "linalg_new", "_grouped_mm"])
def test_arithmetic_that_nobody_counted_is_refused_by_name(name: str) -> None:
    a = tensor(64, 64, dtype="fp32")
    with pytest.raises(InputError, match=rf"layer: aten\.{name} cannot be priced"):
        kernels(call(name, (a,), self=a, module="layer"))


def factored(op: str, size: int, count: int = 1) -> float:
    a, sigma = tensor(count, size, size, dtype="fp32"), tensor(count, size, dtype="fp32")
    made = {"linalg_cholesky_ex": (a,), "_linalg_svd": (a, sigma, a)}[op]
    (work,) = kernels(call(op, made, **{"A" if op == "_linalg_svd" else "self": a}))
    machine = Machine(parse_pool("H100"), profile_for(catalog.chip("H100")), "torch")
    return 1e6 * float(machine.op_seconds(work, ONE)[0])


@pytest.mark.parametrize(
    ("size", "count", "published_us"),
    [(16, 1, 34.8), (128, 1, 108.6), (512, 1, 376.1), (2048, 1, 1954.3), (16, 16, 46.1), (128, 16, 157.7),
     (512, 16, 834.9), (2048, 16, 10598.4), (512, 64, 1261.4), (2048, 64, 22181.2)],
)  # fmt: skip
def test_factorisations_beside_published_ones(size: int, count: int, published_us: float) -> None:
    """Cholesky factorisations in fp32 by cuSOLVER, github.com/pytorch/pytorch/pull/173515; the GPU is not named."""
    assert 0.4 < factored("linalg_cholesky_ex", size, count) / published_us < 2.5


def test_vectors_that_are_not_made_are_not_counted() -> None:
    a, none = tensor(64, 64, dtype="fp32"), tensor(0, dtype="fp32")
    values = kernels(call("_linalg_svd", (none, tensor(64, dtype="fp32"), none), A=a))
    assert flops(values) == pytest.approx(8 / 3 * 64**3)
    assert flops(kernels(call("_linalg_eigh", (tensor(64, dtype="fp32"), none), A=a))) == pytest.approx(4 / 3 * 64**3)


def test_matrices_one_after_the_other_wait_for_each_other() -> None:
    assert factored("_linalg_svd", 64, 8) > 7 * factored("_linalg_svd", 64)
    assert factored("_linalg_svd", 32, 8) < 1.1 * factored("_linalg_svd", 32)


def test_products_in_fp64_are_refused() -> None:
    a = TensorSpec(shape=(8, 8), stride=(8, 1), dtype="fp64", item_bytes=8.0, storage=10**9)
    with pytest.raises(InputError, match="--dtype: arithmetic in fp64 cannot be priced"):
        kernels(call("mm", (a,), self=a, mat2=a))


def test_every_rule_leans_on_a_kernel_that_was_measured() -> None:
    known = {name.removesuffix(".float32").removesuffix(".bfloat16") for name in efficiencies()}
    for operator, rule in rules().by_operator.items():
        assert rule.like in known, operator
        assert rule.launches >= 1 and rule.reads > 0 and rule.writes > 0
    assert not set(rules().by_operator) & (set(GEMMS) | set(ALGEBRA) | rules().nothing)


def test_the_host_needs_its_time_for_every_call() -> None:
    small = call("relu", (tensor(4),), pointwise=True, self=tensor(4))
    found = lower(traced(*[small] * 3, call("sort", (tensor(64), tensor(64, dtype="int64")), self=tensor(64))))
    assert found.kernels == 3 + 8
    assert found.host_s("eager") == pytest.approx(4 * FORWARD_S + 7 * INNER_S)
    assert found.host_s("graph") == GRAPH_S
    with pytest.raises(InputError, match="Known: eager, graph"):
        found.host_s("compiled")


def test_the_fullest_moment() -> None:
    nothing = call("relu", (tensor(4),), pointwise=True, self=tensor(4))
    held = (
        Storage(bytes=1000, born=0, died=None, role="parameters"),
        Storage(bytes=1, born=0, died=None, role="inputs"),
        Storage(bytes=5000, born=0, died=2),
        Storage(bytes=5000, born=1, died=3),
        Storage(bytes=7000, born=3, died=None),
        Storage(bytes=1000, born=2, died=None, role="gradients"),
        Storage(bytes=2000, born=9, died=None, role="optimizer"),
    )
    found = peak(traced(*[nothing] * 4, storages=held))
    assert found.at == 1
    assert found.parts == {"parameters": 1024, "inputs": 512, "optimizer": 2048, "activations": 2 * 5120}
    assert found.bytes == 1024 + 512 + 2048 + 10240
