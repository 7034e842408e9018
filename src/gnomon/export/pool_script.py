"""A shell script that starts the servers of all pools, and the router in front of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gnomon.engines.operations import Address, Operations, RouterServer, Variable, shell_words
from gnomon.engines.shell import comment
from gnomon.export.base import Rendered, header
from gnomon.export.pools import (
    NamedPool,
    SharedNode,
    address_of,
    alike,
    headline,
    named_pools,
    nodes_of,
    pooled_engine,
    pools_left_out,
    require_one_node,
    router_line,
)
from gnomon.export.routers import router_of
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Plan

_TRAP = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
_END = "END_OF_FILE"
HOSTS = "HOSTS"
"""The variable with the addresses of all nodes."""
LOCAL = "127.0.0.1"


def render(plan: Plan, target: str, warnings: Sequence[str] = ()) -> Rendered:
    """launch.sh of a plan with several pools or a router."""
    engine = pooled_engine(plan, target)
    require_one_node(plan, engine)
    pools, nodes = named_pools(plan), nodes_of(plan, engine)
    router = router_of(plan, engine, list(_addresses(engine, pools, nodes)), reached=len(nodes) > 1)
    left_out = [*pools_left_out(plan, engine), *router.left_out]
    head = [headline(plan, engine), router_line(plan), *map(comment, header(warnings, left_out))]
    lines = ["#!/usr/bin/env bash", *head, *_how(router, len(nodes)), "set -euo pipefail", ""]
    lines += [*(_which(len(nodes)) if len(nodes) > 1 else []), _TRAP]
    lines += [line for group in alike(nodes) for line in _node(engine, pools, group, len(nodes))]
    lines += [*_router(router, len(nodes)), "wait -n"]
    return Rendered(
        files={"launch.sh": "\n".join(lines) + "\n", "plan.yaml": plan_to_yaml(plan)},
        command="bash launch.sh" if len(nodes) == 1 else f'{HOSTS}="ADDRESS …" bash launch.sh NODE',
        engine=engine.NAME,
        version=engine.version_of(pools[0].plan),
        not_expressed=tuple(left_out),
    )


def _addresses(engine: Operations, pools: Sequence[NamedPool], nodes: Sequence[SharedNode]) -> Iterator[Address]:
    """Of every server, pool by pool as the plan has them."""
    found: list[tuple[int, Address]] = []
    for number, node in enumerate(nodes):
        host = Variable(f"${{hosts[{number}]}}") if len(nodes) > 1 else LOCAL
        for each, replica in node.replicas(pools, reached=len(nodes) > 1):
            found.append((pools.index(each), address_of(each, engine.pool_server(replica), host)))
    yield from (address for _, address in sorted(found, key=lambda one: one[0]))


def _how(router: RouterServer, nodes: int) -> list[str]:
    at = comment(f"Requests go to port {router.port}{' of node 0' if nodes > 1 else ''}.")
    if nodes == 1:
        return [at]
    return [
        comment(f'On every node: {HOSTS}="ADDRESS …" ./launch.sh NODE, with NODE from 0 to {nodes - 1}.'),
        comment(f"{HOSTS} are the addresses of all nodes, from 0 on."),
        at,
    ]


def _which(nodes: int) -> list[str]:
    return [
        'node="${1:-}"',
        f'if ! [[ "$node" =~ ^(0|[1-9][0-9]{{0,8}})$ ]] || (( node > {nodes - 1} )); then',
        f'  echo "usage: $0 NODE, from 0 to {nodes - 1}" >&2',
        "  exit 2",
        "fi",
        f'read -r -a hosts <<< "${{{HOSTS}:?not set, they are the addresses of all nodes}}"',
        f"if (( ${{#hosts[@]}} != {nodes} )); then",
        f'  echo "{HOSTS} has ${{#hosts[@]}} addresses, and there are {nodes} nodes" >&2',
        "  exit 2",
        "fi",
        'host="${hosts[node]}"',
    ]


def _node(
    engine: Operations, pools: Sequence[NamedPool], group: tuple[int, int, SharedNode], nodes: int
) -> Iterator[str]:
    """The servers of nodes that are alike."""
    first, last, node = group
    started = [
        (each, replica, engine.pool_server(replica)) for each, replica in node.replicas(pools, reached=nodes > 1)
    ]
    files = {name: text for *_, server in started for name, text in server.files.items()}
    indent = "  " if nodes > 1 else ""
    if nodes > 1:
        yield f"if (( node >= {first} && node <= {last} )); then"
    yield from _written(files, quoted=True)
    for each, replica, server in started:
        visible = engine.servers(each.plan).visible
        chips = {visible: ",".join(map(str, replica.devices))} if visible else {}
        words = [*_assigned(chips | each.environment(server)), shell_words(server.words)]
        yield f"{indent}{' '.join(words)} &"
    if nodes > 1:
        yield "fi"


def _assigned(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        yield f'{name}="{value}"' if isinstance(value, Variable) else f"{name}={shlex.quote(value)}"


def _router(router: RouterServer, nodes: int) -> Iterator[str]:
    if nodes > 1:
        yield "if (( node == 0 )); then"
    yield from _written(router.files, quoted=nodes == 1)
    yield f"{'  ' if nodes > 1 else ''}{shell_words(router.words)} &"
    if nodes > 1:
        yield "fi"


def _written(files: Mapping[str, str], *, quoted: bool) -> Iterator[str]:
    """Here documents; addresses of nodes in them are filled in where they are not quoted."""
    for name, text in files.items():
        end = f"'{_END}'" if quoted else _END
        yield f"cat > {shlex.quote(name)} << {end}"
        yield text.rstrip("\n")
        yield _END
