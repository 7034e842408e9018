"""Opens up an earlier answer: metric, phase, operator, formula, source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.files import read_json
from gnomon.report.nodes import AnswerNode
from gnomon.report.opened import kind_of, opened
from gnomon.spec.answers import Result
from gnomon.store import entry


@dataclass(frozen=True, kw_only=True)
class Explanation(Result):
    """An answer as a tree: each node's value comes from its parts by its formula."""

    SCHEMA = "explain"
    title: str
    of: str
    id: str
    nodes: tuple[AnswerNode, ...]
    ops: tuple[str, ...]
    """Operators that `--op` can open."""


def explain(what: str | Path = "last", *, op: str | None = None) -> Explanation:
    """The answer of a run's id, of `last` or of a JSON file, opened up; `op` keeps the operators of that name."""
    id, payload, path = _payload(what)
    kind = kind_of(payload)
    nodes = opened(kind, payload, _typical_step, id if path else f"run {id}")
    names = tuple(dict.fromkeys(node.name for node in _operators(nodes)))
    return Explanation(
        title=str(payload.get("title", "")) or id,
        of=kind,
        id=id,
        nodes=nodes if op is None else _only(nodes, op, names),
        ops=names,
    )


def _payload(what: str | Path) -> tuple[str, Mapping[str, Any], bool]:
    """The name of an answer, what it holds, and whether it is a file."""
    path = Path(what)
    if isinstance(what, Path) or path.suffix == ".json" or (what != "last" and path.is_file()):
        payload = read_json(path, limit=64 * 1024**2)
        if "error" in payload:
            raise InputError("holds an error, not an answer", where=str(path))
        return str(path), payload, True
    found = entry(str(what))
    return found.id, found.payload, False


def _operators(nodes: Iterable[AnswerNode]) -> list[AnswerNode]:
    found: list[AnswerNode] = []
    for node in nodes:
        found += [node] if node.level == "operator" else _operators(node.parts)
    return found


def _only(nodes: Iterable[AnswerNode], op: str, names: tuple[str, ...]) -> tuple[AnswerNode, ...]:
    """Operators of exactly that name, or else those whose name contains it."""
    if not names:
        raise InputError("this answer has no operators to open", where="--op")
    operators = _operators(nodes)
    wanted = op.strip().lower()
    exact = [node for node in operators if node.name.lower() == wanted]
    near = exact or [node for node in operators if wanted and wanted in node.name.lower()]
    if not near:
        raise unknown_name("operator", op, names, hint=f"Known: {', '.join(names)}.")
    return tuple(near)


def _typical_step(inputs: Mapping[str, Any], batch: int, context: int) -> Mapping[str, Any] | None:
    """The prediction of one decode step of a deployment, as JSON; None where it cannot be made, or the model would be
    code to run: that is taken from the user alone."""
    from gnomon.api.predict import predict
    from gnomon.errors import GnomonError
    from gnomon.load.tracing import is_script

    if is_script(inputs["model"]):
        return None
    try:
        step: Callable[..., Any] = predict
        return dict(step(**inputs, phase="decode", batch=batch, context=context).to_dict())
    except GnomonError:
        return None
