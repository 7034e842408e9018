"""Weights of all layers in a few bits, whichever way GEMMs read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.base import ServingCase
from gnomon.spec import Format
from gnomon.spec.narrowed import in_format, narrowed
from gnomon.techniques.base import SERVING, Rejection, Technique, Values

SCALE_BITS = 16.0


class NarrowWeights(Technique[ServingCase]):
    """Matrices of all layers in a few bits; embedding, head, norms and routers keep their format."""

    work = (SERVING,)
    changes = frozenset({"weight bytes", "precision"})

    def format(self, values: Values) -> Format:
        raise NotImplementedError

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        name = self.format(values).name
        yield case.dtype not in (None, name), f"the weights' dtype is set to {case.dtype}, not {name}"

    def rewrite(self, case: ServingCase, values: Values) -> ServingCase:
        format = self.format(values)
        model = in_format(case.model, case.pool.chip.half) if case.model.dtype == "fp32" else case.model
        return replace(case, model=narrowed(model, format), dtype=format.name)
