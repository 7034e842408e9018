"""Steps as lines of a breakdown: what predictions of every kind share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.cost.draws import normals
from gnomon.cost.machine import Machine, priced_dtype
from gnomon.cost.profile import Profile
from gnomon.engines.base import Deployment, Engine, NetworkPiece, StepParts, Wait
from gnomon.errors import InputError
from gnomon.graph.ops import Op
from gnomon.graph.phases import is_padded
from gnomon.planning.steps.energy import step_joules
from gnomon.spec import Batch, Chip, Estimate, Pool, Provenance
from gnomon.spec.answers import OperatorTime
from gnomon.spec.estimate import joined

MOST_STEPS = 100_000


def prefill_steps(batch: int, tokens: int, context: int, budget: int) -> Batch:
    """The steps in which an engine works the prompts off, first come first served, `budget` tokens a step."""
    if batch * tokens <= budget:
        return Batch.prefill(batch, tokens, context)
    if batch * tokens > MOST_STEPS * budget or batch > MOST_STEPS:
        raise InputError(f"{batch * tokens:,} tokens are too many for one prediction", where="--batch, --tokens")
    steps: list[list[tuple[int, int]]] = [[]]
    room = budget
    for _ in range(batch):
        done = 0
        while done < tokens:
            if room == 0:
                steps.append([])
                room = budget
            piece = min(tokens - done, room)
            steps[-1].append((piece, context + done))
            done, room = done + piece, room - piece
    return Batch.stack([Batch.step([], chunks) for chunks in steps])


def check_size(engine: Engine, deployment: Deployment, batch: int, tokens: int, context: int) -> None:
    settings = deployment.settings
    longest = context + tokens
    most = settings["max_model_len"]
    if longest > most:
        flags, left = ("--context", most - 1) if tokens == 1 else ("--tokens, --context", most)
        flags, together = (flags, " together" if tokens > 1 else "") if context else ("--tokens", "")
        message = f"{longest:,} tokens are more than the {most:,} a sequence may have"
        raise InputError(message, where=flags, hint=f"Use at most {left:,}{together}.")
    if batch > settings["max_num_seqs"]:
        more = f" --set max_num_batched_tokens={batch}" if batch > settings["max_num_batched_tokens"] else ""
        raise InputError(
            f"{batch:,} sequences are more than {engine.name} runs in one step ({settings['max_num_seqs']:,})",
            where="--batch",
            hint=f"Raise it with --set max_num_seqs={batch}{more}.",
        )


def joules(power: Mapping[str, float], chip: Chip, seconds: Any, flops: float, moved: float) -> Any:
    """Of one rank, for one time or for draws of it."""
    if np.ndim(seconds) == 0:
        return step_joules(power, chip, float(seconds), flops, moved)
    return np.array([step_joules(power, chip, float(s), flops, moved) for s in seconds])


def line(machine: Machine, op: Op, padded: Batch, steps: Batch) -> OperatorTime:
    """An operator over the padded steps, whose padding what follows sequences skips; FLOPs and bytes are those of the
    work asked for."""
    dtype = priced_dtype(op)
    run = padded if is_padded(op) else steps
    each = machine.op_seconds(op, run)
    seconds = each.sum(keepdims=True)
    flops, moved = (op.count * figure(steps).sum(keepdims=True) for figure in (op.flops, op.bytes))
    family = machine.evidence(op.kind, dtype)
    value = float(seconds[0])
    return OperatorTime(
        op=op.name,
        kind=op.kind,
        time_s=Estimate(value, machine.op_draws(op, run, each), family.provenance, machine.source(op)),
        bound=str(machine.bound(flops, moved, seconds, op.kind, dtype, op.count * steps.size)[0]),
        count=op.count * steps.size,
        flops=float(flops[0]),
        bytes=float(moved[0]),
        arithmetic=machine.arithmetic(op.kind, dtype),
    )


def engine_line(device: Estimate, parts: StepParts) -> OperatorTime:
    """The engine's own share: the gaps between steps, and what the host needs beyond the device."""

    def own(seconds: Any, factor: Any) -> Any:
        return np.maximum(parts.host_s * factor - seconds, parts.gap_s * factor)

    value, draws = float(own(device.value, 1.0)), np.asarray(own(device.draws, parts.factors))
    share = Estimate(value, draws, Provenance.FITTED, parts.source)
    return OperatorTime(op="engine", kind="host", time_s=share, bound="host", count=1, flops=0.0, bytes=0.0)


def wait_line(wait: Wait) -> OperatorTime:
    """What a technique makes steps wait for."""
    draws = wait.seconds * np.exp(wait.spread * normals(f"wait/{wait.name}"))
    time = Estimate(wait.seconds, draws, Provenance.FORMULA, wait.source)
    return OperatorTime(op=wait.name, kind="host", time_s=time, bound="host", count=1, flops=0.0, bytes=0.0)


def bound_of(lines: Sequence[OperatorTime], total: float) -> tuple[str, float]:
    """What bounds most of the time, and its share."""
    shares: dict[str, float] = {}
    for one in lines:
        shares[one.bound] = shares.get(one.bound, 0.0) + one.time_s.value / total
    return max(shares.items(), key=lambda item: item[1])


def piece_lines(piece: NetworkPiece, pool: Pool, profile: Profile) -> list[OperatorTime]:
    """The operators of a piece that take time."""
    machine = Machine(pool, profile, piece.framework)
    blur = np.exp(piece.spread * normals("networks"))
    priced = [line(machine, op, piece.parts.padded, piece.steps) for op in piece.graph.ops]
    return [replace(one, time_s=_blurred(one.time_s, blur)) for one in _together(priced) if one.time_s.value > 0]


def engines_line(device: Estimate, pieces: Sequence[NetworkPiece]) -> OperatorTime:
    """What engines add to pieces that one host launches one after the other: it runs ahead of the device, so only what
    it needs for all of them beyond the device's time is seen."""
    parts = [piece.parts for piece in pieces]
    host, gap = (sum((getattr(one, name) * one.factors for one in parts), np.zeros(1)) for name in ("host_s", "gap_s"))
    value = max(sum(one.host_s for one in parts) - device.value, sum(one.gap_s for one in parts))
    draws = np.maximum(host - device.draws, gap)
    share = Estimate(value, draws, Provenance.FITTED, joined(one.source for one in parts))
    return OperatorTime(op="engine", kind="host", time_s=share, bound="host", count=1, flops=0.0, bytes=0.0)


def _together(lines: Sequence[OperatorTime]) -> list[OperatorTime]:
    """Lines of one name as one: layers that differ elsewhere run the same operator."""
    groups: dict[str, list[OperatorTime]] = {}
    for one in lines:
        groups.setdefault(one.op, []).append(one)
    return [_sum(alike) for alike in groups.values()]


def _sum(alike: Sequence[OperatorTime]) -> OperatorTime:
    most = max(alike, key=lambda one: one.time_s.value)
    return replace(
        most,
        time_s=Estimate.total([one.time_s for one in alike]),
        count=sum(one.count for one in alike),
        flops=sum(one.flops for one in alike),
        bytes=sum(one.bytes for one in alike),
    )


def _blurred(time: Estimate, factor: Any) -> Estimate:
    return Estimate(time.value, time.draws * factor, time.provenance, time.source)
