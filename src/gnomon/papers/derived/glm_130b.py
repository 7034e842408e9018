"""GLM-130B (Zeng et al. 2022): which machines hold it in which format, and what weights that are written out cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

import gnomon
from gnomon.load.cluster import SCHEMA
from gnomon.papers.base import ROUNDING, USUAL_TOLERANCE, Derivation, Figure, Input
from gnomon.papers.shapes import shapes_file

REPOSITORY = "github.com/THUDM/GLM-130B"
MIXER = {"kind": "attention", "heads": 96, "kv_heads": 96, "head_dim": 128, "qkv_bias": True, "out_bias": True}
FFN = {"kind": "dense", "inner": 32768, "gated": True, "bias": True}
SHAPES = {
    "hidden": 12288,
    "vocab": 150528,
    "max_context": 2048,
    "dtype": "fp16",
    "tied_embeddings": True,
    "blocks": [{"count": 70, "mixer": MIXER, "ffn": FFN}],
}
INT4, INT8 = ("dequantize-on-the-fly",), ("dequantize-on-the-fly:bits=8",)
LENGTHS = (128, 512, 1024, 2048)
DECODE_TOLERANCE = 0.30
"""As the index argues: no kernel of ours is theirs."""
GIGA, MILLI = 1e9, 1e-3
Cells = tuple[float | None, float | None, float | None, float | None]
"""By length; None where memory ran out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A machine of the repository's benchmark in four bits: milliseconds of encoding, seconds of decoding."""

    chip: str
    count: int
    encode_ms: Cells
    decode_s: Cells

    @property
    def name(self) -> str:
        return f"{self.count} x {self.chip}"


ROWS = (
    Row(chip="A100-SXM-40GB", count=8, encode_ms=(145, 183, 313, 495), decode_s=(4.29, 17.7, 37.8, 86.0)),
    Row(chip="A100-SXM-80GB", count=4, encode_ms=(174, 272, 439, 810), decode_s=(6.62, 27.1, 56.2, 123)),
    Row(chip="V100-SXM2-32GB", count=8, encode_ms=(309, 666, 1208, 2304), decode_s=(6.97, 28.1, 58.4, 125)),
    Row(chip="V100-SXM2-32GB", count=4, encode_ms=(448, 843, 1488, 2803), decode_s=(11.4, 45.87, 93.5, 196)),
    Row(chip="RTX-3090", count=8, encode_ms=(283, 915, 1793, 3477), decode_s=(5.07, 20.5, 42.7, 90.3)),
    Row(chip="RTX-3090", count=4, encode_ms=(374, 1300, None, None), decode_s=(8.16, 32.3, 66.5, 150)),
    Row(chip="RTX-2080Ti", count=8, encode_ms=(392, 1044, None, None), decode_s=(6.77, 27.29, 56.02, None)),
)
HOLDS = (
    ("RTX-3090", 4, "four bits", INT4, 1.0),
    ("RTX-2080Ti", 8, "four bits", INT4, 1.0),
    ("A100-SXM-40GB", 8, "16 bits", (), 1.0),
    ("V100-SXM2-32GB", 8, "16 bits", (), 0.0),
    ("V100-SXM2-32GB", 8, "eight bits", INT8, 1.0),
    ("RTX-3090", 8, "eight bits", INT8, 1.0),
)
SHORT = 512
"""Tokens of the sequence that a machine must have room for."""
WIDE_S = (18.77, 39.81, 89.88)
"""FasterTransformer in 16 bits on eight A100, 512 to 2,048 tokens."""
LIBRARY = (
    ("V100-SXM2-32GB", 8, INT8, (106.35, 216.5, 449.17)),
    ("RTX-3090", 4, INT4, (138.66, 292.69, 649.64)),
    ("RTX-2080Ti", 8, INT4, (117.39, 240.96, 528.66)),
)
"""The authors' own library, which writes every matrix out, over the same lengths."""


@contextmanager
def _machine(chip: str, count: int) -> Iterator[str]:
    """So many chips in one machine, by its file: workstations usually hold fewer cards."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "machine.yaml"
        said = {"schema": SCHEMA, "chip": chip, "count": count, "per_node": count}
        path.write_text(yaml.safe_dump(said), encoding="utf-8")
        yield f"{path}:{count}"


def _room(model: Path, on: str, techniques: Sequence[str], context: int, at_once: int) -> float:
    """1 where a plain program has room for a sequence of `context` tokens of which `at_once` go through together."""
    plain = {"gpu_memory_utilization": 1.0, "max_num_seqs": 1, "enforce_eager": True, "max_num_batched_tokens": at_once}
    return float(gnomon.fit(model, on=on, context=context, settings=plain, techniques=techniques).fits)


def _holds(model: Path) -> Iterator[Figure]:
    for chip, count, words, techniques, claimed in HOLDS:
        with _machine(chip, count) as on:
            ours = _room(model, on, techniques, SHORT, SHORT)
        found = _figure(f"{count} x {chip} hold it in {words} (1 for yes)", claimed, ours, tolerance=0.0, note=EDGE)
        yield replace(found, claim=1 if techniques == INT4 else 0)
    with _machine("A100-SXM-40GB", 8) as on:
        weights = 8 * gnomon.fit(model, on=on, techniques=INT4).parts["weights"]
    yield replace(_figure("weights in four bits", 70.0, weights / GIGA, "GB", ROUNDING), kind="identity")


def _row(model: Path, row: Row, on: str) -> Iterator[Figure]:
    for tokens, decode_s, encode_ms in zip(LENGTHS, row.decode_s, row.encode_ms, strict=True):
        if decode_s is not None:
            step = gnomon.predict(model, on=on, phase="decode", context=tokens // 2, techniques=INT4).time_s.value
            what = f"{row.name}: decoding {tokens} tokens"
            yield _figure(what, decode_s, tokens * step, "s", DECODE_TOLERANCE, FUSED)
        if encode_ms is not None:
            found = gnomon.predict(model, on=on, phase="prefill", tokens=tokens, techniques=INT4).time_s.value
            what = f"{row.name}: encoding {tokens} tokens"
            yield _figure(what, encode_ms, found / MILLI, "ms", note=ENCODED.get(row.chip, STRIDED))


def _cells(model: Path, row: Row, on: str) -> Iterator[Figure]:
    """Where memory ran out. Where it did not there is a time, and a machine that holds the network."""
    for tokens, decode_s, encode_ms in zip(LENGTHS, row.decode_s, row.encode_ms, strict=True):
        for verb, cell, at_once in (("decoding", decode_s, LENGTHS[0]), ("encoding", encode_ms, tokens)):
            if cell is None:
                ours = _room(model, on, INT4, tokens, at_once)
                what = f"{row.name}: room for {verb} {tokens} tokens (1 for yes)"
                yield _figure(what, 0.0, ours, tolerance=0.0, note=WORKED)


def _library(model: Path) -> Iterator[Figure]:
    for chip, count, techniques, printed in LIBRARY:
        with _machine(chip, count) as on:
            for tokens, seconds in zip(LENGTHS[1:], printed, strict=True):
                found = gnomon.predict(model, on=on, phase="decode", context=tokens // 2, techniques=techniques)
                what = f"{count} x {chip}, the authors' library: decoding {tokens} tokens"
                yield _figure(what, seconds, tokens * found.time_s.value, "s", DECODE_TOLERANCE, HOST)


def _wide(model: Path) -> Iterator[Figure]:
    with _machine("A100-SXM-40GB", 8) as on:
        for tokens, seconds in zip(LENGTHS[1:], WIDE_S, strict=True):
            step = gnomon.predict(model, on=on, phase="decode", context=tokens // 2).time_s.value
            what = f"8 x A100-SXM-40GB, 16 bits: decoding {tokens} tokens"
            yield _figure(what, seconds, tokens * step, "s", DECODE_TOLERANCE)


def _figure(
    what: str, claimed: float, ours: float, unit: str = "", tolerance: float = USUAL_TOLERANCE, note: str = ""
) -> Figure:
    found = Figure(what=what, claimed=claimed, ours=ours, unit=unit, tolerance=tolerance, note=note)
    return replace(found, note="") if found.within else found


def figures() -> Sequence[Figure]:
    with ExitStack() as stack:
        model = stack.enter_context(shapes_file("glm-130b", **SHAPES))
        machines = [(row, stack.enter_context(_machine(row.chip, row.count))) for row in ROWS]
        found = [*_holds(model), *(each for row, on in machines for each in _cells(model, row, on))]
        found += [each for row, on in machines for each in _row(model, row, on)]
        return [*found, *_library(model), *_wide(model)]


EDGE = (
    "Ours fits by 0.7 GB a card with a sequence of 512 tokens, which is within what the reserve is known to (0.9 GB); "
    "with one of 2,048, the longest there is, it does not."
)
FUSED = (
    "FasterTransformer, as its authors changed it, writes matrices out only for more than two rows: a single sequence "
    "multiplies gate and up as they are stored, and others must be read so too, for four bytes and a half a weight "
    "would take 8 RTX 3090 76 ms a token by their data sheet, and 40 are printed."
)
HOST = (
    "The library starts every kernel from Python: in 16 bits, on eight A100, it takes 88 ms a token where "
    "FasterTransformer takes 37, so about 50 ms are the host's, and ours has none of them."
)
STRIDED = (
    "Its kernel that writes matrices out reads them column by column, neighbouring threads a row apart, where ours "
    "streams: the shortest prompts, which are little else, are furthest off."
)
ENCODED = {
    "V100-SXM2-32GB": (
        "At 2,048 tokens eight V100 reach 22% of their 125 TFLOP/s in the table, and 55% by ours, whose products are "
        "lent from an A100. Why theirs reach so little is not known."
    ),
    "RTX-3090": (
        "Cards without direct access to each other sum through the host: at 2,048 tokens 140 sums of 50 MB take 0.5 s "
        "by our figures of the bus, and the products 1.3 s. Which of the two is slower there is not known."
    ),
}
WORKED = (
    "Weights leave 8.6 GB free on each of 4 RTX 3090 and 3.1 GB on each of 8 RTX 2080 Ti. FasterTransformer sets aside "
    "buffers for prompts that no tensor of the network needs, and these are not counted."
)
DERIVATION = Derivation(
    slug="glm-130b",
    kind="predicted",
    setting="GLM-130B, one sequence, each layer cut over all chips of one machine, 128 to 2,048 tokens",
    source=f"{REPOSITORY}, docs/quantization.md (f6e869c) and docs/inference-with-fastertransformer.md",
    assumptions=(
        "Narrow weights are kept with one scale a row, and every product writes its own out in 16 bits first: "
        "the technique dequantize-on-the-fly. Embedding, which is the head too, and norms stay in 16 bits.",
        "Kernels, sums over the cards and what the host adds are those of vLLM as Gnomon prices them, lent from other "
        "chips where a card was not measured.",
        "A plain program holds the weights: all of the card's memory, one sequence, no captured graphs. A machine "
        "holds the network where 512 tokens have room; decoding takes 128 tokens of a prompt at a time.",
        "Decoding so many tokens is as many steps at the mean context; encoding is one prompt of them.",
        "All cards of a machine hang on one host, by PCIe where they have no links of their own.",
    ),
    inputs=(
        Input(name="shapes", value="70 layers, 12,288 channels, 96 heads, gated 32,768, 150,528 words, 2,048 positions",
              source=f"{REPOSITORY}, configs/model_glm_130b.sh"),
        Input(name="machines", value="8 A100-40GB, 4 A100-80GB, 8 and 4 V100-32GB, 8 and 4 RTX 3090, 8 RTX 2080 Ti",
              source=f"{REPOSITORY}, docs/quantization.md"),
        Input(name="what is stored", value="matrices of all layers, one scale a row",
              source=f"{REPOSITORY}, docs/quantization.md, details"),
    ),
    figures=figures,
    techniques=("dequantize-on-the-fly",),
)  # fmt: skip
