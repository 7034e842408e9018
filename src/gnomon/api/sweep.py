"""Any question over lists of values, one answer per line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from gnomon.errors import FAULT, GnomonError, InputError
from gnomon.load.files import as_path
from gnomon.load.sweep import Parameters, read_sweep
from gnomon.load.sweep_files import named_files
from gnomon.runner import WorkerDiedError, WorkerStartError, ordered
from gnomon.spec.questions.plans import SweepQuestion
from gnomon.spec.sweep import Sweep, SweepReport, compact
from gnomon.store.sweep_summary import summary
from gnomon.store.sweeps import PARQUET, ROWS, SweepPart, append, check_unchanged, joined, opened, to_parquet

COMMANDS = {
    "predict": "predict",
    "fit": "fit",
    "simulate serve": "simulate_serving",
    "simulate train": "simulate_training",
    "plan serve": "plan_serving",
    "plan train": "plan_training",
    "try": "try_idea",
}
"""Commands and the public functions that answer them."""
INTERNAL = ("progress", "record")
"""Parameters that are no part of a question."""

Progress = Callable[[int, int], None]


def sweep(
    file: str | Path | Mapping[str, Any],
    *,
    out: str | Path,
    jobs: int | None = None,
    ray: str = "",
    shard: str = "",
    join: Sequence[str | Path] = (),
    progress: Progress | None = None,
) -> SweepReport:
    """Ask every question of a sweep and keep the answers, one JSON line each, in the order of the questions.

    `file` is a YAML file or a mapping with its fields: `command`, `fixed` values, and the lists `over` which it goes.
    A refused question is a line with its error. A sweep that was stopped, even by kill -9, resumes where it stopped,
    and asks again what ended in a fault of Gnomon; a finished one is not re-run. It is not resumed over files (traces,
    models, chips, profiles) that have changed since. `out` ends in `.jsonl`, or in `.parquet`, which is made of the
    lines beside it when all are there.

    `jobs` processes share the work, or workers of `ray`: the address of a cluster, or `local`. `shard` is one of
    several parts, `2/4`, each with a file of its own; `join` makes one file of all of them.
    """
    asked = SweepQuestion(file=file, out=out, jobs=jobs, ray=ray, shard=shard, join=join)
    target = as_path(asked.out)
    if target.suffix not in (ROWS, PARQUET):
        hint = f"Call it {target.stem or 'answers'}{ROWS} or {target.stem or 'answers'}{PARQUET}."
        raise InputError(f"'{target.name}' ends in neither {ROWS} nor {PARQUET}", where="--out", hint=hint)
    questions = read_sweep(file, parameters())
    path = target.with_suffix(ROWS)
    part = _part(questions, shard)
    if join:
        _refuse_beside_join({"--jobs": jobs is not None, "--ray": bool(ray), "--shard": bool(shard)})
        joined([as_path(one) for one in join], path, part)
    answers = partial(_answers, part, _jobs(asked.jobs, ray), ray, progress or _silent)
    with opened(path, part, None if join else answers) as begun:
        for line in answers(range(begun.done, len(part)), begun.done):
            append(begun.file, line)
        if begun.repeated or begun.done < len(part):
            check_unchanged(part, named_files(questions), path)
        if target != path:
            to_parquet(path, target)
    return summary(part, path, str(target), begun.done - begun.repeated)


def parameters() -> dict[str, Parameters]:
    """What each command may be given, by the parameters of its public function."""
    found = {}
    for command, name in COMMANDS.items():
        function = getattr(import_module("gnomon"), name)
        hints = get_type_hints(function)
        known = {key: one for key, one in inspect.signature(function).parameters.items() if key not in INTERNAL}
        required = tuple(key for key, one in known.items() if one.default is inspect.Parameter.empty)
        found[command] = Parameters(hints={key: hints[key] for key in known}, required=required)
    return found


def answer(command: str, numbered: tuple[int, Mapping[str, Any]]) -> str:
    """The line of one question."""
    index, question = numbered
    function = getattr(import_module("gnomon"), COMMANDS[command])
    try:
        found = {"answer": function(**question).to_dict()}
    except GnomonError as error:
        found = {"error": _error(error, error.exit_code)}
    except MemoryError:
        found = {"error": _error(GnomonError("out of memory", hint="Ask for less at once."), GnomonError.exit_code)}
    except Exception as error:
        found = {"error": _error(GnomonError(f"{type(error).__name__}: {error}", hint="Please report it."), FAULT)}
    return _line(command, index, question, found)


def _answers(
    part: SweepPart, jobs: int, ray: str, progress: Progress, places: Sequence[int], before: int = 0
) -> Iterator[str]:
    """The lines of some places of a part's file; `before` of them all were there already."""
    if not places:
        return
    command = part.sweep.command
    todo = ((index, part.sweep.question(index)) for index in map(part.index, places))
    lines = ordered(partial(answer, command), todo, jobs=jobs, ray=ray, died=partial(_lost, command))
    try:
        for done, line in enumerate(lines, before + 1):
            yield line
            progress(done, before + len(places))
    except WorkerStartError as error:
        index, question = error.item
        raise WorkerStartError(dict(question), f"question #{index}") from None


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def _lost(command: str, numbered: tuple[int, Mapping[str, Any]]) -> str:
    return _line(command, *numbered, {"error": _error(WorkerDiedError(dict(numbered[1])), FAULT)})


def _line(command: str, index: int, question: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return compact({"index": index, "question": {"command": command} | dict(question)} | dict(found))


def _error(error: GnomonError, code: int) -> dict[str, Any]:
    return {"message": error.message, "where": error.where, "hint": error.hint, "code": code}


def _refuse_beside_join(given: Mapping[str, bool]) -> None:
    for flag, wanted in given.items():
        if wanted:
            raise InputError("joining files computes nothing", where=flag, hint="Leave it out, or leave out --join.")


def _jobs(jobs: int | None, ray: str) -> int:
    """Questions at once; by default one, or on Ray as many as the cluster has CPUs."""
    if jobs is None:
        return 0 if ray else 1
    return jobs


def _part(questions: Sweep, shard: str) -> SweepPart:
    files = named_files(questions)
    if not shard:
        return SweepPart(sweep=questions, files=files)
    number, _, count = shard.partition("/")
    numbers = shard.isascii() and len(shard) < 20 and number.isdecimal() and count.isdecimal()
    if not (numbers and 1 <= int(number) <= int(count) <= len(questions)):
        hint = f"Write 1/4 for the first of four; there are {len(questions):,} questions."
        raise InputError(f"'{shard}' is not a shard of this sweep", where="--shard", hint=hint)
    return SweepPart(sweep=questions, first=int(number) - 1, every=int(count), files=files)
