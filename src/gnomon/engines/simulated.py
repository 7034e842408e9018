"""Which replicas the loads of serving engines are simulated on, as far as engines agree."""

from __future__ import annotations

from gnomon.engines.base import Deployment
from gnomon.errors import InputError


def check_simulated(deployment: Deployment, *, pipelines: bool = False, dense_ranks: str = "") -> None:
    """Raise InputError for replicas whose loads are not simulated.

    pipelines:   whether those of the engine are, where no ranks are data-parallel.
    dense_ranks: what data-parallel ranks of a model without experts are, where they are not simulated.
    """
    strategy = deployment.strategy
    deployment.techniques.check_simulated(deployment)
    if strategy.pp > 1 and not pipelines:
        raise InputError(
            f"a pipeline of {strategy.pp} stages runs several batches at once, which is not simulated",
            where="--pp",
            hint="`gnomon predict` prices one step through it; a load can be simulated with --tp.",
        )
    if strategy.pp > 1 and strategy.dp > 1:
        raise InputError(
            f"a pipeline of {strategy.pp} stages on {strategy.dp} data-parallel ranks is not simulated",
            where="--pp",
            hint="`gnomon predict` prices one step through it; a load can be simulated with --dp or --pp alone.",
        )
    if dense_ranks and strategy.dp > 1 and not deployment.model.is_moe:
        raise InputError(
            f"data-parallel ranks of {deployment.model.name}, which has no experts to share, are {dense_ranks}",
            where="--dp",
            hint="Simulate one of them, with its share of the load; `gnomon plan serve` counts replicas.",
        )
