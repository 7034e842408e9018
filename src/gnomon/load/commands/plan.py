"""The plan of what a command, a script or a manifest starts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gnomon.engines import command_readers, engine, operations_of
from gnomon.engines.operations import CommandReader, EngineCommand, ImportedCommand, Operations, Variable
from gnomon.errors import GnomonError, InputError
from gnomon.graph.lower import check_degrees
from gnomon.graph.support import unpriced
from gnomon.load.chips import chip as find_chip
from gnomon.load.commands.found import CommandSource, StartedProcess
from gnomon.load.commands.names import NamesOf, folder_of, reference, total_chips
from gnomon.load.commands.numbers import check_servers, launched_servers, servers_of
from gnomon.load.commands.pools import ServerGroup, StartedServer, groups_of, joined
from gnomon.load.commands.roles import routing_of, unknown_policy, with_roles
from gnomon.load.commands.shell import require_counted
from gnomon.load.commands.source import read_source
from gnomon.load.commands.trained import imported_training
from gnomon.load.fleet import parse_pool
from gnomon.load.plan import check_format, plan_pool, planned_pool
from gnomon.spec import EngineChoice, Model, Plan, PlanPool, Pool, Strategy
from gnomon.spec.imported import IgnoredOption, ImportedPlan
from gnomon.spec.plan import BOTH, ROUTERS
from gnomon.spec.questions.imported import ImportQuestion

FIELDS = (("model", "model"), ("strategy", "degrees"), ("dtype", "weights"), ("kv_dtype", "cache"),
          ("settings", "settings"), ("version", "version"), ("nodes", "nodes"))  # fmt: skip


def imported_plan(question: ImportQuestion) -> ImportedPlan:
    """The plan that a question's source starts, with all that it has no place for."""
    if question.dtype:
        check_format(question.dtype, "--dtype")
    source = read_source(question.source)
    names = NamesOf(folder=folder_of(question.source), known=question.model or "", dtype=question.dtype or "")
    if (trained := imported_training(question, source, names)) is not None:
        return trained
    if question.lengths is not None:
        message = "only commands that train have sequences of such lengths, and this one serves"
        raise InputError(message, where="--lengths", hint="Leave it out.")
    routing = routing_of(source, lambda process: replace(names, files=process.files))
    servers = list(with_roles(source, list(_servers(source, names)), routing))
    groups = groups_of(source, servers)
    if not joined(groups, source, routing.router):
        groups = [_one_deployment(source, servers, groups)]
    first, pools, notes = groups[0].first, [], [*source.ignored, *unknown_policy(routing)]
    for group in groups:
        pool, chip_notes = _pool(question, source, group)
        replicas, count_notes = _replicas(question, group, pool, several=len(groups) > 1)
        pools.append(_plan_pool(group, pool, replicas))
        notes += [*chip_notes, *count_notes, *(one for each in group.servers for one in each.command.ignored)]
    _check_total(question, pools)
    check_servers(sum(pool.replicas for pool in pools), source.name)
    plan = _plan(pools, names, first, routing.router)
    notes += _alone(plan, first)
    for each in pools:
        _check(plan.of_pool(each), names.model(first.command.model))
    used = _used(source, servers)
    return ImportedPlan(
        title=_title(plan, first.engine.TITLE),
        plan=plan,
        ignored=tuple(dict.fromkeys(notes)),
        variables={name: value for name, value in source.variables.items() if name in used or not used},
        command=_written(first.engine, plan.of_pool(pools[0])),
    )


def _used(source: CommandSource, servers: Sequence[StartedServer]) -> set[str]:
    """Variables whose values stand in the words of a server."""
    words = " ".join(word for server in servers for word in server.process.words)
    return {name for name, value in source.variables.items() if value and value in words}


def _servers(source: CommandSource, names: NamesOf) -> Iterator[StartedServer]:
    for process in source.processes:
        for name, reader in command_readers():
            command, found = _own(reader, name, process), operations_of(name)
            if found is None or command is None:
                continue
            require_counted(process)
            with _placed(process.where):
                read = reader.import_command(command, replace(names, files=process.files))
                count = process.count * launched_servers(process, read, joined=command.joined)
                yield StartedServer(process=replace(process, count=count), command=read, engine=found)
            break


def _own(found: CommandReader, name: str, process: StartedProcess) -> EngineCommand | None:
    if process.configured:
        return process.configured.get(name)
    command = found.own_command(process.words, "" if process.program else process.image)
    if command is None:
        return None
    return replace(command, image=process.image or command.image, environment=process.environment)


class _placed:
    """Errors in here say which process they are about."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        plain = isinstance(error, GnomonError) and self._where != "the command" and not error.where.startswith("--m")
        if isinstance(error, GnomonError) and plain and self._where not in error.where:
            error.where = ", ".join(filter(None, [self._where, error.where]))


def _one_deployment(
    source: CommandSource, servers: Sequence[StartedServer], groups: Sequence[ServerGroup]
) -> ServerGroup:
    """The servers' common deployment. Raises InputError where they have none."""
    heads = [one for group in groups for one in group.heads]
    first = heads[0]
    for other in heads[1:]:
        if other.command.same != first.command.same or other.engine.NAME != first.engine.NAME:
            field, word = next(pair for pair in (*FIELDS, ("", "engines")) if _differ(first, other, pair[0]))
            one, two = (_shown(each, field) for each in (first, other))
            message = f"starts servers with different {word if word.endswith('s') else f'{word}s'}, {one} and {two}"
            hint = "Replicas of a plan are equal, unless a router or their roles join them: import one of the commands."
            raise InputError(message, where=source.name, hint=hint)
    return ServerGroup(heads=tuple(heads), servers=tuple(servers), header=groups[0].header)


def _differ(one: StartedServer, other: StartedServer, field: str) -> bool:
    return not field or getattr(one.command, field) != getattr(other.command, field)


def _shown(server: StartedServer, field: str) -> str:
    value: Any = getattr(server.command, field) if field else server.engine.TITLE
    if field == "strategy":
        return _degrees(value) or "TP 1"
    return ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else f"{value}"


def _degrees(strategy: Strategy) -> str:
    """`TP 4, PP 2`: degrees above one."""
    degrees = {name: getattr(strategy, name) for name in ("tp", "pp", "dp", "ep", "cp")}
    return ", ".join(f"{name.upper()} {degree}" for name, degree in degrees.items() if degree > 1)


def _ranks(command: ImportedCommand) -> int:
    return replace(command.strategy, cp=1).ranks


def _pool(
    question: ImportQuestion, source: CommandSource, group: ServerGroup
) -> tuple[Pool, tuple[IgnoredOption, ...]]:
    """The chips of one replica, by what says it first: the user, a node selector, the header of Gnomon's own files."""
    first, header = group.first, group.header
    ranks, selected = _ranks(first.command), first.process.chip
    if question.on is not None:
        pool = parse_pool(question.on)
        unlike = selected and not _same_chip(selected, pool)
        why = "--on names other chips"
        notes = (IgnoredOption(option=f"node selector {selected}", why=why, affects=True),) if unlike else ()
        return pool, notes
    if not selected and not header:
        hint = "Give --on, such as --on H100 or --on H100:8 for all replicas."
        raise InputError("nothing says which chips it runs on", where=source.name, hint=hint)
    named = selected or (header.chip if header else "")
    try:
        chip = find_chip(named, first.process.where if selected else source.name)
    except GnomonError as error:
        error.hint = f"{error.hint} --on CHIP says which it is.".strip()
        raise
    return planned_pool(chip, 0, ranks), ()


def _same_chip(selected: str, pool: Pool) -> bool:
    try:
        return find_chip(selected).name == pool.chip.name
    except GnomonError:
        return False


def _replicas(
    question: ImportQuestion, group: ServerGroup, pool: Pool, *, several: bool
) -> tuple[int, tuple[IgnoredOption, ...]]:
    heads, header = group.heads, group.header
    ranks = _ranks(heads[0].command)
    if header and header.ranks == ranks and not heads[0].process.counted:
        counted = header.replicas
    else:
        counted = servers_of(heads)
    notes = tuple(_chip_counts(heads))
    total = total_chips(question.on)
    if not total or several:
        return counted, notes
    said = any(one.process.counted for one in heads) or counted > 1
    if total % ranks or (said and total != counted * ranks):
        wanted = f"those of {counted:,} replicas of {ranks}" if said else f"a multiple of the {ranks} of a replica"
        hint = f"Give --on {pool.chip.reference}, and the number follows."
        raise InputError(f"{total:,} chips are not {wanted}", where="--on", hint=hint)
    return total // ranks, notes


def _check_total(question: ImportQuestion, pools: Sequence[PlanPool]) -> None:
    """Of several pools, `--on CHIP:N` are the chips of all."""
    total, taken = total_chips(question.on), sum(pool.chips for pool in pools)
    if len(pools) > 1 and total and total != taken:
        hint = f"Give --on {pools[0].chip}, and the number follows."
        raise InputError(f"{total:,} chips are not the {taken:,} of all pools", where="--on", hint=hint)


def _chip_counts(heads: Sequence[StartedServer]) -> Iterator[IgnoredOption]:
    """What containers and variables say of chips beside the degrees. Raises InputError where they are too few."""
    for one in heads:
        needed = -(-_ranks(one.command) * one.command.replicas // max(one.command.nodes, one.process.nodes))
        for given, what in ((one.process.chips, "chips of the container"), (one.command.devices, "visible chips")):
            if given and given < needed:
                message = f"its degrees take {needed} chips on each node, and it has {given}"
                raise InputError(message, where=one.process.where, hint="Change the degrees, or what it may use.")
            if given > needed:
                yield IgnoredOption(option=f"{given} {what}", why=f"the degrees take {needed} of them")


def _plan_pool(group: ServerGroup, pool: Pool, replicas: int) -> PlanPool:
    command = group.first.command
    return PlanPool(
        role=command.role,
        chip=pool.chip.file or pool.chip.reference,
        per_node=pool.unusual_node_size,
        power_limit_w=pool.power_limit_w,
        replicas=replicas,
        weight=group.header.weight if group.header else 1.0,
        strategy=command.strategy,
        dtype=command.dtype,
        kv_dtype=command.kv_dtype,
        engine=EngineChoice(name=group.first.engine.NAME, version=command.version, settings=dict(command.settings)),
    )


def _plan(pools: Sequence[PlanPool], names: NamesOf, first: StartedServer, router: str) -> Plan:
    written, model = names.known or first.command.model, first.command.model
    several = len(pools) > 1 or pools[0].replicas > 1
    return Plan.of_pools(
        tuple(pools),
        model=reference(written),
        router=router if router and several else ROUTERS[0],
        checkpoint=model if names.known and reference(model) != reference(written) else "",
    )


def _alone(plan: Plan, first: StartedServer) -> Iterator[IgnoredOption]:
    """A server of a role whose other half is not there serves nobody; its plan is one that does both."""
    role = first.command.role
    if not plan.pools and role != BOTH:
        why = "not modelled without the servers of the other role: priced as one that computes prompts and answers"
        yield IgnoredOption(option=f"the role {role}", why=why, affects=True)


def _check(plan: Plan, model: Model) -> None:
    """Refuse degrees that the model cannot be cut into, and settings that the engine refuses."""
    if not unpriced(model):
        check_degrees(model, plan.strategy)
    made = engine(plan.engine.label)
    _, settings = made.arranged(plan.strategy, plan.engine.settings)
    made.settings(settings, model, plan_pool(plan, plan.ranks))


def _written(engine: Operations, plan: Plan) -> str:
    try:
        words = engine.command(plan)
    except GnomonError:
        return ""
    return " ".join(word if isinstance(word, Variable) else shlex.quote(word) for word in words)


def _title(plan: Plan, title: str) -> str:
    shown = []
    for pool in plan.each_pool:
        degrees = _degrees(pool.strategy)
        replica = f"({pool.chip}{f', {degrees}' if degrees else ''}, {pool.dtype})"
        shown.append(f"{f'{pool.role} ' if plan.disaggregated else ''}{pool.replicas:,} x {replica}")
    return f"{plan.model}, {' + '.join(shown)}, {title}"
