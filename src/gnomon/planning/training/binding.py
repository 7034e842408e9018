"""What the names of a question of training were resolved to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.cost.profile import Profile
from gnomon.engines import TrainingEngine
from gnomon.planning.training.checks import training_dtype
from gnomon.planning.training.packings import check_packing, settled
from gnomon.spec import Model, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import TRAINING, applied


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBinding:
    """A model on chips with their profile, under a training engine. Below it nothing is looked up again."""

    name: str
    """The model as it was asked for."""
    model: Model
    pool: Pool
    engine: TrainingEngine
    profile: Profile
    sequences: Sequences | None = None
    """The lengths of sequences, where they differ."""
    precision: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `spec.training.PRECISION` that every plan of a search has."""

    def load(self, asked: TrainingLoad) -> TrainingLoad:
        """What was asked for, with how the engine makes batches of such sequences."""
        found = settled(replace(asked, sequences=self.sequences), self.engine, self.model)
        check_packing(found, self.engine, self.model)
        return found

    def job(self, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str | None) -> TrainingJob:
        """One way to train it."""
        recipe = replace(recipe, **self.precision)
        return TrainingJob(
            name=self.name,
            model=self.model,
            pool=self.pool,
            strategy=strategy,
            recipe=recipe,
            load=load,
            dtype=dtype or training_dtype(self.model, self.pool.chip),
            techniques=applied(TRAINING, strategy.techniques).values,
            engine=f"{self.engine.name}@{self.engine.version}",
        )
