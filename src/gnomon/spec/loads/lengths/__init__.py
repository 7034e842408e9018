"""How long prompts and outputs are: one file per distribution. `--input lognormal:mean=1024,cv=1`."""

from __future__ import annotations

from gnomon.errors import unknown_name
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.lengths.empirical import Empirical
from gnomon.spec.loads.lengths.lognormal import Lognormal
from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.units import parse_whole

DISTRIBUTIONS: dict[str, type[Lengths]] = {each.NAME: each for each in (Lognormal, Uniform, Empirical)}


def lengths_of(given: int | str, where: str) -> int | Lengths:
    """Equal lengths, or the distribution that a text describes."""
    if not isinstance(given, str) or not given.strip()[:1].isalpha():
        return parse_whole(given, where)
    name, _, rest = given.strip().partition(":")
    kind = DISTRIBUTIONS.get(name.strip().lower())
    if kind is None:
        hint = f"A number of tokens, or one of {', '.join(DISTRIBUTIONS)}."
        raise unknown_name("distribution of lengths", name.strip(), DISTRIBUTIONS, where=where, hint=hint)
    return kind.read(rest, where)


def mean_of(given: int | Lengths) -> float:
    """Mean tokens."""
    return given.mean_tokens if isinstance(given, Lengths) else float(given)
