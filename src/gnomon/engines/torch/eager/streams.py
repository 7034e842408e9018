"""PyTorch's kernels that only stream memory: which bytes each moves, in how many launches, at which pace.

Bytes follow from shapes, layouts and formats. A kernel without a measured pace of its own takes that of the measured
one it is most `like`, until `gnomon.engines.torch.paces` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.graph.ops import Elementwise
from gnomon.spec.traced import Call, TensorSpec

NOTHING = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided detach alias lift_fresh as_strided_ "
    "resize_ set_ squeeze_ unsqueeze_ t_ transpose_ swapaxes_ requires_grad_ _assert_async _assert_scalar "
    "_nested_tensor_from_mask_left_aligned is_same_size".split()
)
"""Calls that launch no kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A kernel beside its operator's arguments: those it reads more or less than once, and how often it writes."""

    kernel: str
    like: str = "add"
    reads: float = 1.0
    writes: float = 1.0
    launches: int = 1
    unread: tuple[str, ...] = ()
    """Arguments it does not read, or of which it reads a few values."""
    looked_up: tuple[str, ...] = ()
    """Arguments of which it reads as much as it writes."""
    again: tuple[str, ...] = ()
    """Arguments it writes in full beside its result, over what it cleared or copied there."""
    places: tuple[str, ...] = ()
    """Arguments it adds to what stands at some places: these are read and written, and nothing around them."""


def _rules(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Mapping[str, Rule] = (
    _rules("native_layer_norm", Rule(kernel="layer_norm", like="layer_norm"))
    | _rules("_fused_rms_norm", Rule(kernel="rms_norm", like="rms_norm"))
    | _rules("native_layer_norm_backward", Rule(
        kernel="layer_norm.backward", like="layer_norm.backward", reads=2, launches=2))
    | _rules("_fused_rms_norm_backward", Rule(
        kernel="rms_norm.backward", like="rms_norm.backward", reads=2, launches=2))
    | _rules("native_group_norm _native_batch_norm_legit native_batch_norm cudnn_batch_norm", Rule(
        kernel="batch_norm", like="layer_norm", reads=2, launches=2))
    | _rules("_native_batch_norm_legit_no_training", Rule(kernel="batch_norm.inference", like="mul"))
    | _rules("native_group_norm_backward native_batch_norm_backward cudnn_batch_norm_backward", Rule(
        kernel="batch_norm.backward", like="layer_norm.backward", reads=2, launches=2))
    | _rules("_softmax _log_softmax _safe_softmax", Rule(kernel="softmax", like="loss"))
    | _rules("_softmax_backward_data _log_softmax_backward_data", Rule(
        kernel="softmax.backward", like="loss.backward"))
    | _rules("nll_loss_forward nll_loss2d_forward", Rule(kernel="nll_loss", like="loss", unread=("self",)))
    | _rules("nll_loss_backward nll_loss2d_backward", Rule(
        kernel="nll_loss.backward", like="loss.backward", unread=("self",), launches=2))
    | _rules("gelu", Rule(kernel="gelu", like="gelu"))
    | _rules("gelu_backward", Rule(kernel="gelu.backward", like="gelu.backward"))
    | _rules("silu", Rule(kernel="silu", like="silu"))
    | _rules("silu_backward", Rule(kernel="silu.backward", like="silu.backward"))
    | _rules("native_dropout", Rule(kernel="dropout", like="gelu"))
    | _rules("native_dropout_backward", Rule(kernel="dropout.backward", like="mul"))
    | _rules("embedding gather index index_select take _unsafe_index", Rule(
        kernel="gather", like="widen", looked_up=("self", "weight")))
    | _rules("embedding_dense_backward", Rule(
        kernel="embedding.backward", like="embedding.backward", launches=4, again=("grad_output",)))
    | _rules("_embedding_bag", Rule(kernel="gather", like="widen", looked_up=("weight",)))
    | _rules("scatter_add index_add index_put _index_put_impl_ _unsafe_index_put scatter_reduce scatter index_reduce "
             "index_copy put", Rule(kernel="scatter", like="embedding.backward", places=("src", "source", "values")))
    | _rules("select_backward slice_backward diagonal_backward unfold_backward", Rule(
        kernel="slice.backward", like="zero", launches=2, again=("grad_output", "grad")))
    | _rules("constant_pad_nd", Rule(
        kernel="pad", like="zero", launches=2, again=("self",)))
    | _rules("sum mean amax amin max min argmax argmin any all prod var std var_mean std_mean norm linalg_vector_norm "
             "logsumexp _foreach_norm aminmax count_nonzero median", Rule(kernel="reduce", like="norm"))
    | _rules("cumsum cumprod logcumsumexp cummax cummin", Rule(kernel="scan", like="norm", reads=2, launches=2))
    | _rules("sort argsort topk msort kthvalue", Rule(kernel="sort", like="add", reads=4, writes=4, launches=8))
    | _rules("cat stack clone contiguous _to_copy repeat roll flip tril triu constant unfold im2col col2im "
             "channel_shuffle pixel_shuffle pixel_unshuffle _conj_physical index_fill split_with_sizes_copy",
             Rule(kernel="copy", like="add"))
    | _rules("copy _foreach_copy", Rule(kernel="copy", like="add", unread=("self",)))
    | _rules("max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d _adaptive_avg_pool2d "
             "_adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d reflection_pad1d reflection_pad2d "
             "replication_pad2d", Rule(kernel="pool", like="layer_norm"))
    | _rules("max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward "
             "avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
             "adaptive_max_pool2d_backward reflection_pad2d_backward",
             Rule(kernel="pool.backward", like="layer_norm", unread=("self",), launches=2))
    | _rules("upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
             "upsample_bicubic2d upsample_trilinear3d grid_sampler_2d grid_sampler_3d _upsample_bilinear2d_aa "
             "_upsample_bicubic2d_aa _upsample_nearest_exact2d", Rule(kernel="upsample", like="layer_norm"))
    | _rules("upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward "
             "upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
             "upsample_trilinear3d_backward grid_sampler_2d_backward",
             Rule(kernel="upsample.backward", like="layer_norm", launches=2))
    | _rules("arange full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full fill zero _foreach_zero "
             "scalar_tensor rand rand_like randn randn_like randint uniform normal bernoulli random eye linspace "
             "randperm exponential _efficientzerotensor", Rule(kernel="zero", like="zero", unread=("self",)))
    | _rules("_fused_adamw _fused_adam", Rule(kernel="adamw", like="adamw"))
    | _rules("_fused_sgd", Rule(kernel="sgd", like="adamw"))
    | _rules("_thnn_fused_lstm_cell _thnn_fused_gru_cell", Rule(kernel="cell", like="gelu"))
    | _rules("_thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell_backward", Rule(
        kernel="cell.backward", like="gelu.backward", launches=2))
    | _rules("_fft_r2c _fft_c2c _fft_c2r", Rule(kernel="fft", like="add", reads=2, writes=2, launches=2))
    | _rules("_weight_norm_interface _weight_norm_interface_backward", Rule(kernel="weight_norm", like="norm"))
    | _rules("mse_loss smooth_l1_loss huber_loss binary_cross_entropy l1_loss", Rule(kernel="loss", like="norm", launches=2))
)  # fmt: skip
POINTWISE = Rule(kernel="pointwise")
STRIDED = "rope"
"""Measured where every operand of a kernel is a strided part: what a copy into another order of dimensions takes."""
OWN_BY_FORMAT = {"norm", "scale", "adamw"}
"""Kernels whose pace was measured for each number format."""


def base_name(call: Call) -> str:
    """The operator without its library, and without the mark of working in place."""
    name = call.op.partition(".")[2]
    return name if name in NOTHING or name in RULES else name.removesuffix("_")


def rule_for(call: Call) -> tuple[Rule, bool]:
    """Its rule, and whether one stands for it: an operator nobody described streams its operands once."""
    name = base_name(call)
    if name in RULES:
        return RULES[name], True
    known = call.pointwise or name.startswith(("_foreach_", "_fused_"))
    return (POINTWISE if call.pointwise else Rule(kernel=name)), known


def stream(call: Call, paces: Mapping[str, float]) -> tuple[Elementwise | None, bool]:
    """The kernel of a call, or None where it launches none; and whether its rule is known."""
    if base_name(call) in NOTHING or call.is_view:
        return None, True
    rule, known = rule_for(call)
    read, written = _traffic(call, rule)
    if not read and not written:
        return None, True
    name, pace = _pace(call, rule, paces)
    launches = rule.launches
    return (
        Elementwise(
            name=name,
            rows=1,
            read_per_row=read / launches,
            written_per_row=written / launches,
            dtype="bf16",
            count=launches,
            pace=pace,
        ),
        known,
    )


def _traffic(call: Call, rule: Rule) -> tuple[float, float]:
    """Bytes read and written, all launches together."""
    there = {spec.storage for spec in call.inputs}
    made = sum(spec.bytes for spec in call.results if spec.storage not in there)
    sizes = {name: sum(spec.stored_bytes for spec in specs) for name, specs in call.tensors.items()}
    changed = {name for name in call.changed if name != "grads"}  # an optimizer only reads them
    read = 0.0
    for name, size in sizes.items():
        if name not in rule.unread and not (rule.places and name in changed):
            read += min(size, made) if name in rule.looked_up else size
    written = made + sum(sizes.get(name, 0.0) for name in changed if not rule.places)
    placed = sum(sizes.get(name, 0.0) for name in rule.places)
    again = sum(sizes.get(name, 0.0) for name in rule.again)
    return read * rule.reads + placed, written * rule.writes + placed + again


def _pace(call: Call, rule: Rule, paces: Mapping[str, float]) -> tuple[str, float]:
    """The kernel's name and pace: its own where it was measured, else that of its like."""
    made = call.results[0] if call.results else (call.inputs[0] if call.inputs else None)
    name, like = rule.kernel, rule.like
    if made is not None and rule.kernel in ("copy", "pointwise") and _strided(call, made):
        name, like = f"{rule.kernel}.strided", STRIDED
    elif rule.kernel == "copy" and made is not None and len(call.inputs) == 1:
        name, like = _converted(call.inputs[0], made, like)
    wide = made is not None and any(spec.item_bytes == 4 for spec in (made, *call.inputs) if spec.values)
    format = "float32" if wide else "bfloat16"
    for key in (name, f"{name}.{format}", like, f"{like}.{format}"):
        if key in paces:
            return name, paces[key]
    return name, 1.0


def _strided(call: Call, made: TensorSpec) -> bool:
    """Whether an operand as large as the result lies in another order."""
    return any(spec.shape == made.shape and spec.order != made.order for spec in call.inputs)


def _converted(source: TensorSpec, made: TensorSpec, like: str) -> tuple[str, str]:
    if made.item_bytes == source.item_bytes:
        return "copy", like
    return ("widen", "widen") if made.item_bytes > source.item_bytes else ("narrow", "narrow")


