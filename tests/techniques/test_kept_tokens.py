"""Decodes that read a part of the cache, and sequences that keep a part of it: bytes and seconds by hand."""

from __future__ import annotations

import pytest

import gnomon
from gnomon.engines import Deployment, Engine
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, Strategy

MODEL, ON, LONG = "llama-3.2-1b", "H100", 60_000
TOKEN_BYTES = 2 * 8 * 64 * 2
"""Keys and values of a layer."""
LAYERS = 16


def deployed(*techniques: str) -> tuple[Engine, Deployment]:
    return deploy(load_model(MODEL), parse_pool(ON), strategy=Strategy(techniques=techniques))


def cached_bytes(*techniques: str, context: int = LONG) -> float:
    engine, deployment = deployed(*techniques)
    ops = engine.graph(deployment).ops
    return sum(op.count * float(op.bytes(Batch.decode(4, context))[0]) for op in ops if "attention.decode" in op.name)


@pytest.mark.parametrize(
    ("text", "tokens"), [("windowed-cache:window=1000,sinks=24", 1024), ("sparse-decode:tokens=512", 512)]
)
def test_decodes_read_what_is_kept_or_picked(text: str, tokens: int) -> None:
    pages = 4 * (LONG + 1) / 16 * (2 * 8 * 64 * 2 + 4 * 32) * LAYERS if text.startswith("sparse") else 0.0
    queries = cached_bytes() - 4 * (LONG + 1) * TOKEN_BYTES * LAYERS
    assert cached_bytes(text) == pytest.approx(4 * tokens * TOKEN_BYTES * LAYERS + queries + pages, rel=1e-3)
    assert cached_bytes(text, context=tokens - 1) >= cached_bytes(context=tokens - 1)


@pytest.mark.heavy
def test_a_load_sees_the_pages_that_are_picked() -> None:
    """At long contexts, where that kernel counts."""
    picked = ["sparse-decode:page=1,tokens=64"]
    step = gnomon.predict(MODEL, on=ON, phase="decode", batch=1, context=LONG + 16, techniques=picked)
    assert next(line for line in step.breakdown if line.op == "attention.decode.pages").time_s.value > 3e-4
    load = gnomon.simulate_serving(MODEL, on=ON, rate=1e-3, input=LONG, output=32, requests=2, techniques=picked)
    assert load.tpot_s["p50"] == pytest.approx(step.time_s.value, rel=0.01)


def test_a_cut_cache_holds_more_sequences_and_a_picked_one_as_many() -> None:
    plain, cut, picked = (
        gnomon.fit(MODEL, on=ON, context=LONG, techniques=each).max_batch
        for each in ([], ["windowed-cache:window=1000"], ["sparse-decode"])
    )
    assert plain and cut and cut > 3 * plain and picked == plain


def test_a_cache_in_pieces_holds_longer_sequences_and_is_read_in_pieces() -> None:
    plain, pieces = (
        gnomon.fit("llama-2-7b", on="A100-40GB", context=4096, techniques=each)
        for each in ([], ["distributed-kv-cache:instances=8"])
    )
    assert plain.max_batch and pieces.max_batch
    assert pieces.max_batch == pytest.approx(8 * plain.max_batch, abs=8)
    engine, deployment = deployed("distributed-kv-cache:instances=8")
    ops = [op for op in engine.graph(deployment).ops if op.name.startswith("attention.decode")]
    batch, small = Batch.decode(4, LONG), 4 * 32 * 64 * 2 * 2 * LAYERS
    (here,) = (op for op in ops if op.name == "attention.decode")
    read = 4 * (LONG + 1) * TOKEN_BYTES * LAYERS / 8
    assert here.count * float(here.bytes(batch)[0]) == pytest.approx(read + small, rel=1e-3)
    sent = {op.name: float(op.bytes(batch)[0]) for op in ops if op is not here}
    assert sent == {"attention.decode.queries": 4 * 7 * 32 * 64 * 2, "attention.decode.partials": 4 * 7 * 32 * 66 * 4}


def test_each_instance_reads_its_share_of_what_is_kept() -> None:
    """A window of the whole context, not one of each piece."""
    pieces, window = "distributed-kv-cache:instances=8", "windowed-cache:window=1000,sinks=24"
    kept, queries = 4 * 1024 * TOKEN_BYTES * LAYERS, cached_bytes() - 4 * (LONG + 1) * TOKEN_BYTES * LAYERS
    sent = cached_bytes(pieces) - 4 * (LONG + 1) * TOKEN_BYTES * LAYERS / 8 - queries
    assert cached_bytes(pieces, window) == pytest.approx(kept / 8 + queries + sent, rel=1e-6)
    both, cut = (
        gnomon.fit("llama-2-7b", on="A100-40GB", context=4096, techniques=each).max_batch
        for each in ([pieces, "windowed-cache:window=1000"], ["windowed-cache:window=1000"])
    )
    assert both and cut and both == pytest.approx(8 * cut, abs=8)


def test_a_cache_in_pieces_keeps_shares_of_sliding_windows() -> None:
    """Every other layer of Gemma 2 attends to the last 4,096 tokens: of those, too, each instance has its share."""
    plain, pieces = (
        gnomon.fit("gemma-2-9b", on="H200", context=8192, techniques=each).max_batch
        for each in ([], ["distributed-kv-cache:instances=4"])
    )
    assert plain and pieces and pieces == pytest.approx(4 * plain, rel=0.01)
