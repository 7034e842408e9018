"""Documents of unequal length as attention meets them: what a batch's sums alone do not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.spec.loads.packing import PackedRows
from gnomon.spec.workload import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Documents:
    """The documents of the micro-batches of a `Batch`, or of the mean of several of them. Lengths are of whole
    documents, whichever ranks they lie on."""

    rows: PackedRows
    row: Ints
    """Sequences that the micro-batches have, one entry for each; a sequence may be in several."""
    at: Ints
    """The micro-batch of each entry."""
    weight: Floats
    """How often it comes there: less than once in a mean."""
    of: Ints
    """The micro-batch that each row of the batch is; several may be the same."""
    longest: Floats
    """Tokens of the longest document of every row."""
    cp_load: Floats
    """Attention of the busiest context-parallel rank over that of the mean one, of every row."""

    def total(self, figure: Callable[[Floats], Floats]) -> Floats:
        """A figure of every document, from its tokens, summed over those of each row."""
        each = self.rows.total(figure(self.rows.documents.astype(float)))
        return np.asarray(np.bincount(self.at, each[self.row] * self.weight)[self.of])

    def take(self, index: Ints) -> Documents:
        """Of some rows of the batch."""
        return replace(self, of=self.of[index], longest=self.longest[index], cp_load=self.cp_load[index])

    @classmethod
    def join(cls, parts: Sequence[Documents]) -> Documents:
        """Of batches one after the other, whose sequences are the same."""
        assert all(one.rows is parts[0].rows for one in parts)
        before = np.cumsum([0, *(int(one.at.max()) + 1 for one in parts[:-1])])
        same = ("row", "weight", "longest", "cp_load")
        columns = {name: np.concatenate([getattr(one, name) for one in parts]) for name in same}
        columns |= {
            name: np.concatenate([getattr(one, name) + base for one, base in zip(parts, before, strict=True)])
            for name in ("at", "of")
        }
        return cls(rows=parts[0].rows, **columns)
