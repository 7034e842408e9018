"""What a script sets itself, filled in where it uses it, and told. Everything else that a shell would fill in stays as
it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gnomon.engines.operations import Variable
from gnomon.load.commands.scan import END, QUOTED_DOLLAR, literal

_EXPANSION = re.compile(f"([${QUOTED_DOLLAR}])([^{END}]*){END}")
_DEFAULT = re.compile(r"\{(\w+):?-(.*)\}", re.DOTALL)
_NAMED = re.compile(r"\{(\w+)\}")
_LIST = re.compile(r"\{(\w+)\[[@*]\]\}")
MOST_WORDS = 10_000


@dataclass(slots=True)
class ShellVariables:
    """Values by name; one that is set to several values, or only sometimes, has none."""

    values: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    used: dict[str, str] = field(default_factory=dict)
    """What was filled in."""
    defaults: dict[str, str] = field(default_factory=dict)
    """What was taken of `${NAME:-default}`."""
    partly: dict[str, str] = field(default_factory=dict)
    """Texts of several words of which some are not known, by the name that is set to each once."""
    arguments: list[str] | None = None
    """Of the function that runs; nothing where it is the script itself, whose arguments nobody knows."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ShellVariables:
        return cls({name: value for name, value in environment.items() if not isinstance(value, Variable)})

    def set(self, name: str, value: str, *, sure: bool = True) -> None:
        known = isinstance(value, Variable) is False and sure
        self.partly.pop(name, None)
        if sure and not known and name not in self.values and len(value.split()) > 1:
            self.partly[name] = str(value)
        if not known or self.values.get(name, value) != value:
            self.unknown.add(name)
        self.values[name] = str(value)

    def forget(self, name: str) -> None:
        self.partly.pop(name, None)
        self.unknown.add(name)

    def shift(self, *, sure: bool) -> None:
        if self.arguments is not None:
            self.arguments = self.arguments[1:] if sure else [Variable("$shifted")]

    def words(self, token: str) -> list[str]:
        """The words that a token stands for: several where a list, or a text with spaces, is filled in unquoted."""
        whole = _EXPANSION.fullmatch(token)
        if whole:
            body = literal(whole[2])
            if body in ("{@}", "{*}") and self.arguments is not None:
                return list(self.arguments)
            listed = _LIST.fullmatch(body)
            if listed and listed[1] in self.lists and listed[1] not in self.unknown:
                self.used[listed[1]] = " ".join(self.lists[listed[1]])
                return list(self.lists[listed[1]])
            value = self._value(body)
            if value is not None and whole[1] == "$":
                return value.split()[:MOST_WORDS]
            if whole[1] == "$" and (several := self.partly.get(_bare(body))):
                return [Variable(word) if "$" in word else word for word in several.split()[:MOST_WORDS]]
        return [self.text(token)]

    def text(self, token: str) -> str:
        """A token as one word; a `Variable` where something in it is not known."""
        missing = False

        def filled(found: re.Match[str]) -> str:
            nonlocal missing
            body = literal(found[2])
            value = self._value(body)
            missing = missing or value is None
            return f"${_bare(body)}" if value is None else value

        text = literal(_EXPANSION.sub(filled, token))
        return Variable(text) if missing else text

    def _value(self, body: str) -> str | None:
        named, default = _NAMED.fullmatch(body), _DEFAULT.fullmatch(body)
        found = named or default
        name = found[1] if found else ""
        if self.arguments is not None and name.isdigit() and name != "0":
            given = self.arguments[int(name) - 1 : int(name)] if len(name) < 5 else []
            if given and given[0]:
                return None if isinstance(given[0], Variable) else given[0]
            if named:
                return ""
        if name and name in self.values and name not in self.unknown:
            self.used[name] = self.values[name]
            return self.values[name]
        if default and name not in self.unknown and not re.search(r"[$`]", default[2]):
            self.defaults[default[1]] = _unquoted(default[2])
            return self.defaults[default[1]]
        return None


def _bare(body: str) -> str:
    """`$NAME` for `${NAME}`; anything else as it was."""
    named = _NAMED.fullmatch(body)
    return named[1] if named else body


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def environment_of(pairs: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping."""
    split = (pair.partition("=") for pair in pairs)
    return {name: value for name, equals, value in split if equals}
