"""Search by words: who must be found first, whatever ending or spelling is typed."""

from __future__ import annotations

import pytest

from gnomon.errors import InputError
from gnomon.papers.answers import search
from gnomon.papers.ranking import index, ranked
from gnomon.papers.stems import stem, words


def first(query: str, count: int) -> list[str]:
    return [paper.slug for paper, _ in ranked(query)[:count]]


FOUND = [
    ("offload optimizer", 3, {"deep-optimizer-states", "zero-offload", "zero-infinity"}),
    ("offload optimizer", 7, {"fuyou", "patrickstar", "zo2", "distzo2"}),
    ("optimiser states in host memory", 5, {"deep-optimizer-states", "zero-infinity", "zero-offload", "patrickstar"}),
    ("disaggregated prefill and decoding", 5, {"nexus", "semi-pd", "splitwise"}),
    ("KV cache", 5, {"infinite-llm", "semi-pd", "fastswitch"}),
    ("mixture of experts offloaded to the CPU", 3, {"hybrimoe", "expertflow"}),
    ("pipeline bubbles", 3, {"gpipe", "vocabulary-parallelism", "skippipe"}),
    ("quantisation to 4 bits", 5, {"gptq", "kurtail"}),
    ("long sequences", 5, {"sequence-parallelism", "flexsp"}),
    ("LoRA serving", 3, {"punica"}),
    ("checkpoints and failures", 3, {"universal-checkpointing", "datastates-llm"}),
    ("power capping", 3, {"polca", "splitwise"}),
    ("graph neural networks", 5, {"lsm-gnn", "gnnpipe", "gpu-oriented-gcn", "pytorch-direct"}),
    ("flash moe", 3, {"flashmoe"}),
    ("disagg", 3, {"nexus", "semi-pd"}),
    ("specualtive decoding", 3, {"dovetail"}),
]


@pytest.mark.parametrize(("query", "count", "expected"), FOUND)
def test_who_is_found(query: str, count: int, expected: set[str]) -> None:
    assert expected <= set(first(query, count))


def test_every_paper_is_found_by_its_name_and_title() -> None:
    for slug in ("megatron-lm", "splitwise", "gptq", "zero-offload", "torchtitan"):
        assert first(slug, 1) == [slug]
    late = [paper.title for paper, _ in ranked("gpu") if first(paper.title, 1) != [paper.slug]]
    assert len(late) <= 2, late


def test_endings_and_spellings_do_not_matter() -> None:
    for one, other in (("optimiser", "optimizers"), ("quantised", "quantization"), ("scheduling", "scheduled")):
        assert stem(one) == stem(other)
    assert stem("optimizer") != stem("optimization")
    assert list(words("The Mixture-of-Experts of a GPU")) == ["moe", "gpu"]


def test_order_and_limit() -> None:
    answer = search("offload optimizer", limit=3)
    scores = [paper["score"] for paper in answer.papers]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert search("xqzvw").papers == ()
    for nothing in ("???", "of the"):
        with pytest.raises(InputError, match="has no searchable word"):
            search(nothing)
    with pytest.raises(InputError, match="WORDS: is empty"):
        search("")
    with pytest.raises(InputError, match="--limit: '0'"):
        search("offload", limit=0)


def test_the_index_is_made_once() -> None:
    index.cache_clear()
    for query in ("offload optimizer", "kv cache", "moe"):
        ranked(query)
    assert index.cache_info().misses == 1


def test_too_many_words_are_refused() -> None:
    words = [f"word{i}" for i in range(65)]
    assert search(" ".join(words[:64])).query
    with pytest.raises(InputError, match=r"WORDS: 65 words are too many for a search\. Use at most 64"):
        search(" ".join(words))


def test_what_only_shares_a_word_is_cut_off() -> None:
    for query in (query for query, *_ in FOUND):
        scores = [score for _, score in ranked(query)]
        assert scores[-1] >= 0.25 * scores[0]
    assert len(ranked("speculative decoding")) < 10
    assert "force-prompting" not in first("prefill decode disaggregation", 50)


def test_papers_that_are_not_about_gpu_systems_rank_below() -> None:
    found = [paper.shelf for paper, _ in ranked("separate prefill and decode on different machines")]
    assert "unrelated" not in found[:4] and first("separate prefill and decode on different machines", 3)[-1] == (
        "splitwise"
    )
