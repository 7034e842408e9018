"""Muon: momenta of the layers' matrices made orthogonal, AdamW for all else (Jordan et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.torch.optimizers.base import LEARNING_RATE, UpdateRule
from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy


class Muon(UpdateRule):
    """Every rank has full matrices, or a part of their rows (ZeRO 2 and 3): then ranks trade parts for full matrices,
    each a share of them, and back."""

    name = "muon"
    by_weight = True
    zero = (0, 2, 3)

    def check(self, strategy: Strategy, recipe: Recipe) -> None:
        if strategy.tp > 1:
            message = f"the built-in runner does not cut Muon's matrices over {strategy.tp} tensor-parallel ranks"
            raise InputError(message, where="strategy.tp", hint="Use 1, or --engine megatron.")
        if strategy.ep > 1 and recipe.zero >= 2:
            message = "the built-in runner does not shard Muon's experts over ranks of expert parallelism"
            raise InputError(message, where="engine.settings.zero", hint="Use 0, or an ep of 1.")

    def make(self, masters: Mapping[str, Any], place: Any) -> Any:
        from gnomon.engines.torch.orthogonal import MuonUpdate

        return MuonUpdate(masters, place, LEARNING_RATE)


OPTIMIZERS = (Muon(),)
