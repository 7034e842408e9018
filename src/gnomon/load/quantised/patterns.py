"""Names of modules against the lists that quantised checkpoints keep of what is left out or meant.

A list holds names (`lm_head`, `model.layers.0.mlp.gate`), which also stand for all that lies below them and may leave
out what stands before them; globs (`*self_attn*`); and regular expressions behind `re:`. The latter come from outside
and some take forever, so only plain ones are let through, and only as many as can be tried in a moment.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from math import comb
from typing import Any

from gnomon.errors import InputError
from gnomon.load.fields import shown

LONGEST = 300
MOST_STEPS = 2e8
NAME_LENGTH = 50
"""About as long as a module's name is, for guessing how long an expression takes."""
_PLAIN = re.compile(
    r"(?:[\w/-]|\\[.dw\\-]|\.|\[[\w\\.-]+\]|[|^$]|\((?:\?:)?|\)(?![*+?{])|(?<=[\w.\]])[*+?])*", re.ASCII
)
_REPEATS = re.compile(r"(?<!\\)[*+?](?!:)")


class Patterns:
    """What a list of names, globs and expressions takes in."""

    def __init__(self, entries: list[Any], where: str, names: int) -> None:
        """`names` is about how many names will be asked for."""
        self.names: set[str] = set()
        self.globs: list[str] = []
        self.expressions: list[re.Pattern[str]] = []
        steps = 0.0
        for entry in entries:
            if not isinstance(entry, str) or not entry or len(entry) > LONGEST:
                raise InputError(f"{shown(entry)} is not the name of a module", where=where)
            if entry.startswith("re:"):
                self.expressions.append(_compiled(entry[3:], where))
                repeats = len(_REPEATS.findall(entry))
                steps += names * comb(NAME_LENGTH + repeats, repeats)
            elif any(letter in entry for letter in "*?["):
                self.globs.append(entry)
                steps += 4 * names * NAME_LENGTH
            else:
                self.names.add(entry)
        if steps > MOST_STEPS:
            raise InputError("holds expressions that would take too long to try", where=where)

    def __contains__(self, name: str) -> bool:
        if any(part in self.names for part in _runs(name)):
            return True
        if any(fnmatchcase(name, form) for glob in self.globs for form in (glob, f"{glob}.*", f"*.{glob}")):
            return True
        return any(expression.match(name) for expression in self.expressions)

    @property
    def numbered(self) -> bool:
        """Whether some layers may be meant and others not."""
        texts = [*self.names, *self.globs, *(expression.pattern for expression in self.expressions)]
        return any(letter.isdigit() or letter == "[" for text in texts for letter in text.replace("[0-9]", ""))


def _runs(name: str) -> list[str]:
    """All runs of a dotted name: `a.b`, `a`, `b`."""
    words = name.split(".")
    return [".".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)]


def _compiled(text: str, where: str) -> re.Pattern[str]:
    if _PLAIN.fullmatch(text):
        try:
            return re.compile(text)
        except re.error:
            pass
    hint = "Supported: letters, dots, .* and alternatives in brackets."
    raise InputError(f"the expression {shown(text)} is not supported", where=where, hint=hint)
