"""Any question over lists of values, one answer a line."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from gnomon.errors import GnomonError, InputError
from gnomon.load.files import as_path
from gnomon.load.sweep import Parameters, read_sweep
from gnomon.runner import WorkerDiedError, ordered
from gnomon.spec.key_figures import KEY_FIGURES, KeyFigure
from gnomon.spec.sweep import Sweep, SweepReport, compact, thinned
from gnomon.store.sweeps import PARQUET, ROWS, SweepPart, append, joined, opened, rows, to_parquet
from gnomon.units import parse_whole

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
MOST_ROWS = 1000
"""Of the report; the file has all."""
MOST_ERRORS, MOST_JOBS = 10, 1024
FAULT = 3
"""Exit code of what is nobody's error but ours."""

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
    A question that is refused is a line too. A sweep that was stopped, however that was, goes on where it stopped; a
    finished one is not run again. `out` ends in `.jsonl`, or in `.parquet`, which is made of the lines beside it when
    all are there.

    `jobs` processes share the work, or workers of `ray`: the address of a cluster, or `local`. `shard` is one of
    several parts, `2/4`, each with a file of its own; `join` makes one file of all of them.
    """
    target = as_path(out)
    if target.suffix not in (ROWS, PARQUET):
        hint = f"Call it {target.stem or 'answers'}{ROWS} or {target.stem or 'answers'}{PARQUET}."
        raise InputError(f"'{target.name}' ends in neither {ROWS} nor {PARQUET}", where="--out", hint=hint)
    asked = read_sweep(file, parameters())
    path = target.with_suffix(ROWS)
    part = _part(asked, shard)
    if join:
        _refuse_beside_join({"--jobs": jobs is not None, "--ray": bool(ray), "--shard": bool(shard)})
        joined([as_path(one) for one in join], path, asked)
    with opened(path, part) as (lines, found):
        for done, line in enumerate(_answers(part, found, _jobs(jobs, ray), ray), found + 1):
            append(lines, line)
            if progress is not None:
                progress(done, len(part))
        if target != path and (found < len(part) or not target.exists()):
            to_parquet(path, target)
    return _report(part, path, str(target), found)


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


def answer(command: str, asked: tuple[int, Mapping[str, Any]]) -> str:
    """The line of one question."""
    index, question = asked
    function = getattr(import_module("gnomon"), COMMANDS[command])
    try:
        found = {"answer": function(**question).to_dict()}
    except GnomonError as error:
        found = {"error": _told(error, error.exit_code)}
    except MemoryError:
        found = {"error": _told(GnomonError("out of memory", hint="Ask for less at once."), GnomonError.exit_code)}
    except Exception as error:
        found = {"error": _told(GnomonError(f"{type(error).__name__}: {error}", hint="Please report it."), FAULT)}
    return _line(command, index, question, found)


def _answers(part: SweepPart, found: int, jobs: int, ray: str) -> Iterator[str]:
    """The lines that a file still lacks."""
    if found == len(part):
        return
    asked = part.sweep
    todo = ((index, asked.question(index)) for index in map(part.index, range(found, len(part))))
    yield from ordered(partial(answer, asked.command), todo, jobs=jobs, ray=ray, died=partial(_lost, asked.command))


def _lost(command: str, asked: tuple[int, Mapping[str, Any]]) -> str:
    return _line(command, *asked, {"error": _told(WorkerDiedError(dict(asked[1])), FAULT)})


def _line(command: str, index: int, question: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return compact({"index": index, "question": {"command": command} | dict(question)} | dict(found))


def _told(error: GnomonError, code: int) -> dict[str, Any]:
    return {"message": error.message, "where": error.where, "hint": error.hint, "code": code}


def _refuse_beside_join(given: Mapping[str, bool]) -> None:
    for flag, wanted in given.items():
        if wanted:
            raise InputError(
                "files that are joined are not computed", where=flag, hint="Leave it out, or leave out --join."
            )


def _jobs(jobs: int | None, ray: str) -> int:
    """How many questions at once: one, and of a cluster what it has, where it is not said."""
    if jobs is None:
        return 0 if ray else 1
    return parse_whole(jobs, "--jobs", most=MOST_JOBS)


def _part(asked: Sweep, shard: str) -> SweepPart:
    if not shard:
        return SweepPart(sweep=asked)
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= len(asked)):
        hint = f"Write 1/4 for the first of four; there are {len(asked):,} questions."
        raise InputError(f"'{shard}' is not a part of this sweep", where="--shard", hint=hint)
    return SweepPart(sweep=asked, first=int(number) - 1, every=int(count))


def _report(part: SweepPart, path: Path, out: str, found: int) -> SweepReport:
    """The answers of a finished file at a glance, read line by line."""
    asked, shown = part.sweep, set(thinned(len(part), MOST_ROWS))
    figures = KEY_FIGURES[asked.command]
    kept: list[dict[str, Any]] = []
    extremes: dict[str, dict[str, Any]] = {}
    errors: Counter[str] = Counter()
    first: dict[str, int] = {}
    for place, row in enumerate(rows(path)):
        values = dict(_figures(figures, row.get("answer")))
        if "error" in row:
            errors[row["error"]["message"]] += 1
            first.setdefault(row["error"]["message"], row["index"])
        _keep_extremes(extremes, figures, values, row["index"])
        if place in shown:
            swept = {name: row["question"].get(name) for name in asked.swept}
            kept.append({"index": row["index"], "values": swept, "figures": values, "error": row.get("error")})
    refused = errors.total()
    best = next((extremes[one.name]["best"]["index"] for one in figures if one.name in extremes), None)
    names = ", ".join(asked.swept)
    return SweepReport(
        title=f"{asked.command}: {len(part):,} question{'s' * (len(part) != 1)}{f' over {names}' if names else ''}",
        command=asked.command,
        questions=len(part),
        answered=len(part) - refused,
        refused=refused,
        out=out,
        swept=asked.swept,
        figures=tuple(one.told for one in figures),
        rows=tuple(kept),
        extremes=extremes,
        errors=tuple(
            {"message": message, "count": count, "first": first[message]}
            for message, count in errors.most_common(MOST_ERRORS)
        ),
        best_question={} if best is None else asked.question(best),
        found=found,
    )


def _figures(figures: Sequence[KeyFigure], found: Any) -> Iterator[tuple[str, Any]]:
    for figure in figures:
        value = figure.of(found)
        edges = {key: value.get(key) for key in ("value", "low", "high")} if isinstance(value, dict) else None
        if value is not None:
            yield figure.name, edges or value


def _keep_extremes(
    extremes: dict[str, dict[str, Any]], figures: Sequence[KeyFigure], values: Mapping[str, Any], index: int
) -> None:
    """Note the answer where it is better or worse than all before it."""
    for figure in figures:
        value = values.get(figure.name)
        number = value["value"] if isinstance(value, dict) else value
        if isinstance(number, (bool, str)) or number is None or figure.higher_is_better is None:
            continue
        sides = extremes.setdefault(figure.name, {})
        for side, higher in (("best", figure.higher_is_better), ("worst", not figure.higher_is_better)):
            before = sides.get(side)
            if before is None or (number > before["value"] if higher else number < before["value"]):
                sides[side] = {"index": index, "value": number}
