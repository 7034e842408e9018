"""What is compared: a plan or an answer by whatever names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.load.commands.plan import imported_plan
from gnomon.load.commands.source import holds_commands, names_a_command
from gnomon.load.files import MIB, as_path, is_file, read_json
from gnomon.spec import Plan, Pool
from gnomon.spec.answers import Result
from gnomon.spec.imported import ImportedPlan
from gnomon.spec.questions.imported import ImportQuestion
from gnomon.store.plans import resolve_plan
from gnomon.store.runs import entry

PLAN = "plan"
YAML = (".yaml", ".yml")
MOST_BYTES = 64 * MIB

Compared = str | Path | Plan | Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One of those that are compared: its name, the command it is of, and its answer, if it is one."""

    given: Compared
    name: str
    kind: str
    answer: Mapping[str, Any]
    imported: ImportedPlan | None = None
    """What it was read from, where it is a command."""

    @property
    def plan(self) -> Plan:
        if isinstance(self.given, Plan):
            return self.given
        if not isinstance(self.given, Result):
            return resolve_plan(self.given)
        found = getattr(getattr(self.given, "best", self.given), "plan", None)
        if not isinstance(found, Plan):
            raise InputError("the answer holds no plan", where=self.name, hint="Give a plan, or a run's id.")
        return found


def started_plan(given: Compared, on: str | Pool | None) -> ImportedPlan | None:
    """The plan of a command, or of a file that starts one; nothing where a plan or an answer is named."""
    if isinstance(given, (Plan, Result)):
        return None
    path = as_path(given)
    if names_a_command(given) or (is_file(path) and holds_commands(path)):
        return imported_plan(ImportQuestion(source=given, on=on))
    return None


def refuse_chips(on: str | Pool | None, imported: Sequence[ImportedPlan | None]) -> None:
    """Plans and answers have chips of their own."""
    if on is not None and not any(imported):
        hint = "Leave it out, or give a command, a script or a manifest."
        raise InputError("only commands take it, and a plan has chips of its own", where="--on", hint=hint)


def compared_side(given: Compared, place: int, on: str | Pool | None = None) -> ComparedSide:
    if isinstance(given, Plan):
        return ComparedSide(given=given, name=given.id or f"plan {place}", kind=PLAN, answer={})
    if isinstance(given, Result):
        found: Mapping[str, Any] = given.to_dict()
        return ComparedSide(given=given, name=f"answer {place}", kind=_kind(found), answer=found)
    imported = started_plan(given, on)
    if imported is not None:
        name = " ".join(str(given).split())
        return ComparedSide(given=imported.plan, name=name, kind=PLAN, answer={}, imported=imported)
    path = as_path(given)
    if path.suffix in YAML or (path.suffix != ".json" and is_file(path)):
        return ComparedSide(given=given, name=str(given), kind=PLAN, answer={})
    if path.suffix == ".json":
        found = read_json(path, MOST_BYTES)
        return ComparedSide(given=given, name=str(given), kind=_kind(found), answer=found)
    run = entry(str(given))
    return ComparedSide(given=run.id, name=run.id, kind=_kind(run.payload), answer=run.payload)


def _kind(answer: Mapping[str, Any]) -> str:
    """`simulate serve` of `gnomon.simulate.serve/1`."""
    return str(answer.get("schema", "")).removeprefix("gnomon.").partition("/")[0].replace(".", " ")
