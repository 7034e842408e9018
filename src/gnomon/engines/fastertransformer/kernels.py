"""FasterTransformer's kernels where they are not vLLM's: GEMMs over narrow weights, and attention of prompts."""

from __future__ import annotations

from dataclasses import replace

from gnomon.cost.profile import Family, Profile
from gnomon.engines.fastertransformer import ENGINE
from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.ops import Attention, Elementwise, Gemm, Op
from gnomon.graph.sizes import DECODES, PROMPT, PROMPT_TOKENS, TOKENS, Rows
from gnomon.spec import Chip, Provenance

WEIGHTS_A_CYCLE = {"int8": 8.0, "int4": 4.7}
"""Weights that a multiprocessor takes in per cycle where a kernel for a few rows converts them one by one
(`int8WeightPerChannelLdkMultiplication`, and THUDM's for four bits). In eight bits: CodeGeeX, 13 billion parameters,
takes an A100 15 ms per token (CodeGeeX/codegeex-fastertransformer). In four bits: ChatGLM2-6B under another library
with a kernel of this kind takes an A100 9.0 and an RTX 3090 11.3 ms per token, in 16 bits 6.5 and 16.8 (ztxz16/fastllm
issue 161): 4.6 and 4.8 weights per cycle."""
NARROW, STORED_SO = ("int8", "int4"), "-weights"
WIDE_BYTES = 2.0
GEMV_SPREAD = 0.3
BARE = {
    "rate": 1.0, "tile": 0.0, "launch_us": 2.4, "epilogue_us": 0.0, "wave": 0.0, "overlap": 12.0, "split_us": 0.0,
    "sm_gb_s": 800.0, "step_ns": 0.0, "held": 0.0, "fixed": 0.0,
}  # fmt: skip
"""A GEMM that only streams its weights; its launch is that of the A100's GEMMs."""


def apart(op: Op, chip: Chip) -> tuple[Op, ...]:
    """A GEMM over narrow weights as the library runs it: decodes read the codes; for a prompt a kernel writes the
    matrix out in 16 bits, which cuBLAS then reads. Each prompt is taken to be a step of its own."""
    if isinstance(op, Attention) and op.phase == "prefill":
        return _unfused(op, chip.half)
    if isinstance(op, Elementwise) and op.narrows in NARROW:
        return ()  # activations stay in 16 bits
    if isinstance(op, Gemm) and op.dtype in NARROW:
        op = replace(op, dtype=f"{op.dtype}{STORED_SO}")
    if not isinstance(op, Gemm) or not op.dtype.endswith(STORED_SO) or op.m != TOKENS:
        return (op,)
    assert isinstance(op.n, int) and isinstance(op.k, int), "weight matrices have fixed sizes"
    written = Elementwise(
        name=f"{op.name}.extract",
        rows=Rows("prefills", op.n * op.k),
        read_per_row=gemm_format(op.dtype).weights,
        written_per_row=width(chip.half),
        efficiency=min(1.0, _taken_s(op.dtype, chip) * _moved(op) / chip.memory_bandwidth_bytes_s),
        cached=False,
        count=op.count,
    )
    return replace(op, m=DECODES), written, replace(op, m=PROMPT_TOKENS, dtype=chip.half)


def _unfused(op: Attention, half: str) -> tuple[Op, ...]:
    """A prompt's attention as two batched GEMMs with the scores of all pairs written between them; the masked softmax
    in its own kernel writes and reads them once more, in the time of a GEMM of one column."""
    scores = Gemm(
        name=f"{op.name}.scores", m=PROMPT, n=PROMPT, k=op.head_dim, batch=Rows("prefills", op.heads), dtype=half,
        out_dtype=half, count=op.count,
    )  # fmt: skip
    softmax = replace(scores, name=f"{op.name}.softmax", k=1)
    return scores, softmax, replace(scores, name=f"{op.name}.values", n=op.values, k=PROMPT)


def _moved(op: Gemm) -> float:
    """Bytes of a weight that is written out."""
    return gemm_format(op.dtype).weights + WIDE_BYTES


def _taken_s(dtype: str, chip: Chip) -> float:
    """Weights that the chip converts per second."""
    return WEIGHTS_A_CYCLE[dtype.removesuffix(STORED_SO)] * chip.sm_count * chip.boost_hz


def with_gemv(profile: Profile, chip: Chip) -> Profile:
    """The chip's profile with GEMMs over weights of eight and four bits as FasterTransformer has them: one row is
    multiplied as weights are converted; many rows are multiplied once that is done."""
    plain = profile.family("gemm", chip.half, ENGINE.framework)
    made = {f"gemm.{n}{STORED_SO}.{ENGINE.framework}": _gemv(plain, n, chip) for n in NARROW}
    return replace(profile, families={**profile.families, **made})


def _gemv(plain: Family, numbers: str, chip: Chip) -> Family:
    share = _taken_s(numbers, chip) * gemm_format(f"{numbers}-weights").weights / chip.memory_bandwidth_bytes_s
    c = {**BARE, "memory": min(share, plain.coefficients["memory"])}
    return replace(
        plain, coefficients=c, residual=None, spread=GEMV_SPREAD, shared=GEMV_SPREAD / 2,
        provenance=Provenance.FORMULA, source=f"weights in {numbers} by FasterTransformer's GEMV, {chip.name}",
    )  # fmt: skip
