"""The router in front of servers, and the roles that it gives to those that do not say theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gnomon.engines import operated_engines, operations_of
from gnomon.engines.operations import POOL_VARIABLE, CommandNames, Routing
from gnomon.errors import InputError
from gnomon.load.commands.found import CommandSource, StartedProcess
from gnomon.load.commands.pools import StartedServer, header_pools
from gnomon.spec.imported import IgnoredOption
from gnomon.spec.plan import BOTH, ROUTERS

NamesFor = Callable[[StartedProcess], CommandNames]


def routing_of(source: CommandSource, names: NamesFor) -> Routing:
    """The router that is started in front of the servers, or that a file of Gnomon's names; none where neither is."""
    for process in source.processes:
        for name in operated_engines():
            engine = operations_of(name)
            found = engine.routed_by(process.words, names(process)) if engine else None
            if found is not None:
                return replace(found, router=found.router or source.router)
    return Routing(router=source.router)


def unknown_policy(routing: Routing) -> Iterator[IgnoredOption]:
    """A router whose way to assign requests no plan has."""
    if routing.policy and not routing.router:
        why = f"not modelled: how it assigns requests, which is priced as {ROUTERS[0]}"
        yield IgnoredOption(option=f"the router's policy {routing.policy}", why=why, affects=True)


def with_roles(source: CommandSource, servers: Sequence[StartedServer], routing: Routing) -> Iterator[StartedServer]:
    """Servers with the role that their router gives them where they say none. Raises InputError where the two
    contradict each other, and where a router leaves it open."""
    for server in servers:
        command, told = server.command, _told(server, routing)
        if command.role != BOTH and told and command.role not in told:
            (other,) = told
            raise InputError(
                f"a {command.role} server is a {other} server for its router",
                where=server.process.where,
                hint="List it there under the role that it is started with.",
            )
        if command.role != BOTH or not command.handover:
            yield server
            continue
        role = told.pop() if len(told) == 1 else _of_header(server, source)
        if role:
            yield replace(server, command=replace(command, role=role))
            continue
        if routing.roles:
            raise InputError(
                f"the router's addresses do not say what the server of port {command.port} computes",
                where=server.process.where,
                hint="Import scripts of one node, in which every port is one server's.",
            )
        why = "not modelled without the router's list of servers: priced as one that computes prompts and answers"
        note = IgnoredOption(option=command.handover, why=why, affects=True)
        yield replace(server, command=replace(command, ignored=(*command.ignored, note)))


def _told(server: StartedServer, routing: Routing) -> set[str]:
    """The roles of a router's addresses that may be the server's."""
    name, port = server.process.name, server.command.port
    return {role for address, role in routing.roles.items() if port and _reaches(address, name, port)}


def _reaches(address: str, name: str, port: int) -> bool:
    """Whether an address may be that of a port on this node, or of a pod or a service by its `name`."""
    host, _, at = address.rpartition(":")
    if at.rstrip("/") != str(port):
        return False
    return not name or "$" in host or bool(re.fullmatch(rf"{re.escape(name)}(-\d+)?(\..*)?", host))


def _of_header(server: StartedServer, source: CommandSource) -> str:
    """The role of the server's pool in the first line of a file of Gnomon's."""
    place, pools = server.process.environment.get(POOL_VARIABLE, ""), header_pools(source.header)
    known = re.fullmatch(r"\d{1,4}", place) and int(place) < len(pools)
    role = pools[int(place)].role if known else BOTH
    return role if role != BOTH else ""
