"""Clusters of papers, a YAML file each: the mechanisms of Gnomon that they need, and the words of their page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import Fields
from gnomon.load.files import read_yaml
from gnomon.papers.base import STATES, Mechanism, Paper, PaperCluster
from gnomon.papers.expected import one_of, texts, words

HERE = Path(__file__).parent


@cache
def clusters() -> dict[str, PaperCluster]:
    """All clusters by name."""
    return {path.stem: _cluster(path) for path in sorted(HERE.glob("*.yaml"))}


@cache
def mechanisms() -> dict[str, Mechanism]:
    """All mechanisms by name."""
    found: dict[str, Mechanism] = {}
    for cluster in clusters().values():
        for one in cluster.mechanisms:
            if one.name in found:
                where = f"papers/clusters/{cluster.name}.yaml"
                raise InputError(f"'{one.name}' is in {found[one.name].cluster} too", where=where)
            found[one.name] = one
    return found


def mechanism(name: str) -> Mechanism:
    if name not in mechanisms():
        raise unknown_name("mechanism", name, mechanisms())
    return mechanisms()[name]


def clusters_of(paper: Paper) -> tuple[str, ...]:
    """The clusters of a paper's mechanisms, its own first."""
    return tuple(dict.fromkeys(mechanism(name).cluster for name in paper.mechanisms))


def _cluster(path: Path) -> PaperCluster:
    where = f"papers/clusters/{path.name}"
    given = Fields(read_yaml(path), where)
    inner = given.inner("mechanisms")
    found = PaperCluster(
        name=path.stem,
        title=given.text("title"),
        summary=given.text("summary").strip(),
        idea=words(given, "idea"),
        when=words(given, "when"),
        picture=given.raw("picture"),
        mechanisms=tuple(_mechanism(name, inner.inner(name), path.stem) for name in inner.items()),
    )
    given.done()
    return found


def _mechanism(name: str, given: Fields, cluster: str) -> Mechanism:
    state: Any = one_of(given, "state", STATES)
    return Mechanism(name=name, cluster=cluster, state=state, **texts(given, ("what", "note")))
