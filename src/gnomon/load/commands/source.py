"""A command, or a file that holds some: a shell script, a Kubernetes manifest, a compose file or an engine's own
configuration. Files are told apart by what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.engines import command_readers, operated_engines, training_readers
from gnomon.errors import InputError
from gnomon.load.commands.config_maps import config_maps
from gnomon.load.commands.found import CommandSource, StartedProcess
from gnomon.load.commands.kubernetes import compose_processes, is_compose, is_manifest, manifest_processes, scaled
from gnomon.load.commands.shell import ShellReader
from gnomon.load.commands.variables import ShellVariables
from gnomon.load.files import MIB, as_path, is_file, is_there, parse_toml, parse_yaml, read_text
from gnomon.spec.imported import IgnoredOption
from gnomon.spec.plan import ROUTERS

STRUCTURED = (".yaml", ".yml", ".json", ".toml")
HEADER, ROUTER = "# Gnomon plan", "# Router: "
MOST_TEXT = 100_000
"""Letters of a command."""
MOST_PROCESSES = 10_000
_RULE = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)


def names_a_command(text: str | Path) -> bool:
    """Whether a text is a command, and not the name of a file, a run or a plan."""
    return isinstance(text, str) and len(text.split()) > 1 and not is_file(as_path(text.strip()))


def holds_commands(path: Path) -> bool:
    """Whether a file is one to import, and not a plan or an answer of Gnomon."""
    if path.suffix not in STRUCTURED:
        return True
    return path.suffix != ".json" and "schema: gnomon." not in read_text(path, 4 * MIB)[:MIB]


def read_source(given: str | Path) -> CommandSource:
    """What a command or a file starts. Nothing of it is run."""
    if names_a_command(given):
        if len(str(given)) > MOST_TEXT:
            raise InputError(f"is longer than {MOST_TEXT:,} letters", where="COMMAND")
        return _shell(str(given), "the command")
    path = as_path(given)
    if not str(given).strip() or not (is_there(path) or "/" in str(given) or path.suffix):
        raise InputError(
            f"'{given}' is neither a file nor a command that starts a server",
            hint=f'Quote the command: gnomon import "{_example()}".',
        )
    text = read_text(path, MIB)
    if path.suffix in STRUCTURED:
        return _structured(text, str(path))
    return _shell(text, str(path))


def _example() -> str:
    return next((f"{name} serve MODEL …" for name in operated_engines()), "")


def _shell(text: str, name: str) -> CommandSource:
    variables = ShellVariables()
    processes = []
    for process in ShellReader(name, variables).processes(text):
        processes.append(process)
        if len(processes) > MOST_PROCESSES:
            raise InputError(f"holds more than {MOST_PROCESSES:,} commands", where=name)
    return _source(name, processes, variables, text)


def _source(name: str, processes: list[StartedProcess], variables: ShellVariables, text: str) -> CommandSource:
    header = next((line for line in text.splitlines()[:5] if line.startswith(HEADER)), "")
    why = "its default was taken; the environment may say otherwise"
    taken = [IgnoredOption(option=f"${{{key}:-{value}}}", why=why) for key, value in variables.defaults.items()]
    return CommandSource(
        name=name, processes=tuple(processes), variables=dict(sorted(variables.used.items())), ignored=tuple(taken),
        header=header, router=_router(text) if header else "",
    )  # fmt: skip


def _router(text: str) -> str:
    found = next((line for line in text.splitlines()[:5] if line.startswith(ROUTER)), "")
    name = found.removeprefix(ROUTER).strip()
    return name if name in ROUTERS else ""


def _structured(text: str, name: str) -> CommandSource:
    variables = ShellVariables()
    processes: list[StartedProcess] = []
    documents = list(_documents(text, name))
    maps = config_maps(documents)
    for fields in documents:
        if str(fields.get("schema", "")).startswith("gnomon."):
            hint = "`gnomon compare`, `tune` and `export` take it as it is."
            raise InputError(f"is a file of Gnomon already ({fields['schema']})", where=name, hint=hint)
        if is_manifest(fields):
            processes += manifest_processes(fields, f"{name}, {fields['kind']}", variables, maps)
        elif is_compose(fields):
            processes += compose_processes(fields, name, variables)
        else:
            processes += _configured(fields, name)
    source = _source(name, processes, variables, text)
    return replace(source, ignored=(*source.ignored, *scaled(documents, processes)))


def _documents(text: str, name: str) -> Iterator[Mapping[str, Any]]:
    """The documents of a YAML file, each with the lines that it has in the file; a TOML file is one."""
    if name.endswith(".toml"):
        yield parse_toml(text, name)
        return
    marks = [found.start() for found in _RULE.finditer(text)] if not text.lstrip().startswith("{") else []
    for start, end in zip([0, *marks], [*marks, len(text)], strict=True):
        part = _RULE.sub("", text[start:end], count=1) if start in marks else text[start:end]
        if any(line.strip() and not line.lstrip().startswith("#") for line in part.splitlines()):
            yield parse_yaml("\n" * text.count("\n", 0, start) + part, name)


def _configured(fields: Mapping[str, Any], name: str) -> Iterator[StartedProcess]:
    """The configuration file of an engine."""
    read = {engine: found.config_command(fields) for engine, found in command_readers()}
    known = {engine: command for engine, command in read.items() if command is not None}
    trained = {engine: count for engine, found in training_readers() if (count := found.known_fields(fields))}
    if trained and max(trained.values()) >= max((command.known for command in known.values()), default=0):
        yield StartedProcess(words=(), where=name, trained={max(trained, key=lambda engine: trained[engine]): fields})
        return
    if known:
        first = max(known, key=lambda engine: known[engine].known)
        yield StartedProcess(words=(), where=name, configured={first: known[first]})
        return
    keys = ", ".join(map(str, list(fields)[:3])) or "nothing"
    hint = "Known: Kubernetes manifests, compose files, and an engine's own configuration."
    raise InputError(f"holds no command: its fields are {keys}", where=name, hint=hint)
