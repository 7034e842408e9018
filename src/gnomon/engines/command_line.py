"""The words of an engine's launch command as flags and values, read as argparse and click read them: `--flag value`,
`--flag=value`, `--no-flag`, abbreviations, several values behind one flag, JSON. What an engine has of these, its
`FlagTable` says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.engines.operations import Variable
from gnomon.errors import InputError, unknown_name

ALL_ARGUMENTS = ("$@", "$*", "${@}", "${*}")
"""What a script hands on of its own arguments."""
_NEGATIVE = re.compile(r"-\d+(\.\d*)?")
Value = str | bool | tuple[str, ...] | dict[str, Any]


def names(text: str) -> tuple[str, ...]:
    """The words of a long list."""
    return tuple(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """Why a flag changes nothing in a plan, and whether it would change what is measured."""

    why: str
    affects: bool


def unused_flags(no_effect: Mapping[str, str], not_modelled: Mapping[str, str]) -> dict[str, Unused]:
    """Flags by name, from lists of them under the reason why no figure depends on them, and under what they do that no
    figure has in it."""
    found = {name: Unused(why=why, affects=False) for why, listed in no_effect.items() for name in listed.split()}
    for what, listed in not_modelled.items():
        found |= {name: Unused(why=f"not modelled: {what}", affects=True) for name in listed.split()}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTable:
    """Every flag of a command, without its dashes, and how its values are written."""

    title: str
    """The engine and its version, as errors name them."""
    known: frozenset[str]
    switches: frozenset[str]
    """Flags without a value."""
    negatable: frozenset[str] = frozenset()
    """Switches that have a `--no-` form."""
    several: frozenset[str] = frozenset()
    """Flags with one or more values behind them."""
    optional: frozenset[str] = frozenset()
    """Flags whose value may be left out."""
    repeated: frozenset[str] = frozenset()
    """Flags that may be given several times."""
    json: frozenset[str] = frozenset()
    """Flags whose value is JSON."""
    json_or_text: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other long names of flags."""
    short: Mapping[str, str] = field(default_factory=dict)
    """Names with one dash."""
    folded: bool = False
    """Whether underscores stand for dashes."""
    abbreviated: bool = True
    """Whether the beginning of a name is enough where only one flag begins so."""
    paired: bool = False
    """Whether `--disable-` stands for `--no-enable-`, and `--enable-` for `--no-disable-`."""
    dotted: bool = False
    """Whether `--flag.key value` is a part of a JSON value."""
    place: bool = True
    """Whether a word that is no flag names the model."""

    def spelled(self) -> list[str]:
        """Every long name."""
        return sorted({*self.known, *self.aliases})


@dataclass(slots=True)
class ReadArguments:
    """Flags by name with their values, the model's place, and what nobody could read."""

    table: FlagTable
    values: dict[str, Value] = field(default_factory=dict)
    model: str = ""
    handed_on: list[str] = field(default_factory=list)
    """Words that stand for arguments of the script."""

    def set(self, name: str, value: Value) -> None:
        before = self.values.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            value = _merged(before, value, f"--{name}")
        elif before is not None and before != value and name not in self.table.repeated:
            twice = f"is given twice, as {_given(name, before)} and {_given(name, value)}"
            raise InputError(twice, where=f"--{name}")
        self.values[name] = value

    def below(self, other: ReadArguments) -> ReadArguments:
        """These, where the other, which comes first, does not say otherwise."""
        values = {**self.values, **other.values}
        return ReadArguments(self.table, values, other.model or self.model, other.handed_on)


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
    return f"--{name} {shown(value)}".rstrip()


def read_arguments(words: Sequence[str], table: FlagTable) -> ReadArguments:
    """The words behind a program's name. Raises InputError for flags that it does not have."""
    found, at = ReadArguments(table), 0
    while at < len(words):
        word = words[at]
        at += 1
        if _is_flag(word):
            at += _flag(found, word, words[at:])
        elif isinstance(word, Variable) and word in ALL_ARGUMENTS:
            found.handed_on.append(word)
        elif isinstance(word, Variable) and (found.model or not table.place):
            raise unset(word, "")
        elif found.model or not table.place:
            model = f", and the model is '{found.model}'" if found.model else ""
            raise InputError(
                f"'{word}' is neither a flag nor a value{model}",
                hint="A plan serves one model; quote values that have spaces.",
            )
        else:
            found.model = word
    return found


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NEGATIVE.fullmatch(word)


def _flag(found: ReadArguments, word: str, rest: Sequence[str]) -> int:
    """Take a flag, and as many of the words behind it as are its values."""
    table = found.table
    name, keys, inline = _split(word, table)
    negated = name.startswith("no-") and name not in table.known
    name = _full_name(name.removeprefix("no-") if negated else name, word, table)
    if (other := _opposite(name, table)) != name:
        name, negated = other, not negated
    if name in table.switches:
        if inline is not None:
            raise InputError(f"takes no value, and '{inline}' is one", where=f"--{name}")
        if negated and name not in table.negatable:
            raise InputError(f"is not a flag of {table.title.partition(' ')[0]}", where=f"--no-{name}")
        found.set(name, not negated)
        return 0
    if negated:
        raise InputError(f"--{name} takes a value and has no --no- form", where=word)
    behind = [inline] if inline is not None else list(_behind(rest, name, table))
    if not behind and name in table.optional:
        found.set(name, "")
        return 0
    if not behind:
        raise InputError("has no value", where=f"--{name}")
    found.set(name, _nested(keys, behind[0]) if keys else _value(name, behind, table))
    return 0 if inline is not None else len(behind)


def _split(word: str, table: FlagTable) -> tuple[str, tuple[str, ...], str | None]:
    """The name, the keys behind its dots, and a value behind `=`."""
    head, equals, tail = word.partition("=")
    inline = (type(word)(tail) if isinstance(word, Variable) and "$" in tail else tail) if equals else None
    name, *keys = head.split(".") if table.dotted else [head]
    named = table.short.get(name, head)
    if head.startswith("--"):
        named = name[2:].replace("_", "-") if table.folded else name[2:]
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
    """The flag, by its own or another name, or the only one that begins so where that is enough."""
    if name in table.known or _opposite(name, table) != name:
        return name
    if name in table.aliases:
        return table.aliases[name]
    if table.abbreviated and word.startswith("--") and name:
        begun = {table.aliases.get(one, one) for one in table.spelled() if one.startswith(name)}
        if len(begun) == 1:
            return begun.pop()
    if isinstance(word, Variable) and "$" in word.partition("=")[0]:
        raise unset(word, "")
    known = [f"--{one}" for one in table.spelled()] if word.startswith("--") else list(table.short)
    raise unknown_name(f"flag of {table.title}", word.partition("=")[0], known)


def unset(word: str, where: str) -> InputError:
    """What a shell would have filled in."""
    return InputError(
        f"'{word}' is filled in by the shell, and nothing here says by what",
        where=where,
        hint="Write its value, or put NAME=VALUE; before the command.",
    )


def _behind(rest: Sequence[str], name: str, table: FlagTable) -> Iterator[str]:
    for word in rest if name in table.several else rest[:1]:
        if _is_flag(word):
            return
        yield word


def _value(name: str, behind: Sequence[str], table: FlagTable) -> Value:
    if name in table.several:
        return tuple(behind)
    (one,) = behind
    if isinstance(one, Variable) or name not in table.json | table.json_or_text:
        return one
    try:
        read = json.loads(one)
    except (ValueError, RecursionError):
        if name in table.json_or_text or not one.lstrip().startswith(("{", "[")):
            return one
        raise InputError(f"'{one}' is not JSON", where=f"--{name}") from None
    return read if isinstance(read, dict) else one


def _nested(keys: Sequence[str], text: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
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


def config_words(fields: Mapping[str, Any], table: FlagTable) -> list[str]:
    """A configuration file as vLLM and SGLang make flags of it (`FlexibleArgumentParser.load_config_file`,
    `ConfigArgumentMerger`)."""
    words: list[str] = []
    for key, value in fields.items():
        named = f"--{key}"
        if isinstance(value, bool):
            bare = _folded(str(key), table) in table.switches | table.optional
            words += ([named] if value else []) if bare else [named, str(value).lower()]
        elif isinstance(value, list):
            words += [named, *map(str, value)] if value else []
        elif isinstance(value, dict):
            words += [named, json.dumps(value, default=str)]
        else:
            words += [named, str(value)]
    return words


def known_fields(fields: Iterable[Any], table: FlagTable) -> int:
    """How many fields of a configuration file are flags."""
    known = {*table.known, *table.aliases}
    return sum(_folded(str(key), table).partition("." if table.dotted else "\0")[0] in known for key in fields)


def _folded(name: str, table: FlagTable) -> str:
    return name.replace("_", "-") if table.folded else name
