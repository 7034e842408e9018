"""Factorisations, solves and transforms of a traced module, by the counts of Golub and Van Loan's Matrix Computations.

PyTorch leaves them to cuSOLVER, cuBLAS and cuFFT, whose algorithms may do several times as much; the band says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import log2, prod

from gnomon.engines.torch.eager.lowering import Lowering, format_of
from gnomon.errors import InputError
from gnomon.graph.algebra import Algebra
from gnomon.graph.ops import Op
from gnomon.spec.traced import Call, TensorSpec

PREFIXES = ("linalg_", "_linalg_")
STREAMS = frozenset({"linalg_cross", "linalg_vector_norm", "_linalg_check_errors"})
"""Operators with such a prefix that only stream their operands."""
UNCOUNTED: Mapping[str, str] = {
    "linalg_matrix_exp": "how often it squares depends on values",
    "linalg_eig": "how often it iterates depends on values, and PyTorch's library on its version",
    **dict.fromkeys(
        ("_grouped_mm", "_scaled_grouped_mm", "conv_tbc", "_weight_int4pack_mm", "_weight_int8pack_mm", "_trilinear",
         "_cdist_backward", "_pdist_backward"),
        "no rule counts its FLOPs",
    ),
}  # fmt: skip
LU, QR, EIGH, SVD = 2.0, 3.0, 25.0, 50.0
"""What a column takes beside one of a Cholesky factorisation (0.95 us, github.com/pytorch/pytorch/pull/173515): QR by
the 189 us of 32 columns, factored and formed (H100, pull/173788), SVD by the 12.2 ms of 256 columns (A100,
github.com/tensor4all/tenferro-rs/issues/1720). Of LU and eigh estimates between these."""
START = 15.0
"""What stands before the first column, in the same units: 16 columns take 35 us (pull/173515)."""
WHOLE_BATCH = {QR: 256, EIGH: 32, SVD: 32}
"""Columns up to which PyTorch works on all matrices of a batch at once, where it does not do so always."""
ONE_PASS = 4096
"""Values of a transform that one kernel holds. An estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Work on one matrix: FLOPs, values read by unbatched matrix-vector multiplications, sequential columns."""

    flops: float
    passed: float = 0.0
    columns: float = 0.0
    efficiency: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """A matrix, m >= n, and the columns on its right: given ones, or those of the vectors it gives."""

    m: float
    n: float
    right: float

    @property
    def reduced(self) -> float:
        """LU or half of a QR: n^2 (m - n/3)."""
        return self.n**2 * (self.m - self.n / 3)


def _lu(s: _Sizes) -> _Work:
    return _Work(flops=s.reduced, columns=s.n, efficiency=LU)


def _inverse(s: _Sizes) -> _Work:
    return _Work(flops=2 * s.n**3, columns=2 * s.n, efficiency=LU)


def _solve(s: _Sizes) -> _Work:
    return _Work(flops=s.reduced + 2 * s.n**2 * s.right, columns=2 * s.n, efficiency=LU)


def _solve_factored(s: _Sizes) -> _Work:
    return _Work(flops=2 * s.n**2 * s.right, columns=s.n)


def _solve_triangular(s: _Sizes) -> _Work:
    return _Work(flops=s.n**2 * s.right, columns=s.n / 2)


def _cholesky(s: _Sizes) -> _Work:
    return _Work(flops=s.n**3 / 3, columns=s.n)


def _cholesky_inverse(s: _Sizes) -> _Work:
    return _Work(flops=2 * s.n**3 / 3, columns=s.n)


def _householder(s: _Sizes) -> _Work:
    return _Work(flops=2 * s.reduced, columns=s.n, efficiency=QR)


def _apply(s: _Sizes) -> _Work:
    return _Work(flops=2 * s.right * s.n * (2 * s.m - s.n), columns=s.n, efficiency=QR)


def _qr(s: _Sizes) -> _Work:
    """Q is formed with n columns, with m, or not at all."""
    formed = 0.0 if not s.right else 2 * s.reduced if s.right <= s.n else 4 * (s.m * s.n * (s.m - s.n) + s.n**3 / 3)
    return _Work(flops=2 * s.reduced + formed, columns=s.n * (2 if s.right else 1), efficiency=QR)


def _eigh(s: _Sizes) -> _Work:
    """To three diagonals first, where half the work is matrix-vector multiplications."""
    flops = 9 * s.n**3 if s.right else 4 * s.n**3 / 3
    return _Work(flops=flops, passed=s.n**3 / 6, columns=s.n, efficiency=EIGH)


def _svd(s: _Sizes) -> _Work:
    """To two diagonals first, which reads what is left of the matrix twice a column."""
    flops = 4 * s.m**2 * s.n + 8 * s.m * s.n**2 + 9 * s.n**3 if s.right else 4 * s.reduced
    return _Work(flops=flops, passed=s.reduced, columns=s.n, efficiency=SVD)


def _pinv(s: _Sizes) -> _Work:
    whole = _svd(s)
    return _Work(flops=whole.flops + 2 * s.m * s.n**2, passed=whole.passed, columns=s.n, efficiency=SVD)


MATRICES: Mapping[str, tuple[Callable[[_Sizes], _Work], str, str | int | None]] = {
    **dict.fromkeys(("linalg_lu", "linalg_lu_factor_ex", "_linalg_det", "_linalg_slogdet"), (_lu, "A", None)),
    "linalg_inv_ex": (_inverse, "A", None),
    "_linalg_solve_ex": (_solve, "A", "B"),
    "linalg_lu_solve": (_solve_factored, "LU", "B"),
    "cholesky_solve": (_solve_factored, "input2", "self"),
    "linalg_ldl_solve": (_solve_factored, "LD", "B"),
    "linalg_solve_triangular": (_solve_triangular, "self", "B"),
    "triangular_solve": (_solve_triangular, "A", "self"),
    **dict.fromkeys(("linalg_cholesky_ex", "cholesky", "linalg_ldl_factor_ex"), (_cholesky, "self", None)),
    "cholesky_inverse": (_cholesky_inverse, "self", None),
    "geqrf": (_householder, "self", None),
    "linalg_householder_product": (_householder, "input", None),
    "ormqr": (_apply, "self", "input3"),
    "linalg_qr": (_qr, "A", 0),
    "_linalg_eigh": (_eigh, "A", 1),
    "_linalg_svd": (_svd, "A", 0),
    "linalg_pinv": (_pinv, "self", 0),
}
"""The work of each operator, the argument that is its matrix, and what stands on its right: another, or a result."""


def _matrices(call: Call, how: Lowering) -> Iterator[Op]:
    name = call.op.partition(".")[2].removesuffix("_")
    count, matrix, right = MATRICES[name]
    spec = call.tensors[matrix][0]
    *batches, m, n = spec.shape
    work = count(_Sizes(m=max(m, n), n=min(m, n), right=_right(call, right, len(spec.shape))))
    if spec.values:
        yield _op(name, call, spec, work, prod(batches))


def _right(call: Call, right: str | int | None, dimensions: int) -> int:
    """Columns of the right-hand side, or rows where it is on the left; of a result only where it is computed."""
    if right is None:
        return 0
    if isinstance(right, int):
        made = call.results[right]
        return made.shape[-1] if made.values else 0
    spec = call.tensors[right][0]
    if len(spec.shape) < dimensions:
        return 1
    return spec.shape[-1] if call.options.get("left", True) else spec.shape[-2]


def _op(name: str, call: Call, spec: TensorSpec, work: _Work, matrices: int) -> Algebra:
    """A complex multiplication takes four real ones, with their sums."""
    at_once = work.columns <= WHOLE_BATCH.get(work.efficiency, work.columns)
    moved = sum(one.stored_bytes for one in call.inputs) + sum(one.bytes for one in call.results)
    return Algebra(
        name=name.strip("_").removesuffix("_ex"),
        work=work.flops * matrices * (4 if spec.dtype.startswith("complex") else 1),
        moved=moved + work.passed * matrices * spec.item_bytes,
        steps=(work.columns * work.efficiency + START) * (1 if at_once else matrices),
        dtype=format_of(spec, "fp32"),
    )


def _transform(call: Call, how: Lowering) -> Iterator[Op]:
    """5 n log2 n of complex values, half of that where one side is real."""
    given, made = call.inputs[0], call.results[0]
    whole = max(given, made, key=lambda spec: spec.values)
    sizes = [whole.shape[i] for i in call.options["dim"]]
    if whole.values:
        real = 1.0 if call.op.endswith("c2c") else 0.5
        passes = max(sum(1 if size <= ONE_PASS else 2 for size in sizes), 1)
        yield Algebra(
            name="fft",
            work=5 * real * whole.values * log2(max(prod(sizes), 2)),
            moved=passes * (given.stored_bytes + made.bytes),
            dtype=format_of(given, "fp32"),
        )


def _distances(call: Call, how: Lowering) -> Iterator[Op]:
    """Three operations per pair and coordinate: a difference, its power, a sum."""
    first, made = call.inputs[0], call.results[0]
    work = _Work(flops=3.0 * made.values * first.shape[-1])
    if made.values:
        yield _op("distances", call, first, work, 1)


def refuse_uncounted(call: Call, name: str) -> None:
    """Raise InputError for arithmetic that no rule counts: streaming its operands would be no bound on its time."""
    why = UNCOUNTED.get(name)
    if why is None and name.startswith(PREFIXES) and name not in STREAMS:
        why = "no rule counts its FLOPs"
    if why is not None:
        raise InputError(
            f"{call.op} cannot be priced: {why}",
            where=call.module or "module",
            hint="Trace the module without it, and time it by itself.",
        )


Lower = Callable[[Call, Lowering], Iterator[Op]]
ALGEBRA: Mapping[str, Lower] = {
    **dict.fromkeys(MATRICES, _matrices),
    **dict.fromkeys(("_fft_r2c", "_fft_c2c", "_fft_c2r"), _transform),
    **dict.fromkeys(("_cdist_forward", "_pdist_forward", "_euclidean_dist"), _distances),
}
