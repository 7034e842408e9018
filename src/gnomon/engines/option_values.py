"""Values of engine settings: numbers and switches from texts, refused in one way under every engine."""

from __future__ import annotations

import math
from typing import Any, Protocol

from gnomon.errors import InputError

TRUE, FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


class NamedOption(Protocol):
    """What a refusal says of a setting."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> type: ...

    @property
    def what(self) -> str: ...


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
