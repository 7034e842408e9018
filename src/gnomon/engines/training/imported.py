"""What reading a training command back shares between engines: options are taken one after another, and what is left
has no effect on a plan, for a reason that the engine's table gives."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnomon.engines.command_line import ALL_ARGUMENTS, Unused, Value, shown, unset
from gnomon.engines.operations import Variable
from gnomon.engines.training.launch import STEPS
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Strategy, TrainingLoad
from gnomon.spec.imported import IgnoredOption

MOST, MOST_TOKENS = 10**12, 10**18
"""No size and no count of a step is larger, nor the tokens of a run."""
UNREAD = Unused(why="not modelled: what it changes is not known here", affects=True)
_NEGATIVE = re.compile(r"-\.?\d.*")
_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off", "none", "null", "")


def read_flags(words: Sequence[str], switches: frozenset[str] = frozenset()) -> dict[str, Value]:
    """Words of a command as options by name, without dashes: `--name value`, `--name=value`, several values, or none.
    The last one counts, as argparse has it. What a script hands on of its own arguments is left out."""
    found: dict[str, Value] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if isinstance(word, Variable) and (word in ALL_ARGUMENTS or not word.startswith("--")):
            continue
        if not is_flag(word):
            raise InputError(f"'{word}' is neither an option nor a value", hint="Quote values that have spaces.")
        name, equals, value = word.lstrip("-").partition("=")
        if equals:
            found[name] = Variable(value) if isinstance(word, Variable) else value
            continue
        behind: list[str] = []
        while at < len(words) and not is_flag(words[at]) and name not in switches:
            behind += [] if isinstance(words[at], Variable) and words[at] in ALL_ARGUMENTS else [words[at]]
            at += 1
        found[name] = True if not behind else behind[0] if len(behind) == 1 else tuple(behind)
    return found


def is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NEGATIVE.fullmatch(word)


def flattened(fields: Mapping[str, Any], before: str = "") -> dict[str, Value]:
    """Fields of a configuration file by their dotted names; values as texts, lists as several."""
    found: dict[str, Value] = {}
    for key, value in fields.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            found |= flattened(value, f"{name}.")
        elif isinstance(value, list):
            found[name] = tuple(map(str, value))
        else:
            found[name] = value if isinstance(value, bool) else "" if value is None else str(value)
    return found


@dataclass(slots=True)
class TrainingOptions:
    """The options of one command or file, taken one after another."""

    values: dict[str, Value]
    unused: Mapping[str, Unused]
    """Why options that nobody takes change nothing; of a family of them, under its name with `*` behind."""
    dashes: str = "--"
    """What stands before a name: `--` of a command, nothing in a file."""
    ignored: list[IgnoredOption] = field(default_factory=list)

    def where(self, name: str) -> str:
        return f"{self.dashes}{name}"

    def take(self, *names: str) -> Value | None:
        """The value of the first of several names that is given, once; nothing where none is."""
        found = None
        for name in names:
            value = self.values.pop(name, None)
            found = value if found is None else found
        return found

    def text(self, *names: str, default: str = "") -> str:
        value = self.take(*names)
        if isinstance(value, Variable):
            raise unset(value, self.where(names[0]))
        if value is None or value is True or value == "":
            return default
        return shown(value)

    def whole(self, *names: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """A whole number. Raises InputError where it is not given and has no default, or is out of its limits."""
        text = self.text(*names)
        if not text and default is None:
            raise InputError("is not given", where=self.where(names[0]), hint="The plan needs it.")
        if not text:
            return default or 0
        plain = text.replace("_", "")
        whole = re.fullmatch(r"[+-]?\d{1,99}", plain)
        if not whole and not re.fullmatch(r"\d{1,99}(?:\.\d{0,99})?[eE]\+?\d{1,2}", plain):
            raise InputError(f"'{text}' is not a whole number", where=self.where(names[0]))
        number = int(plain) if whole else float(plain)
        if number % 1:
            raise InputError(f"'{text}' is not a whole number", where=self.where(names[0]))
        if number < least:
            raise InputError(f"{text} is less than {least}", where=self.where(names[0]))
        if number > most:
            raise InputError(f"{text} is more than {most:,}", where=self.where(names[0]))
        return int(number)

    def number(self, *names: str, default: float) -> float:
        text = self.text(*names)
        if not text:
            return default
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise InputError(f"'{text}' is not a number", where=self.where(names[0]))
        return found

    def share(self, *names: str, default: float) -> float:
        """A number from 0 to 1."""
        found = self.number(*names, default=default)
        if not 0 <= found <= 1:
            raise InputError(f"{found:g} is not between 0 and 1", where=self.where(names[0]))
        return found

    def flag(self, *names: str, default: bool = False) -> bool:
        """A switch, or a value that says whether it is on."""
        value = self.take(*names)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, Variable):
            raise unset(value, self.where(names[0]))
        text = shown(value).lower()
        if text not in (*_TRUE, *_FALSE):
            raise InputError(f"'{text}' is neither true nor false", where=self.where(names[0]))
        return text in _TRUE

    def choice(self, known: Mapping[str, str], *names: str, default: str) -> str:
        """What one of the engine's words stands for."""
        text = self.text(*names)
        if not text:
            return default
        if text not in known:
            raise unknown_name("value", text, tuple(known), where=self.where(names[0]))
        return known[text]

    def ignore(self, option: str, why: str, *, affects: bool) -> None:
        self.ignored.append(IgnoredOption(option=option, why=why, affects=affects))

    def unmodelled(self, option: str, what: str) -> None:
        self.ignore(option, f"not modelled: {what}", affects=True)

    def left(self) -> Iterator[IgnoredOption]:
        """What nobody has taken, with the table's reason."""
        for name, value in self.values.items():
            unused = self.unused.get(name) or self._family(name)
            yield IgnoredOption(option=self.told(name, value), why=unused.why, affects=unused.affects)

    def _family(self, name: str) -> Unused:
        families = [one for one in self.unused if one.endswith("*") and name.startswith(one[:-1])]
        return self.unused[max(families, key=len)] if families else UNREAD

    def told(self, name: str, value: Value) -> str:
        """An option with its value, as it is listed."""
        if isinstance(value, bool) and self.dashes:
            return self.where(name) if value else f"{self.where(name)} false"
        joint = " " if self.dashes else ": "
        return f"{self.where(name)}{joint}{str(value).lower() if isinstance(value, bool) else shown(value)}".strip()


def data_parallel(ranks: int, strategy: Strategy, where: str) -> int:
    """Ranks of data parallelism of so many chips. Raises InputError where degrees do not divide them."""
    if not ranks:
        hint = "Give --on with the chips of all nodes, such as --on H100:64."
        raise InputError("nothing says on how many chips it runs", where=where, hint=hint)
    each = strategy.tp * strategy.pp * strategy.cp
    if ranks % each:
        raise InputError(f"{ranks} chips are not a multiple of the {each} of one replica (tp x pp x cp)", where=where)
    return ranks // each


def load_of(seq: int, global_batch: int, steps: int) -> TrainingLoad:
    """A load of so many steps; a few are a trial of a step, and no length of a run."""
    tokens = float(steps) * seq * global_batch if steps > STEPS else None
    return TrainingLoad(seq=seq, global_batch=global_batch, tokens=tokens)
