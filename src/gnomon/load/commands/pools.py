"""Servers of a command, a script or a manifest by the pool that they are of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.engines import engine_info, operated_engines, operations_of, training_targets
from gnomon.engines.operations import POOL_VARIABLE, ImportedCommand, Operations
from gnomon.errors import InputError
from gnomon.load.commands.found import CommandSource, StartedProcess
from gnomon.load.plan import check_roles
from gnomon.spec.plan import BOTH, ROUTERS

_HEADER = re.compile(r"# Gnomon plan(?: \S+)?: .+? on (.+), \S+ \S+")
_POOL = re.compile(r"(?:(\w+) )?(\d{1,7}) x (\d{1,7}) (.+?)(?: weight ([\d.e+-]{1,20}))?")
"""One pool in the first line of a file that Gnomon wrote: its role, replicas, chips of each, the chip, a weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedServer:
    """A process that an engine has read."""

    process: StartedProcess
    command: ImportedCommand
    engine: Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderPool:
    """A pool as the first line of a file of Gnomon's has it."""

    role: str
    replicas: int
    ranks: int
    chip: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGroup:
    """Servers of one pool, those that take requests first, and what the file's first line says of it."""

    heads: tuple[StartedServer, ...]
    servers: tuple[StartedServer, ...]
    header: HeaderPool | None

    @property
    def first(self) -> StartedServer:
        return self.heads[0]


def header_pools(header: str) -> list[HeaderPool]:
    """The pools that the first line of a file of Gnomon's names; none of another line."""
    found = _HEADER.fullmatch(header)
    pools = [_POOL.fullmatch(text) for text in found[1].split(" + ")] if found else []
    if not pools or not all(pools):
        return []
    return [
        HeaderPool(
            role=pool[1] or BOTH, replicas=int(pool[2]), ranks=int(pool[3]), chip=pool[4], weight=_weight(pool[5])
        )
        for pool in pools
        if pool
    ]


def _weight(text: str | None) -> float:
    try:
        return float(text) if text else 1.0
    except ValueError:
        return 1.0


def groups_of(source: CommandSource, servers: Sequence[StartedServer]) -> list[ServerGroup]:
    """Servers by pool: as their environment says, else those with equal commands on equal chips. Raises InputError
    where they are no pools of one plan."""
    heads = _heads(servers)
    if not servers:
        served = " or ".join(found.TITLE for each in operated_engines() if (found := operations_of(each)))
        trained = " or ".join(info.title for each in training_targets().values() if (info := engine_info(each)))
        raise InputError(f"starts no server of {served}, and no training under {trained}", where=source.name)
    if not heads:
        hint = "Import the command of the node that takes requests."
        raise InputError("starts only processes that work for a server elsewhere", where=source.name, hint=hint)
    keys = [_key(one) for one in heads]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    named = header_pools(source.header)
    groups: list[ServerGroup] = []
    for key in sorted(places, key=lambda key: (key[0], places[key])):
        own = tuple(head for head, its in zip(heads, keys, strict=True) if its == key)
        at = int(key[0]) if key[0] else len(groups)
        header = named[at] if at < len(named) and (len(named) == len(places)) else None
        workers = tuple(one for one in servers if one.command.worker and one.command.same == own[0].command.same)
        groups.append(ServerGroup(heads=own, servers=own + workers, header=header))
    return groups


def _heads(servers: Sequence[StartedServer]) -> list[StartedServer]:
    """Those that take requests; where each process gets its rank from the shell, any of them may."""
    first = [one for one in servers if not one.command.worker]
    return first or [one for one in servers if one.command.any_rank]


def _key(one: StartedServer) -> tuple[str, str, str]:
    place = one.process.environment.get(POOL_VARIABLE, "")
    place = place if re.fullmatch(r"\d{1,4}", place) else ""
    return place, f"{one.command.same}{one.engine.NAME}", one.process.chip


def joined(groups: Sequence[ServerGroup], source: CommandSource, router: str) -> bool:
    """Whether servers that differ are pools of one plan: by their roles, which have to go together, or by a router."""
    roles = [group.first.command.role for group in groups]
    if len(groups) < 2 or (set(roles) == {BOTH} and router not in ROUTERS):
        return False
    if len({(group.first.engine.NAME, group.first.command.model) for group in groups}) > 1:
        return False
    check_roles(roles, source.name)
    return True
