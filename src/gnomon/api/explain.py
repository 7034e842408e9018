"""Breaks an earlier answer down: metric, phase, operator, formula, source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, InputError, unknown_name
from gnomon.report.opened import opened
from gnomon.spec.answers import AnswerNode, Explanation, Prediction
from gnomon.spec.answers.step import MATRICES, backward_name
from gnomon.spec.questions.plans import ExplainQuestion
from gnomon.store import Entry, answer_of


def explain(what: str | Path = "last", *, op: str | None = None) -> Explanation:
    """The answer of a run id, of `last` or of a JSON file, as a tree of formulas and sources; `op` keeps one
    operator."""
    question = ExplainQuestion(what=what, op=op)
    id, where, answer = answer_of(question.what)
    nodes = opened(answer, _typical_step, where)
    names = tuple(dict.fromkeys(node.name for node in _operators(nodes)))
    return Explanation(
        title=str(getattr(answer, "title", "")) or id,
        of=answer.SCHEMA,
        id=id,
        nodes=nodes if op is None else _only(nodes, op, names),
        ops=names,
    )


def can_open(run: Entry) -> bool:
    """Whether a run of the history can be opened."""
    try:
        return bool(opened(run.answer, lambda *_: None, run.where))
    except InputError:
        return False


def _operators(nodes: Iterable[AnswerNode]) -> list[AnswerNode]:
    found: list[AnswerNode] = []
    for node in nodes:
        found += [node] if node.level == "operator" else _operators(node.parts)
    return found


def _only(nodes: Iterable[AnswerNode], op: str, names: tuple[str, ...]) -> tuple[AnswerNode, ...]:
    """Operators of exactly that name, or else those whose name contains it."""
    if not names:
        raise InputError("this answer has no operators", where="--op")
    operators = _operators(nodes)
    wanted = op.strip().lower()
    called = {backward_name(wanted, kind) for kind in ("", *MATRICES)}  # also by its name in earlier versions
    exact = [node for node in operators if node.name.lower() in called]
    near = exact or [node for node in operators if wanted and wanted in node.name.lower()]
    if not near:
        raise unknown_name("operator", op, names, hint=f"Known: {', '.join(names)}.")
    return tuple(near)


def _typical_step(inputs: Mapping[str, Any], batch: int, context: int) -> Prediction | None:
    """The prediction of one decode step of a deployment; None where it cannot be made, or where the model is a script:
    a stored answer never runs code."""
    from gnomon.api.predict import predict
    from gnomon.load.tracing import is_script

    if is_script(inputs["model"]):
        return None
    try:
        step: Callable[..., Prediction] = predict
        return step(**inputs, phase="decode", batch=batch, context=context)
    except GnomonError:
        return None
