"""How much of a network a step trains."""

from __future__ import annotations

import numpy as np

from gnomon.engines.training.layer_cost import cut_of, tapes_of
from gnomon.engines.training.stages import Stages, kind_names
from gnomon.planning.training.step import TrainingStep


def trained_parameters(step: TrainingStep) -> float:
    """Parameters with gradients, each counted once however ranks share them out or copy them."""
    found, model = step.figures, step.job.model
    frozen = [found.first_frozen, found.last_frozen, *(kind.frozen for kind in found.chunks.kinds)]
    if not any(np.any(one.bytes(1.0)) for one in frozen):
        return float(model.parameters)
    tapes = tapes_of(model, cut_of(step.job.load.seq, step.job.dtype), step.traits)
    stages = Stages(model)
    counts = np.bincount(stages.order, minlength=len(stages.kinds)).tolist()
    layers = sum(n * tapes[name].parameters for n, name in zip(counts, kind_names(len(counts)), strict=True))
    return float(tapes["embedding"].parameters + layers + tapes["head"].parameters)
