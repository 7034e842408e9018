"""Servers of a plan with several pools, or with a router: which node each is on, and how the files are called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gnomon.engines.operations import POOL_VARIABLE, Address, Operations, PoolReplica, PoolServer
from gnomon.engines.shell import comment
from gnomon.errors import InputError
from gnomon.export.base import in_other_words, operated
from gnomon.load.chips import chip as find_chip
from gnomon.spec import Plan, PlanPool
from gnomon.spec.plan import BOTH, MOST_SERVERS, ROUTERS

ROUTER_LINE = "Router: "


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPool:
    """A pool of a plan by the name of its files and objects."""

    name: str
    place: int
    pool: PlanPool
    plan: Plan
    """Of this pool alone."""
    router: str

    def environment(self, server: PoolServer) -> dict[str, str]:
        """A server's own variables, and the one that says whose it is."""
        return {POOL_VARIABLE: str(self.place), **server.environment}

    def replica(self, slot: int = 0, devices: Sequence[int] = (), *, reached: bool = False) -> PoolReplica:
        return PoolReplica(
            plan=self.plan, role=self.pool.role, name=self.name, router=self.router,
            slot=slot, devices=tuple(devices), reached=reached,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNode:
    """The servers of a node: of each its pool, by place, and its chips."""

    servers: tuple[tuple[int, tuple[int, ...]], ...]

    def replicas(self, pools: Sequence[NamedPool], *, reached: bool) -> Iterator[tuple[NamedPool, PoolReplica]]:
        for slot, (place, devices) in enumerate(self.servers):
            yield pools[place], pools[place].replica(slot, devices, reached=reached)


def pooled_engine(plan: Plan, engine: str = "") -> Operations:
    """What starts the engine that all pools of a plan share. Raises InputError where they share none."""
    names = dict.fromkeys(pool.engine.name for pool in plan.each_pool)
    if len(names) > 1:
        message = f"pools of {' and '.join(names)} do not serve together in one export"
        raise InputError(message, where="pools", hint="Use one engine.")
    found = [operated(plan.of_pool(pool), engine) for pool in plan.each_pool]
    if len({one.version_of(plan.of_pool(pool)) for one, pool in zip(found, plan.each_pool, strict=True)}) > 1:
        raise InputError("pools have different versions of the engine", where="pools", hint="Use one version.")
    return found[0]


def check_pools(plan: Plan, engine: str = "") -> None:
    """Raise InputError where the engine would not run a pool on its chips, in its format, or has no weights."""
    found = pooled_engine(plan, engine)
    for one in named_pools(plan):
        found.check(one.plan)


def has_router(plan: Plan) -> bool:
    """Whether files of the plan need a router: pools do, and replicas whose requests are not assigned at random."""
    if plan.pools:
        return True
    if plan.replicas < 2 or plan.router == ROUTERS[0]:
        return False
    return operated(plan).layout(plan).nodes_each == 1


def named_pools(plan: Plan) -> list[NamedPool]:
    """All pools, by their role and, where several have it, a number."""
    found = []
    roles = [pool.role for pool in plan.each_pool]
    for place, pool in enumerate(plan.each_pool):
        role = "server" if pool.role == BOTH else pool.role
        number = f"-{roles[: place + 1].count(pool.role)}" if roles.count(pool.role) > 1 else ""
        found.append(
            NamedPool(name=f"{role}{number}", place=place, pool=pool, plan=plan.of_pool(pool), router=plan.router)
        )
    return found


def require_one_node(plan: Plan, engine: Operations) -> None:
    """Refuse replicas over several nodes, and more servers than a router is told of."""
    for place, each in enumerate(named_pools(plan)):
        where = engine.layout(each.plan)
        if where.nodes_each > 1:
            raise InputError(
                f"a replica of {where.ranks} chips does not fit on one node of {where.per_node}, and servers behind a "
                "router are written for one node each",
                where=f"pools[{place}].strategy",
                hint="Plan replicas within a node.",
            )
    count = sum(pool.replicas for pool in plan.each_pool)
    if count > MOST_SERVERS:
        message = f"{count:,} servers are more than the {MOST_SERVERS:,} that a router is told of here"
        raise InputError(
            message, where="replicas", hint="Export a plan of fewer, or put a gateway in front of several."
        )


def nodes_of(plan: Plan, engine: Operations) -> list[SharedNode]:
    """Replicas on nodes in order; pools on one kind of chip share a node where there is room."""
    nodes: list[SharedNode] = []
    room: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    for place, each in enumerate(named_pools(plan)):
        layout = engine.layout(each.plan)
        kind = find_chip(each.pool.chip).name, layout.per_node
        for _ in range(each.pool.replicas):
            if room.get(kind, 0) < layout.ranks:
                room[kind], last[kind] = layout.per_node, len(nodes)
                nodes.append(SharedNode(servers=()))
            first = layout.per_node - room[kind]
            server = place, tuple(range(first, first + layout.ranks))
            room[kind] -= layout.ranks
            nodes[last[kind]] = SharedNode(servers=(*nodes[last[kind]].servers, server))
    return nodes


def alike(nodes: Sequence[SharedNode]) -> list[tuple[int, int, SharedNode]]:
    """Nodes with the same servers that follow one another: the first, the last and one of them."""
    found, at = [], 0
    for node, group in groupby(nodes):
        count = len(list(group))
        found.append((at, at + count - 1, node))
        at += count
    return found


def address_of(each: NamedPool, server: PoolServer, host: str) -> Address:
    return Address(
        role=each.pool.role,
        host=host,
        port=server.port,
        handover_port=server.handover_port,
        weight=each.pool.weight,
    )


def headline(plan: Plan, engine: Operations) -> str:
    """A comment that says which plan a file starts, pool by pool, as `gnomon import` reads it."""
    first = plan.of_pool(plan.each_pool[0])
    if not plan.pools:
        return engine.headline(first)
    chips = " + ".join(
        f"{pool.role} {pool.replicas} x {pool.ranks} {pool.chip}" + (f" weight {pool.weight:g}" * (pool.weight != 1))
        for pool in plan.pools
    )
    name = f"Gnomon plan{f' {plan.id}' if plan.id else ''}: {plan.model} on {chips}"
    return comment(f"{name}, {engine.TITLE} {engine.version_of(first)}")


def router_line(plan: Plan) -> str:
    return comment(f"{ROUTER_LINE}{plan.router}")


def pools_left_out(plan: Plan, engine: Operations) -> list[str]:
    """What the engine's options cannot say of pools, said of single ones where it is not true of all."""
    each = {one.name: _of_one(one, engine) for one in named_pools(plan)}
    lines = dict.fromkeys(line for found in each.values() for line in found)
    said = []
    for line in lines:
        names = [name for name, found in each.items() if line in found]
        said.append(line if len(names) == len(each) else f"{', '.join(names)}: {line}")
    return [*said, *engine.pools_not_expressed(plan)]


def _of_one(one: NamedPool, engine: Operations) -> list[str]:
    return [line for line in engine.not_expressed(in_other_words(one.plan)) if not line.startswith("the router")]
