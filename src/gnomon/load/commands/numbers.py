"""How many servers there are: of what a launcher starts, and of the branches of a script, one of which runs."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.operations import ImportedCommand
from gnomon.errors import InputError
from gnomon.load.commands.found import StartedProcess
from gnomon.load.commands.pools import StartedServer
from gnomon.spec.plan import MOST_SERVERS

Branches = tuple[tuple[int, int], ...]


def launched_servers(process: StartedProcess, command: ImportedCommand, *, joined: bool) -> int:
    """Servers that the tasks of a launcher make: one each, unless they are the nodes of one, or ranks that join."""
    together = command.nodes if command.nodes > 1 else 0
    if process.tasks == 1 or joined or (process.tasks == 0 and together) or (command.any_rank and not together):
        return 1
    if process.tasks == 0:
        hint = "Write the number of its tasks out, or import the server's command alone."
        raise InputError("a server is launched as an unknown number of tasks", where=process.where, hint=hint)
    if together and process.tasks % together:
        message = f"{process.tasks:,} tasks are not servers of {together:,} nodes"
        raise InputError(message, where=process.where, hint="Change the tasks, or the nodes of a server.")
    return process.tasks // together if together else process.tasks


def servers_of(heads: Sequence[StartedServer]) -> int:
    """All servers of a pool. Raises InputError where branches of a script start different numbers of them."""
    return _total([(one.process.branches, one.process.count * one.command.replicas) for one in heads], heads[0])


def _total(counted: Sequence[tuple[Branches, int]], first: StartedServer) -> int:
    total = sum(count for branches, count in counted if not branches)
    choices: dict[int, dict[int, list[tuple[Branches, int]]]] = {}
    for branches, count in counted:
        if branches:
            choice, branch = branches[0]
            choices.setdefault(choice, {}).setdefault(branch, []).append((branches[1:], count))
    for branches_of in choices.values():
        numbers = sorted({_total(inside, first) for inside in branches_of.values()})
        if len(numbers) > 1:
            message = f"its branches start {' or '.join(f'{number:,}' for number in numbers)} servers"
            hint = "Import the commands of the branch that runs."
            raise InputError(message, where=first.process.where, hint=hint)
        total += numbers[0]
    return total


def check_servers(count: int, where: str) -> None:
    """Refuse more servers than a router is told of in an export."""
    if count > MOST_SERVERS:
        hint = "Import a plan of fewer, or put a gateway in front of several."
        raise InputError(f"{count:,} servers are more than {MOST_SERVERS:,}", where=where, hint=hint)
