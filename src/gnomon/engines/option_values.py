"""Values of engine settings: numbers and switches from texts, refused in one way under every engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gnomon.errors import InputError
from gnomon.spec import NotModelled

OVERRIDDEN = "another setting overrides it"
"""Why a setting that acts under every load does not."""
TRUE, FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


class NamedOption(Protocol):
    """What a refusal says of a setting."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> type: ...

    @property
    def what(self) -> str: ...


class UnusedOption(Protocol):
    """What says of a setting whether figures depend on it."""

    @property
    def unmodelled(self) -> str:
        """Why none does, where none does."""

    @property
    def idle(self) -> str:
        """Why those of one answer may not."""

    @property
    def idle_under_load(self) -> str:
        """The same of a simulated load, where it is another reason."""


def not_modelled(
    given: Mapping[str, Any], idle: Sequence[str], options: Mapping[str, UnusedOption], under_load: bool = False
) -> tuple[NotModelled, ...]:
    """Settings among those given, by their full names, that no figure depends on; of those that are `idle`, none of
    one answer, that of a load or of one step."""

    def idly(option: UnusedOption) -> str:
        return option.idle_under_load or option.idle if under_load else option.idle

    shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    why = {name: options[name].unmodelled or (idly(options[name]) if name in idle else "") for name in shown}
    return tuple(NotModelled(option=f"{name}={value}", why=why[name]) for name, value in shown.items() if why[name])


def boolean(option: NamedOption, value: Any) -> bool:
    """A switch, from a text such as `on` or as it is."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in (*TRUE, *FALSE):
        raise bad_value(option, value, "true or false")
    return text in TRUE


def number(option: NamedOption, value: Any) -> float:
    """A finite number, a whole one where the setting counts."""
    wanted = "a whole number" if option.kind is int else "a number"
    try:
        found = float("x" if isinstance(value, bool) else str(value).replace(",", ""))
    except ValueError:
        raise bad_value(option, value, wanted) from None
    if not math.isfinite(found) or (option.kind is int and found != int(found)):
        raise bad_value(option, value, wanted)
    return found


def bad_value(option: NamedOption, value: Any, wanted: str) -> InputError:
    """The refusal of a value that a setting does not take."""
    return InputError(f"'{value}' is not {wanted}", where=f"setting {option.name}", hint=f"It is: {option.what}.")
