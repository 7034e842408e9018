"""Does it fit, and if not, what would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.load.deployments import replica_of
from gnomon.planning.memory.decoder import fit_replica
from gnomon.spec import Model, Pool
from gnomon.spec.answers import Fit
from gnomon.spec.questions.step import FitQuestion


def fit(
    model: str | Path | Model,
    *,
    on: str | Pool,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str | None = None,
    tp: int | None = None,
    pp: int = 1,
    ep: int = 1,
    cp: int = 1,
    dp: int = 1,
    context: int | None = None,
    settings: Mapping[str, Any] | None = None,
    techniques: Sequence[str] = (),
) -> Fit:
    """Memory of one rank: whether the model and one sequence of `context` tokens have room beside the engine, which is
    vLLM where it runs the model, else PyTorch.

    Without a tensor-parallel degree the ranks left over by the other degrees share each layer. `techniques` are named
    as in a plan, for plain decoders: `int4-weights:bits=3`.
    """
    return answer(
        FitQuestion(
            model=model, on=on, dtype=dtype, kv_dtype=kv_dtype, engine=engine, tp=tp, pp=pp, ep=ep, cp=cp, dp=dp,
            context=context, settings=settings, techniques=techniques,
        )
    )  # fmt: skip


def answer(question: FitQuestion) -> Fit:
    """The memory of the replica that a question asks for."""
    replica = replica_of(question, question.engine, priced=False)
    return replace(fit_replica(replica, question.context), resolved=replica.resolved)
