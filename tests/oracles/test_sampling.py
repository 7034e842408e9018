"""Sequences grouped by length against transformers' own sampler."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.spec.loads.micro_batches import BatchShape, micro_batches
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.training import GROUP_BY_LENGTH

torch = pytest.importorskip("torch", reason="run `make test-oracles`")
utils = pytest.importorskip("transformers.trainer_pt_utils", reason="run `make test-oracles`")
pytestmark = pytest.mark.oracle


def test_groups_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same order of sequences, grouped by both; theirs puts the longest of all first as well."""
    lengths = Uniform(low=1, high=5000)
    shape = BatchShape(seq=4096, global_batch=64, micro_batch=2, share=16)
    plain = micro_batches(Sequences(lengths=lengths, packing="none"), lengths.text, shape)
    grouped = Sequences(lengths=lengths, packing="none", sampling=GROUP_BY_LENGTH)
    ours = micro_batches(grouped, lengths.text, shape).members.ravel()
    order = plain.members.ravel()
    tokens = plain.rows.tokens[order]
    monkeypatch.setattr(torch, "randperm", lambda size, generator=None: torch.arange(size))
    theirs = utils.get_length_grouped_indices(tokens.tolist(), shape.share)
    found, expected = plain.rows.tokens[ours], tokens[np.array(theirs)]
    assert int((found != expected).sum()) <= 2
    assert sorted(found.tolist()) == sorted(expected.tolist())
