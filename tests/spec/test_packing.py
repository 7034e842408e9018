"""Documents packed into sequences, beside the plainest version of each way, and the micro-batches of drawn steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.spec.loads.micro_batches import BatchShape, MicroBatches, dealt_out, micro_batches, zigzag
from gnomon.spec.loads.packing import PackedRows, best_fit_decreasing, first_fit_decreasing, wrapped
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.training import BALANCED, GROUP_BY_LENGTH, NONE, PACKINGS, PADDING_FREE, SAMPLINGS
from gnomon.spec.workload import Ints

DOCUMENTS = st.lists(st.integers(1, 64), min_size=1, max_size=60).map(lambda found: np.array(found, np.int64))
CAPACITY = 64
WAYS = {"bfd": best_fit_decreasing, "ffd": first_fit_decreasing}


def listed(rows: PackedRows) -> list[list[int]]:
    return [part.tolist() for part in np.split(rows.documents, rows.starts[1:])]


def plainly(lengths: Ints, capacity: int, best: bool) -> list[list[int]]:
    """Every document looks at every sequence: the first with room, or the fullest of them."""
    packs: list[list[int]] = []
    for length in sorted(lengths.tolist(), reverse=True):
        fitting = [pack for pack in packs if sum(pack) + length <= capacity]
        if not fitting:
            packs.append([length])
        else:
            (max(fitting, key=sum) if best else fitting[0]).append(length)
    return packs


@pytest.mark.parametrize("way", WAYS)
@given(DOCUMENTS)
@settings(max_examples=examples(100))
def test_packing_is_what_looking_at_every_sequence_gives(way: str, lengths: Ints) -> None:
    found = listed(WAYS[way](lengths, CAPACITY))
    plain = plainly(lengths, CAPACITY, best=way == "bfd")
    assert sorted(map(sum, found)) == sorted(map(sum, plain))
    assert sorted(each for pack in found for each in pack) == sorted(lengths.tolist())
    if way == "ffd":
        assert found == plain


@given(DOCUMENTS)
@settings(max_examples=examples(100))
def test_documents_one_after_the_other_are_cut_where_a_sequence_is_full(lengths: Ints) -> None:
    found, tokens = listed(wrapped(lengths, CAPACITY)), [part for part, each in enumerate(lengths) for _ in range(each)]
    rows = max(len(tokens) // CAPACITY, 1)
    expected = []
    for row in range(rows):
        mine = tokens[row * CAPACITY : (row + 1) * CAPACITY]
        expected.append([mine.count(one) for one in dict.fromkeys(mine)])
    assert found == expected


@given(st.lists(DOCUMENTS, min_size=1, max_size=6), st.sampled_from((1, 2, 3, 4)))
@settings(max_examples=examples(100))
def test_ranks_of_a_zigzag_meet_the_pairs_of_their_tokens(parts: list[Ints], ranks: int) -> None:
    """Token by token, where pieces are whole numbers of tokens."""
    whole = 2 * ranks
    padded = [np.append(part, whole - part.sum() % whole) for part in parts]
    rows = PackedRows(np.concatenate(padded), np.cumsum([0, *(part.size for part in padded[:-1])]))
    for found, part in zip(zigzag(rows, ranks), padded, strict=True):
        seen = np.concatenate([np.arange(1, each + 1) for each in part])
        pieces = seen.reshape(whole, -1).sum(axis=1)
        np.testing.assert_allclose(found, pieces[:ranks] + pieces[: ranks - 1 : -1], rtol=1e-9)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.sampled_from((1, 2, 3)))
@settings(max_examples=examples(100))
def test_dealing_out_gives_each_rank_as_many(work: list[float], ranks: int) -> None:
    seconds = np.repeat(np.array(work), ranks)
    found = dealt_out(seconds, ranks)
    assert sorted(found.ravel().tolist()) == list(range(seconds.size))
    loads = seconds[found].sum(axis=1)
    # No rank is ahead of another by more than the largest piece: the last one that it was given.
    assert loads.max() - loads.min() <= seconds.max() + 1e-9


def drawn(lengths: Lengths | str, packing: str = NONE, **changes: Any) -> MicroBatches:
    given = lengths_of(lengths, "lengths") if isinstance(lengths, str) else lengths
    assert isinstance(given, Lengths)
    known = {name: changes.pop(name) for name in ("sampling", "document_masking", "pads_packs") if name in changes}
    sequences = Sequences(lengths=given, packing=packing, **{"document_masking": True} | known)
    usual = {"seq": 2048, "global_batch": 32, "micro_batch": 2, "share": 8, "pair_cost": 1e-4}
    return micro_batches(sequences, given.identity, BatchShape(**usual | changes))


SPREAD = "lognormal:mean=400,cv=1.5"


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("packing", PACKINGS)
def test_a_step_plainly(packing: str, sampling: str) -> None:
    """Tokens, pairs and work of some drawn steps, sequence by sequence, with nothing lost on the way to the ranks."""
    found = drawn(SPREAD, packing, sampling=sampling)
    rows, step = listed(found.kernel_rows), found.count // found.steps
    for place in range(3 * step):
        mine = [rows[row] for row in found.members[place].tolist()]
        if packing == NONE:
            longest = max(map(sum, mine))
            mine = [[longest] for _ in mine]
        assert found.tokens[place] == sum(map(sum, mine))
        assert found.pairs[place] == sum(each * (each + 1) / 2 for one in mine for each in one)
    ranks = found.on_ranks(4)
    assert ranks.shape == (found.steps, 4, step // 4)
    assert sorted(ranks[1].ravel().tolist()) == list(range(step, 2 * step))
    total = found.nodes.weight @ found.nodes.work
    assert total == pytest.approx(found.work.mean(), rel=1e-9)
    assert found.nodes.weight @ found.nodes.tokens == pytest.approx(found.tokens.mean(), rel=2e-3)


def test_grouping_by_length_is_sorted_within_fifty_batches_of_a_rank() -> None:
    found = drawn(SPREAD, sampling=GROUP_BY_LENGTH)
    tokens = found.rows.tokens[found.members.ravel()]
    part = 50 * found.shape.share
    for begin in range(0, tokens.size, part):
        assert (np.diff(tokens[begin : begin + part]) <= 0).all()
    assert sorted(tokens.tolist()) == sorted(drawn(SPREAD).rows.tokens[drawn(SPREAD).members.ravel()].tolist())


def test_balancing_brings_ranks_together() -> None:
    def apart(found: MicroBatches) -> float:
        work = found.work[found.on_ranks(4)].sum(axis=2)
        return float((work.max(axis=1) / work.mean(axis=1)).mean())

    plain, even = (apart(drawn(SPREAD, PADDING_FREE, sampling=sampling)) for sampling in ("random", BALANCED))
    assert 1 < even < 1 + 0.6 * (plain - 1)


def test_equal_sequences_are_one_micro_batch() -> None:
    for packing in (NONE, PADDING_FREE, "max-length"):
        nodes = drawn(Uniform(low=512, high=512), packing).nodes
        each = 2048 if packing == "max-length" else 512
        assert (nodes.batch.size, nodes.weight.tolist(), nodes.batch.documents) == (1, [1.0], None)
        assert nodes.batch.prefill_pairs.tolist() == [2 * each * (each + 1) / 2]


def test_context_parallel_ranks_share_documents_or_sequences() -> None:
    found = drawn(SPREAD, "wrapped", cp=4)
    assert found.cp_load.min() >= 1
    assert found.cp_load.mean() > 1.05
    np.testing.assert_allclose(found.work, found.tokens + 1e-4 * found.pairs * found.cp_load, rtol=1e-12)
    whole = replace(found.sequences, cuts_documents=True)
    assert (
        MicroBatches(whole, found.shape, found.rows, found.kernel_rows, found.members).cp_load.tolist()
        == [1.0] * found.count
    )


def test_the_same_seed_draws_the_same_steps() -> None:
    one, other = drawn(SPREAD), drawn(SPREAD)
    assert one.members.tolist() == other.members.tolist()
    given = lengths_of(SPREAD, "lengths")
    assert isinstance(given, Lengths)
    reseeded = micro_batches(replace(one.sequences, seed=1), given.identity, one.shape)
    assert reseeded.members.tolist() != one.members.tolist()
