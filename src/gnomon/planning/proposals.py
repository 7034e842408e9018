"""Proposals of an error's hint, each tried first: one that would be refused too is not shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

from gnomon.errors import GnomonError
from gnomon.graph.gemm_recipes import GEMM_RECIPES
from gnomon.spec import Pool
from gnomon.spec.questions import Question

DEGREES = {"--tp": "tp", "--pp": "pp", "--vp": "vp", "--cp": "cp", "--ep": "ep"}
PROPOSES = ("Use ", "The nearest ", "Possible ", "Lower ", "It divides ")
"""How hints that propose values begin."""
PARTS = "--pp x --vp"
CHIPS = "chips"
LOADS = {"--seq": "seq", "--global-batch": "global_batch", "--micro-batch": "micro_batch"}
FORMATS = ("bf16", "fp16", "fp8", "fp32")
NEAR, FAR = 8, 1024
"""Neighbouring degrees that are tried, and the largest divisor or power of two."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")

Options = Mapping[str, Any]
Works = Callable[[Options], bool]
"""Whether a step is possible with some options changed."""


def tried(check: Callable[[Options], object], chips: Callable[[int], Any]) -> Works:
    """Whether `check` accepts changed options; a number of `chips` is passed as `on`."""

    def works(other: Options) -> bool:
        try:
            check({("on" if name == CHIPS else name): chips(n) if name == CHIPS else n for name, n in other.items()})
        except GnomonError:
            return False
        return True

    return works


def mend_degrees(error: GnomonError, pool: Pool, asked: Options, check: Callable[[Options], object]) -> None:
    """Keep in the hint of a serving error the degrees, or numbers of chips, that `check` accepts."""
    if error.where not in (*DEGREES, "--on") or not error.hint.startswith(PROPOSES):
        return
    works = tried(check, pool.resized)
    if error.where == "--on":
        error.hint = _counts(error.hint, pool, works)
    elif asked[DEGREES[error.where]] is None:  # the degree follows from the chips, which were given
        error.where, near = "--on", _near(pool.count, pool.count)
        found = _either_side(near, pool.count, lambda n: bool(named(pool, n)) and works({CHIPS: n}))
        error.hint = _use([*_flags(error.hint, works), *(f"--on {named(pool, n)}" for n in found)])
    else:
        error.hint = _degrees(DEGREES[error.where], pool, asked, works)


def _flags(hint: str, works: Works) -> list[str]:
    """Degrees that a hint names with their flags, as `--ep 8`."""
    named = re.findall(r"--(tp|pp|ep|cp) (\d+)", hint)
    return [f"--{name} {degree}" for name, degree in named if works({name: int(degree)})]


def _counts(hint: str, pool: Pool, works: Works) -> str:
    """Numbers of chips that a hint names, by themselves or as `H100:8`."""
    counts = dict.fromkeys(int(number) for number in re.findall(r"(?:\A|[ :])(\d+)(?=[ ,.]|\Z)", hint))
    return _use(f"--on {on}" for count in counts if (on := named(pool, count)) and works({CHIPS: count}))


def mend(error: GnomonError, pool: Pool, asked: Question, check: Callable[[Options], object]) -> None:
    """Keep in the hint of a training error the proposals that `check` accepts."""
    works, where = tried(check, pool.resized), error.where
    degrees = {name: getattr(asked, name) for name in (*DEGREES.values(), "dp")}
    if where == "--dtype":
        error.hint = _use(dtype for dtype in dict.fromkeys((*FORMATS, *GEMM_RECIPES)) if works({"dtype": dtype}))
    elif where in DEGREES and error.hint.startswith("Use "):
        error.hint = _degrees(DEGREES[where], pool, degrees, works)
    elif where == PARTS:
        ways = {flag: _degrees(DEGREES[flag], pool, degrees, works) for flag in ("--pp", "--vp")}
        error.hint = " ".join(hint.replace("Use ", f"Use {flag} ") for flag, hint in ways.items() if hint)
    elif where in LOADS and error.hint.startswith("Use "):
        found = [int(number) for number in _NUMBER.findall(error.hint.replace(",", ""))]
        kept = [number for number in found if works({LOADS[where]: number})]
        error.hint = error.hint if len(kept) == len(found) else _use(kept)
    elif where in ("--on", "--dp") and error.hint.startswith("Use "):
        error.hint = _chips(error.hint, pool, works, degrees["dp"])


def named(pool: Pool, count: int) -> str:
    """So many of a pool's chips as a value of `--on`; empty where a cluster file has fewer."""
    return pool.resized(count).words if not pool.file or count <= pool.count else ""


def _chips(hint: str, pool: Pool, works: Works, dp: int | None) -> str:
    counts = [int(number) for number in re.findall(r":(\d+)", hint)]
    more = _use(f"--on {on}" for count in counts if (on := named(pool, count)) and works({CHIPS: count}))
    less = "Leave --dp out." if dp is not None and works({"dp": None}) else ""
    return " ".join(filter(None, [more, less]))


def _degrees(name: str, pool: Pool, asked: Options, works: Works) -> str:
    """The next lower and the next higher degree that is possible, on these chips or else on as many as it takes."""
    value = 1 if asked[name] is None else int(asked[name])
    near = _near(value, pool.count)
    here = _either_side(near, value, lambda n: works({name: n}))
    if here:
        return _use(here)
    taken = prod(int(asked[degree] or 1) for degree in ("tp", "pp", "cp", "dp") if degree != name)
    counts = {n: taken * (n if name in ("tp", "pp", "cp") else 1) for n in near}
    places = {n: named(pool, count) for n, count in counts.items()}
    there = _either_side(near, value, lambda n: bool(places[n]) and works({name: n, CHIPS: counts[n]}))
    return _use(f"{n} on {places[n]}" for n in there)


def _near(value: int, chips: int) -> list[int]:
    """Degrees to try: close to the requested one, divisors of the chips, and powers of two."""
    dividing = {n for n in range(1, min(FAR, chips) + 1) if chips % n == 0}
    powers = {2**n for n in range(FAR.bit_length())}
    return sorted(dividing | powers | set(range(max(1, value - NEAR), value + NEAR + 1)))


def _either_side(values: list[int], around: int, works: Callable[[int], bool]) -> list[int]:
    below = next((n for n in reversed(values) if n < around and works(n)), None)
    above = next((n for n in values if n > around and works(n)), None)
    return [n for n in (below, above) if n is not None]


def _use(values: Iterable[Any]) -> str:
    told = " or ".join(str(value) for value in values)
    return f"Use {told}." if told else ""
