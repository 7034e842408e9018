"""What the public functions return. `to_dict()` is the JSON of the same command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from gnomon.spec.plan_dict import as_json

if TYPE_CHECKING:
    from gnomon.spec.cluster import Pool
    from gnomon.spec.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class NotModelled:
    """Something that was given and has no effect on the answer, and why."""

    option: str
    """As it was written: `launch=graph`, `--seed 3`, `field spot`."""
    why: str


SHEET = ("memory_bandwidth_bytes_s", "price_usd_h")
"""Figures of a chip, beside its rates, whose sources an answer repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What the names in a question were resolved to, as far as its report needs it: nothing is looked up again."""

    model_dtype: str = ""
    """The format that the model comes in, and runs in where none is asked for."""
    model_context: int = 0
    """Tokens of the longest sequence it is made for."""
    chip: str = ""
    reference: str = ""
    """What finds the chip again: its name, or its file."""
    file: str = ""
    """The cluster's file that the chips are from."""
    count: int = 0
    """Chips that were named; of a cluster's file all it has, where no part of it is asked for."""
    memory_bandwidth_bytes_s: float = 0.0
    rates_flops: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    """Of the chip's bandwidth, rates and price."""

    @classmethod
    def of(cls, model: Model | None, pool: Pool) -> Resolved:
        chip = pool.chip
        shown = {name for name in chip.sources if name in SHEET or name.startswith("rates_flops.")}
        return cls(
            model_dtype=model.dtype if model else "",
            model_context=model.max_context if model else 0,
            chip=chip.name,
            reference=chip.reference,
            file=pool.file,
            count=pool.count,
            memory_bandwidth_bytes_s=chip.memory_bandwidth_bytes_s,
            rates_flops=dict(chip.rates_flops),
            sources={name: text for name, text in chip.sources.items() if name in shown},
        )


UNKNOWN = Resolved()
"""Of an answer that an earlier version stored."""


REPORT = "gnomon.report"
"""The package that shows answers. It knows all of them and is imported when one is first shown, so that nothing here
depends on it. It has `render(answer)`, `in_a_line(answer)`, and in `html` `document(answer)` and
`fragment(answer)`."""


class Result:
    """A command's answer. Subclasses are frozen dataclasses; every public field is in the JSON.

    `str()` is the text that the command prints, `repr()` a line, `to_html()` a page, and a notebook shows tables and
    plots. A part of an answer, which has no schema of its own, has the line alone. `not_modelled`, where an answer has
    it, lists what was given and has no effect on it, with the reason.
    """

    SCHEMA: ClassVar[str] = ""
    HIDDEN: ClassVar[frozenset[str]] = frozenset()

    @property
    def schema(self) -> str:
        """The name of its JSON; empty for a part of an answer."""
        return f"gnomon.{self.SCHEMA}/1" if self.SCHEMA else ""

    def __init_subclass__(cls) -> None:
        """Keep `dataclass` from giving the class a `repr` with all its fields."""
        super().__init_subclass__()
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __str__(self) -> str:
        text: str = import_module(REPORT).render(self) if self.schema else repr(self)
        return text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({import_module(REPORT).in_a_line(self)})"

    def to_html(self, *, command: str = "") -> str:
        """One page that needs nothing beside it, with the JSON inside; the same answer gives the same bytes.

        `command` is what the answer was asked with, as the page is to show it.
        """
        if not self.schema:
            raise TypeError(f"{type(self).__name__} is a part of an answer and has no page of its own")
        page: str = import_module(f"{REPORT}.html").document(self, command=command)
        return page

    def _repr_html_(self) -> str | None:
        """What a notebook shows below a cell."""
        found: str | None = import_module(f"{REPORT}.html").fragment(self) if self.schema else None
        return found

    def to_dict(self) -> dict[str, Any]:
        names = [name for name in self.__dataclass_fields__ if name not in self.HIDDEN]  # type: ignore[attr-defined]
        head = {"schema": self.schema} if self.schema else {}
        return head | {name: as_json(getattr(self, name)) for name in names}


@dataclass(frozen=True, kw_only=True)
class JsonAnswer(Result):
    """An answer that is known by its JSON alone: a list, or what a runner wrote."""

    content: Mapping[str, Any]
    """All of it, with its schema."""

    @property
    def schema(self) -> str:
        return str(self.content.get("schema", ""))

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = as_json(self.content)
        return plain
