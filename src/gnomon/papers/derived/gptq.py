"""GPTQ (Frantar et al. 2022): OPT-175B in three bits on one GPU, and how much sooner its tokens come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import gnomon
from gnomon.load import model as load_model
from gnomon.papers.base import Derivation, Figure, Input
from gnomon.spec import Model
from gnomon.spec.answers import Fit

PAPER = "arXiv:2210.17323"
CONFIG = {
    "model_type": "opt",
    "architectures": ["OPTForCausalLM"],
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "hidden_size": 12288,
    "word_embed_proj_dim": 12288,
    "ffn_dim": 49152,
    "num_attention_heads": 96,
    "num_hidden_layers": 96,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "torch_dtype": "float16",
}
TOKENS, LONGEST = 128, 2048
THREE, FOUR = ("int4-weights:bits=3,group=0",), ("int4-weights:group=0",)
PLAIN = {"gpu_memory_utilization": 1.0, "max_num_seqs": 1, "max_num_batched_tokens": LONGEST, "enforce_eager": True}
GIB, MILLI = 1024.0**3, 1e-3
CARDS = {"A100-SXM-80GB": (5, 1, 230.0, 71.0, 3.24), "RTX-A6000": (8, 2, 589.0, 130.0, 4.53)}
"""GPUs in 16 bits and in three, milliseconds a token in each, and how much sooner."""
MOST = 16
SIZE_TOLERANCE = 0.02
"""Of identities: what printed sizes are rounded by."""
DECODE_CLAIM, GPUS_CLAIM = {"A100-SXM-80GB": 2, "RTX-A6000": 3}, {"A100-SXM-80GB": 4}
"""Which of the entry's claims a card's figures stand for."""


@cache
def _model() -> Model:
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        return load_model(folder)


def _fit(chip: str, stages: int, techniques: Sequence[str]) -> Fit:
    return gnomon.fit(
        _model(), on=f"{chip}:{stages}", tp=1, pp=stages, context=LONGEST, settings=PLAIN, techniques=techniques
    )


def _fewest(chip: str, techniques: Sequence[str]) -> int:
    """GPUs in a row that hold the weights and the cache of one sequence of the longest."""
    return next((n for n in range(1, MOST) if _fit(chip, n, techniques).fits), MOST)


def _token_ms(chip: str, stages: int, techniques: Sequence[str]) -> float:
    """One token at the middle of the answer."""
    found = gnomon.predict(
        _model(), on=f"{chip}:{stages}", tp=1, pp=stages, phase="decode", context=TOKENS // 2, techniques=techniques
    )
    return found.time_s.value / MILLI


def _memory() -> Iterator[Figure]:
    chip = "A100-SXM-80GB"
    parts = _fit(chip, 1, THREE).parts
    cache_bytes = gnomon.predict(
        _model(), on=f"{chip}:5", tp=1, pp=5, phase="decode", context=LONGEST - 1, batch=1
    ).memory_parts["kv"]
    yield _size("weights in three bits", 63.0, parts["weights"] / GIB)
    yield _size("cache of 2,048 tokens", 9.0, cache_bytes / GIB)
    fits = float(_fit(chip, 1, FOUR).fits)
    yield Figure(what="four bits fit one A100-80GB (1 for yes)", claimed=0.0, ours=fits, tolerance=0.0,
                 kind="identity")  # fmt: skip


def _size(what: str, claimed: float, ours: float) -> Figure:
    """Bytes of the shapes alone."""
    return Figure(what=what, claimed=claimed, ours=ours, unit="GiB", tolerance=SIZE_TOLERANCE, kind="identity")


def _times() -> Iterator[Figure]:
    for chip, (wide, narrow, wide_ms, narrow_ms, sooner) in CARDS.items():
        ours = _token_ms(chip, wide, ()), _token_ms(chip, narrow, THREE)
        speed = _figure(f"{chip}, three bits: sooner by", sooner, ours[0] / ours[1], "x", note=KERNEL)
        yield replace(speed, claim=DECODE_CLAIM[chip])
        yield _figure(f"{chip}, 16 bits on {wide}: a token", wide_ms, ours[0], "ms")
        yield _figure(f"{chip}, three bits on {narrow}: a token", narrow_ms, ours[1], "ms", note=KERNEL)
        for words, claimed, techniques in (("16", wide, ()), ("three", narrow, THREE)):
            gpus = _figure(f"{chip}: GPUs in {words} bits", claimed, _fewest(chip, techniques), "GPUs", tolerance=0.0)
            yield replace(gpus, claim=GPUS_CLAIM.get(chip, 0))


def _figure(what: str, claimed: float, ours: float, unit: str = "", tolerance: float = 0.10, note: str = "") -> Figure:
    found = Figure(what=what, claimed=claimed, ours=ours, unit=unit, tolerance=tolerance, note=note)
    return replace(found, note="") if found.within else found


def figures() -> Sequence[Figure]:
    return [*_times(), *_memory()]


KERNEL = (
    "The paper's kernel reads its 66.6 GB of weights at 0.94 TB/s on this card, 46% of the data sheet; ours are priced "
    "by weight-only products that were measured there later, at 1.1 TB/s. 16-bit products agree."
)
DERIVATION = Derivation(
    slug="gptq",
    kind="predicted",
    setting="OPT-175B, one sequence, 128 tokens generated, layers in a row over as many GPUs as hold them",
    source=f"{PAPER}, table 6 and practical speedups, stored public copy",
    assumptions=(
        "Layers stand in a row on the GPUs, each working while the others wait, as in the paper's own runs; what goes "
        "from one to the next, and what the host adds, are vLLM's.",
        "One token is priced at the middle of the answer and stands for all 128.",
        "A plain program holds the weights: all of the card's memory, one sequence, no captured graphs. GPUs are the "
        "fewest that hold weights and a cache of 2,048 tokens.",
        "Rows have one scale each, as in the paper's tables; products read three bits and the scales of groups of 128, "
        "4% more. Embedding and head stay in 16 bits.",
        "Printed GB are taken as GiB: 2,048 tokens leave 9.66 GB, of which 9 are printed.",
    ),
    inputs=(
        Input(name="shapes", value="96 layers, 12,288 channels, 96 heads, 49,152 inner channels, 50,272 tokens",
              source="OPT paper (arXiv:2205.01068), table 1; vocabulary and positions of OPT-66B, gnomon.catalog"),
        Input(name="GPUs", value="5 and 1 A100-80GB, 8 and 2 A6000", source=f"{PAPER}, table 6"),
        Input(name="load", value="one sequence, 128 tokens", source=f"{PAPER}, practical speedups"),
    ),
    figures=figures,
    techniques=("int4-weights",),
    missing="About four GPU hours to quantise: rounding a network layer by layer is no job that Gnomon prices.",
)  # fmt: skip
