"""What was fitted to published collectives, by library and link: figures, their error on unseen rows, their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gnomon.catalog.base import DATA
from gnomon.errors import CalibrationError
from gnomon.load.files import read_yaml

FILE = DATA / "collectives.yaml"
SCHEMA = "gnomon.collectives/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """One library on one kind of link. Shares are of the link's bandwidth, seconds are those of small messages."""

    coefficients: Mapping[str, float]
    spread: float
    """Of log(predicted / measured) on operators or sizes set aside."""
    shared: float
    source: str


def link_fit(library: str, link: str) -> LinkFit | None:
    """The fit of a library on a link of that name, if there is one."""
    return link_fits().get(library, {}).get(link)


@cache
def link_fits() -> Mapping[str, Mapping[str, LinkFit]]:
    """Every fit of the shipped file, by library and link."""
    data = read_yaml(FILE)
    if data.get("schema") != SCHEMA:
        raise CalibrationError(f"is '{data.get('schema')}', not {SCHEMA}", where=str(FILE))
    return {library: {link: _fit(found) for link, found in links.items()} for library, links in data["fits"].items()}


def _fit(found: Mapping[str, Any]) -> LinkFit:
    return LinkFit(
        coefficients=found["coefficients"], spread=found["spread"], shared=found["shared"], source=found["source"]
    )
