"""Long contexts at theoretical peak (Fu 2024): a model of 34 billion at 4K and 50K tokens on one A100."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import gnomon
from gnomon.load import chip
from gnomon.load import model as load_model
from gnomon.papers.base import Derivation, Figure, Input
from gnomon.spec import Chip, Model

PAPER = "arXiv:2405.08944"
CHIP = "A100-SXM-80GB"
TOLERANCE = 0.05
GIGA = 1e9
CONTEXTS = {"4K": 4096, "50K": 50_000}
PREFILL_S, DECODE_S, USERS = {"4K": 0.89, "50K": 14.1}, {"4K": 8.5, "50K": 9.8}, {"4K": 20.0, "50K": 1.0}
CACHE_GB, SWAP_S = 11.0, 1.1
ANSWER = 250
LINK_BYTES_S = 20e9
HALF = 0.5
"""Of the FLOPs of causal attention, what the printed seconds leave for it."""


@cache
def _model() -> Model:
    """Yi-34B-200K has the shapes of Yi-34B and a longer context."""
    return replace(load_model("yi-34b"), max_context=200_000)


def _chip() -> Chip:
    return chip(CHIP)


def _prefill_flops(tokens: int) -> tuple[float, float]:
    """Of matrices, and of causal attention."""
    lines = gnomon.predict(_model(), on=CHIP, phase="prefill", batch=1, tokens=tokens).breakdown
    attention = sum(line.flops for line in lines if line.kind.startswith("attention"))
    return sum(line.flops for line in lines) - attention, attention


def _cache_bytes(tokens: int) -> float:
    """Of one sequence."""
    found: float = gnomon.predict(_model(), on=CHIP, phase="decode", batch=1, context=tokens - 1).memory_parts["kv"]
    return found


def _weight_bytes() -> float:
    found: float = gnomon.fit(_model(), on=CHIP, context=CONTEXTS["4K"]).parts["weights"]
    return found


def _peak() -> Iterator[Figure]:
    """By data sheet alone."""
    card, weights = _chip(), _weight_bytes()
    for name, tokens in CONTEXTS.items():
        matrices, attention = _prefill_flops(tokens)
        seconds = (matrices + HALF * attention) / card.rate("bf16")
        yield _figure(f"prefill of {name}, half of causal attention", PREFILL_S[name], seconds, "s")
    for name, tokens in CONTEXTS.items():
        seconds = ANSWER * (weights + _cache_bytes(tokens)) / card.memory_bandwidth_bytes_s
        yield _figure(f"{ANSWER} tokens after {name}", DECODE_S[name], seconds, "s")
    for name, tokens in CONTEXTS.items():
        users = (card.memory_bytes - weights) // _cache_bytes(tokens)
        yield _figure(f"users of {name} beside the weights", USERS[name], users, "users", note=ROOM)
    held = _cache_bytes(CONTEXTS["50K"])
    yield _figure("cache of 50K", CACHE_GB, held / GIGA, "GB", note=UNIT)
    yield _figure("swap of 50K, out and in", SWAP_S, 2 * held / LINK_BYTES_S, "s", note=UNIT)
    matrices, attention = _prefill_flops(CONTEXTS["50K"])
    seconds = (matrices + attention) / card.rate("bf16")
    yield _figure("prefill of 50K, all of causal attention", PREFILL_S["50K"], seconds, "s", note=CONVENTION)


def _figure(what: str, claimed: float, ours: float, unit: str, note: str = "") -> Figure:
    found = Figure(what=what, claimed=claimed, ours=ours, unit=unit, tolerance=TOLERANCE, kind="identity", note=note)
    return replace(found, note="") if found.within else replace(found, kind="contradiction")


def figures() -> Sequence[Figure]:
    return [*_peak()]


ROOM = (
    "The printed 20 is what 80 GiB leave beside 68 GB of weights at the printed 11 GB a cache of 50K; ours are 68.8 "
    "and 12.3 GB, and whole users."
)
UNIT = "245,760 bytes a token are 12.3 GB for 50,000, or 11.4 GiB, of which 11 are printed."
CONVENTION = (
    "The paper leaves 1.0 PFLOP for attention. Two products over half of all pairs are 4 x 50,000^2 / 2 x 7,168 x 60 = "
    "2.15 PFLOP."
)
DERIVATION = Derivation(
    slug="long-context-peak",
    kind="identity",
    setting="Yi-34B-200K in bf16 on one A100 of 80 GB, one user at a time, 4,096 and 50,000 tokens, answers of 250",
    source=f"{PAPER} as summarised by a third party (app.argminai.com); cache and swap recalled, not read",
    assumptions=(
        "Peak: FLOPs over 312 TFLOP/s, bytes over the card's bandwidth, nothing beside them; bytes and FLOPs are those "
        "of Gnomon's operators, without the table of embeddings and with one row of logits.",
        "Attention is counted by half of its causal FLOPs, tokens squared x channels x layers: what the printed 14.1 s "
        "leave for it. All of it stands beside as a figure of its own.",
        "4K are 4,096 tokens and 50K are 50,000; a user is one sequence; the card has 80 GiB, as its driver says.",
        "What vLLM would take is no figure, for the paper's are bounds: by Gnomon's profile of the chip 1.35 s for the "
        "prefill of 4K (`gnomon predict yi-34b --on A100-SXM-80GB --phase prefill --tokens 4096`) and 27.9 s for 50K "
        "(the same with a context of 200,000), 11.4 and 13.2 s for the answers; it has room for 8 users of 4K (`gnomon "
        "fit yi-34b --on A100-SXM-80GB --context 4096`) and for none of 50K.",
    ),
    inputs=(
        Input(name="shapes", value="60 layers, 7,168 channels, 8 key-value heads of 128",
              source="Yi-34B config.json, gnomon.catalog"),
        Input(name="chip", value="312 TFLOP/s in bf16, 2.04 TB/s, 80 GiB",
              source="NVIDIA A100 80GB data sheet, gnomon.catalog"),
        Input(name="link to the host", value="20 GB/s", source=f"{PAPER}, recalled, not read"),
        Input(name="answer", value="250 tokens", source=f"{PAPER}, as summarised"),
    ),
    figures=figures,
    techniques=("kv-swap",),
)  # fmt: skip
