"""`import_plan`: what runs now, as a plan."""

from __future__ import annotations

from pathlib import Path

from gnomon.load.commands.plan import imported_plan
from gnomon.spec import Pool
from gnomon.spec.imported import ImportedPlan
from gnomon.spec.questions.imported import ImportQuestion


def import_plan(
    source: str | Path,
    *,
    on: str | Pool | None = None,
    model: str | None = None,
    dtype: str | None = None,
    lengths: int | str | None = None,
) -> ImportedPlan:
    """The plan of a command that serves or trains, or of a file that holds some: a shell script, a Kubernetes manifest,
    a compose file, or an engine's configuration.

    Nothing in it is run, and no variable is filled in that it does not set itself. `on` names the chips where nothing
    in it does, with a number the chips of all replicas; `model` the known model whose weights they are, and `dtype`
    their format, where the command's own name of them is not known; `lengths` are the tokens of the sequences that a
    training command packs or pads, as `simulate_training` takes them. Every option acts, is in `ignored` with the
    reason, or is refused.
    """
    return answer(ImportQuestion(source=source, on=on, model=model, dtype=dtype, lengths=lengths))


def answer(question: ImportQuestion) -> ImportedPlan:
    """The plan of what a question names."""
    return imported_plan(question)
