"""The words of a `vllm serve` command as flags and values, as vLLM's own parser reads them: underscores for dashes,
`--flag=value`, `--no-flag`, abbreviations, `--json.key value`, several values behind one flag."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.engines.operations import Variable
from gnomon.engines.vllm.arguments import JSON_OR_TEXT, ONE_WAY, OPTIONAL, REPEATED, SHORT, TABLE, FlagTable
from gnomon.errors import InputError, unknown_name

ALL_ARGUMENTS = ("$@", "$*", "${@}", "${*}")
"""What a script hands on of its own arguments."""
_NEGATIVE = re.compile(r"-\d+(\.\d*)?")
_LEVEL = re.compile(r"-O=?(\w+)")
Value = str | bool | tuple[str, ...] | dict[str, Any]


@dataclass(slots=True)
class ReadArguments:
    """Flags by name with their values, the model's place, and what nobody could read."""

    values: dict[str, Value] = field(default_factory=dict)
    model: str = ""
    handed_on: list[str] = field(default_factory=list)
    """Words that stand for arguments of the script."""

    def set(self, name: str, value: Value) -> None:
        before = self.values.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            value = _merged(before, value, f"--{name}")
        elif before is not None and before != value and name not in REPEATED:
            twice = f"is given twice, as {_given(name, before)} and {_given(name, value)}"
            raise InputError(twice, where=f"--{name}")
        self.values[name] = value

    def below(self, other: ReadArguments) -> ReadArguments:
        """These, where the other, which comes first, does not say otherwise."""
        return ReadArguments({**self.values, **other.values}, other.model or self.model, other.handed_on)


def shown(value: Value) -> str:
    """A value as a command has it."""
    if isinstance(value, dict):
        return json.dumps(value)
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _given(name: str, value: Value) -> str:
    return option_text(name, value) if isinstance(value, bool) else shown(value)


def option_text(name: str, value: Value) -> str:
    """A flag with its value."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {shown(value)}"


def read_arguments(words: Sequence[str], table: FlagTable = TABLE) -> ReadArguments:
    """The words behind `vllm serve`. Raises InputError for flags that a release of vLLM does not have."""
    found, at = ReadArguments(), 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("-") and word != "-" and not _NEGATIVE.fullmatch(word):
            at += _flag(found, word, words[at:], table)
        elif isinstance(word, Variable) and word in ALL_ARGUMENTS:
            found.handed_on.append(word)
        elif found.model and isinstance(word, Variable):
            raise unset(word, "")
        elif found.model:
            raise InputError(
                f"'{word}' is neither a flag nor a value, and the model is '{found.model}'",
                hint="A plan serves one model; quote values that have spaces.",
            )
        else:
            found.model = word
    return found


def _flag(found: ReadArguments, word: str, rest: Sequence[str], table: FlagTable) -> int:
    """Take a flag, and as many of the words behind it as are its values."""
    name, keys, inline = _split(word)
    negated = name.startswith("no-") and name not in table.known
    name = _full_name(name.removeprefix("no-") if negated else name, word, table)
    if (other := _opposite(name, table)) != name:
        name, negated = other, not negated
    if name in table.switches:
        if inline is not None:
            raise InputError(f"takes no value, and '{inline}' is one", where=f"--{name}")
        if negated and name in ONE_WAY:
            raise InputError("is not a flag of vLLM", where=f"--no-{name}")
        found.set(name, not negated)
        return 0
    if negated:
        raise InputError(f"--{name} takes a value and has no --no- form", where=word)
    behind = [inline] if inline is not None else list(_behind(rest, name, table))
    if not behind and name in OPTIONAL:
        behind = [""]
        found.set(name, "")
        return 0
    if not behind:
        raise InputError("has no value", where=f"--{name}")
    value = _value(name, behind, table)
    found.set(name, _nested(keys, behind[0]) if keys else value)
    return 0 if inline is not None else len(behind)


def _split(word: str) -> tuple[str, tuple[str, ...], str | None]:
    """The name with dashes, the keys behind its dots, and a value behind `=`."""
    level = _LEVEL.fullmatch(word)
    if level:
        return "optimization-level", (), level[1]
    head, equals, tail = word.partition("=")
    inline = (type(word)(tail) if isinstance(word, Variable) and "$" in tail else tail) if equals else None
    name, *keys = head.split(".")
    named = name[2:].replace("_", "-") if head.startswith("--") else SHORT.get(name, "" if name == "-O" else head)
    return named, tuple(key.removesuffix("+") for key in keys), inline


def _opposite(name: str, table: FlagTable) -> str:
    """The switch that a flag of a pair turns off: `--disable-lora` is `--no-enable-lora`; else the flag itself."""
    if name in table.known or not table.paired:
        return name
    for one, other in (("disable-", "enable-"), ("enable-", "disable-")):
        if name.startswith(one) and other + name.removeprefix(one) in table.switches:
            return other + name.removeprefix(one)
    return name


def _full_name(name: str, word: str, table: FlagTable) -> str:
    """The flag, or the only one that begins so, which vLLM takes too."""
    name = table.other_names.get(name, name)
    if name in table.known or _opposite(name, table) != name:
        return name
    if word == "-O":
        return "optimization-level"
    begun = [one for one in sorted(table.known) if one.startswith(name)] if word.startswith("--") and name else []
    if len(begun) == 1:
        return begun[0]
    if isinstance(word, Variable) and "$" in word.partition("=")[0]:
        raise unset(word, "")
    shown_word = word.partition("=")[0]
    known = [f"--{one}" for one in sorted(table.known)] if word.startswith("--") else list(SHORT)
    raise unknown_name(f"flag of {table.title}", shown_word, known)


def unset(word: str, where: str) -> InputError:
    """What a shell would have filled in."""
    return InputError(
        f"'{word}' is filled in by the shell, and nothing here says by what",
        where=where,
        hint="Write its value, or put NAME=VALUE; before the command.",
    )


def _behind(rest: Sequence[str], name: str, table: FlagTable) -> Iterator[str]:
    for word in rest if name in table.several else rest[:1]:
        if word.startswith("-") and word != "-" and not _NEGATIVE.fullmatch(word):
            return
        yield word


def _value(name: str, behind: Sequence[str], table: FlagTable) -> Value:
    if name in table.several:
        return tuple(behind)
    (one,) = behind
    if isinstance(one, Variable) or name not in table.json | JSON_OR_TEXT:
        return one
    try:
        read = json.loads(one)
    except (json.JSONDecodeError, RecursionError):
        if name in JSON_OR_TEXT or not one.lstrip().startswith(("{", "[")):
            return one
        raise InputError(f"'{one}' is not JSON", where=f"--{name}") from None
    return read if isinstance(read, dict) else one


def _nested(keys: Sequence[str], text: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        value = text
    for key in reversed(keys):
        value = {key: value}
    found: dict[str, Any] = value
    return found


def _merged(one: Mapping[str, Any], other: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = dict(one)
    for key, value in other.items():
        before = found.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = _merged(before, value, f"{where}.{key}")
        elif key in found and before != value:
            raise InputError(f"is given twice, as {before} and {value}", where=f"{where}.{key}")
        found[key] = value
    return found


def config_words(fields: Mapping[str, Any]) -> list[str]:
    """A configuration file as vLLM makes flags of it (`FlexibleArgumentParser.load_config_file`)."""
    words: list[str] = []
    for key, value in fields.items():
        if isinstance(value, bool):
            words += [f"--{key}"] if value else []
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            words += [f"--{key}", json.dumps(value, default=str)]
        else:
            words += [f"--{key}", str(value)]
    return words
