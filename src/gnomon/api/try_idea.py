"""What a paper's technique would gain on a given model and chips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gnomon.api.fit import fit
from gnomon.api.predict import predict
from gnomon.errors import placed
from gnomon.load.objects import checked_pool
from gnomon.load.training import bind_training, named_model
from gnomon.planning.comparison.idea import idea_asked
from gnomon.planning.comparison.serving import compare_serving
from gnomon.spec import Model, Pool
from gnomon.spec.questions.tried import TryQuestion
from gnomon.spec.tried import TechniqueComparison
from gnomon.techniques import SERVING


def try_idea(
    name: str,
    *,
    model: str | Path | Model,
    on: str | Pool,
    seq: int | None = None,
    global_batch: int | None = None,
    batch: int | None = None,
    context: int | None = None,
    optimizer: str | None = None,
    dtype: str | None = None,
    engine: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> TechniqueComparison:
    """Compare a model on its chips with and without a technique, named by a paper's slug or by its own name.

    Training techniques take `seq` and `global_batch`, serving techniques `batch` and `context`.
    """
    question = TryQuestion(
        slug=name, model=model, on=on, seq=seq, global_batch=global_batch, batch=batch, context=context,
        optimizer=optimizer, dtype=dtype, engine=engine,
    )  # fmt: skip
    return answer(question, progress)


def answer(question: TryQuestion, progress: Callable[[int], None] | None = None) -> TechniqueComparison:
    """A question's technique with and without, and whether it helps."""
    one, trial, work = idea_asked(question)
    if isinstance(question.on, Pool):
        checked_pool(question.on, "--on")
    if work == SERVING:
        return compare_serving(one, trial, question, named_model(question.model), fit, predict)
    from gnomon.planning.comparison.training import compare_training

    with placed(question.places()):
        bound = bind_training(question.model, question.on, question.engine or "megatron")
        return compare_training(one, trial, question, bound, progress)
