"""What scripts of every engine share: comments, and one text for all nodes, no longer for many than for two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gnomon.engines.operations import NodeLayout, Server, Variable

MASTER, RANK = Variable("$MASTER_ADDR"), Variable("$rank")
"""The address of a replica's first node, and the number of a node in its replica."""
_TRAP = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
"""Several servers are stopped together when one of them, or the shell, ends."""


def comment(text: str) -> str:
    """A text that cannot leave the line of its comment, in a shell or in YAML."""
    return "# " + "".join(letter if letter.isprintable() else "?" for letter in text)


class NodeServers(Protocol):
    """Processes of a plan, by node."""

    @property
    def where(self) -> NodeLayout: ...

    def of(self, node: int, rank: str = "") -> list[Server]:
        """The processes of one node; `rank` stands for its number in a replica of several."""


def script_of(found: NodeServers, head: str, notes: Sequence[str] = (), first: Sequence[str] = ()) -> str:
    """The text of `launch.sh`, under a comment that says which plan it starts; notes stand in its header, and lines
    that come `first` before any server."""
    where = found.where
    lines = ["#!/usr/bin/env bash", head, *map(comment, notes), *_how(where), "set -euo pipefail", "", *first]
    lines += _which(where) if where.nodes > 1 else []
    return "\n".join([*lines, *(_one_of_several(found) if where.nodes_each > 1 else _all(found))]) + "\n"


def _how(where: NodeLayout) -> list[str]:
    last = where.nodes - 1
    if where.nodes == 1:
        return []
    if where.nodes_each == 1:
        return [comment(f"On every node: ./launch.sh NODE, with NODE from 0 to {last}.")]
    return [
        comment(f"On every node: {MASTER[1:]}=ADDRESS ./launch.sh NODE, with NODE from 0 to {last}."),
        comment(f"A replica takes {where.nodes_each} nodes; ADDRESS is that of the first of them."),
    ]


def _which(where: NodeLayout) -> list[str]:
    last = where.nodes - 1
    return [
        'node="${1:-}"',
        f'if ! [[ "$node" =~ ^(0|[1-9][0-9]{{0,8}})$ ]] || (( node > {last} )); then',
        f'  echo "usage: $0 NODE, from 0 to {last}" >&2',
        "  exit 2",
        "fi",
    ]


def _all(found: NodeServers) -> list[str]:
    """Servers of a node; all nodes have the same but the last, which may have fewer."""
    full, few = found.of(0), found.where.on_the_last
    if len(full) == 1:
        return [*_shown(full[0]), f"exec {full[0].command}"]
    lines = [_TRAP, *(f"{server.shell} &" for server in full[:few])]
    if full[few:]:
        lines += [f"if (( node < {found.where.nodes - 1} )); then"]
        lines += [*(f"  {server.shell} &" for server in full[few:]), "fi"]
    return [*lines, "wait -n"]


def _one_of_several(found: NodeServers) -> list[str]:
    """The first node of a replica takes its requests, the others work for it."""
    first, other = found.of(0)[0], found.of(1, rank=RANK)[0]
    return [
        f': "${{{MASTER[1:]}:?not set, it is the address of the first node of the replica}}"',
        f"rank=$(( node % {found.where.nodes_each} ))",
        *_shown(first),
        "if (( rank == 0 )); then",
        f"  exec {first.command}",
        "fi",
        f"exec {other.command}",
    ]


def _shown(server: Server) -> list[str]:
    return [f"export {server.assignment}"] if server.assignment else []
