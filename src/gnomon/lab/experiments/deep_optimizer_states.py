"""Deep Optimizer States: every k-th subgroup of offloaded Adam states is updated on the GPU, the others on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.cost.host_link import SUSTAINED
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import Bench
from gnomon.lab.offload import STATES, HostUpdate, InterleavedUpdates, Offloaded, adamw
from gnomon.spec import Chip
from gnomon.techniques.offload_optimizer import UPDATE_BYTES, update_s

STATE_BYTES = 4 * STATES
"""Of one parameter: fp32 weight, momentum and variance."""
NARROW_BYTES = 2
STATE_BOUND = 1e-5
"""Of the value plus the root mean square of all; fp32 sums in another order differ by some 1e-7."""
NARROW_STEPS = 2.0**-7
"""Spacing of bf16 values, relative to the power of two below."""
NAMES = ("fp32 weights", "momentum", "variance")
WIDEST = 8
"""Largest stride that the rule considers."""


UPDATES_SHARE = 0.46
"""Share of memory bandwidth that a host's updates reach, as for the hosts of the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """Rates of the machine, each measured alone: bytes per second of the link, parameters per second of updates."""

    up_bytes_s: float
    down_bytes_s: float
    cpu_parameters_s: float
    gpu_parameters_s: float


def seconds_per_parameter(rates: Queues, stride: int) -> float:
    """Seconds per parameter of an update that fetches every `stride`-th subgroup, with overlapping queues."""
    on_cpu = stride - 1
    moved = STATE_BYTES + NARROW_BYTES * on_cpu
    longest = max(
        on_cpu / rates.cpu_parameters_s,
        moved / rates.up_bytes_s,
        moved / rates.down_bytes_s,
        1 / rates.gpu_parameters_s,
    )
    return longest / stride


def best_stride(rates: Queues, subgroups: int) -> int:
    """The stride with the shortest slowest queue. The CPU always updates a part, as in the paper."""
    return min(range(2, max(2, min(WIDEST, subgroups)) + 1), key=lambda stride: seconds_per_parameter(rates, stride))


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.tell("allocating host memory")
    data = Offloaded(bench, sizes["parameters"], sizes["subgroup"])
    bench.tell("measuring the link and the CPU")
    fused, facts, rates = _rates(bench, data)
    host = HostUpdate(data, fused=fused)
    rule = best_stride(rates, len(data.pieces)) if rates else 2
    stride = min(sizes["stride"] or rule, len(data.pieces))
    bench.tell("updating on the GPU alone, for comparison")
    reference = _Reference(data)
    for step in range(sizes["steps"]):
        reference.step(step)
    bench.tell("checking both updates")
    checks = [*_checks(data, reference, host.step, "CPU", sizes["steps"])]
    both = f"CPU and GPU, stride {stride}"
    checks += _checks(data, reference, InterleavedUpdates(data, host, stride).step, both, sizes["steps"])
    bench.tell("timing")
    references = {"GPU alone": bench.wall(_counted(reference.step), sizes["repeats"], host_bytes=0)}
    reference.drop()
    plain = bench.wall(_counted(host.step), sizes["repeats"], host_bytes=data.host_bytes)
    compared = []
    for wanted in sorted({stride, *range(1, min(4, len(data.pieces)) + 1)}, key=lambda tried: tried != stride):
        bench.release()
        way = InterleavedUpdates(data, host, wanted)
        took = bench.wall(_counted(way.step), sizes["repeats"], host_bytes=data.host_bytes)
        shape = {"stride": wanted, "subgroups": len(data.pieces), "on_gpu": len(way.chosen)}
        shape |= {"parameters": data.parameters, "subgroup_parameters": data.largest}
        what = f"update phase, stride {wanted}"
        own = wanted > 1  # with 1 nothing is left to the CPU: no interleaving
        compared.append(Compared(what=what, shape=shape, plain=plain, technique=took, deferred_s=0.0, of_paper=own))
        del way
    facts |= {"stride_by_rule": rule if rates else None, "stride": stride, "subgroups": len(data.pieces)}
    facts |= {"parameters": data.parameters, "state_bytes": data.parameters * STATE_BYTES}
    return Findings(checks=tuple(checks), compared=tuple(compared), references=references, facts=facts, notes=NOTES)


NOTES = (
    "plain: gradients copied down in bf16, AdamW on the CPU, weights copied up in bf16, copies overlapped",
    "times are of the update phase alone, from idle to idle; a training step could overlap part of the copies",
)


def _counted(step: Callable[[int], None]) -> Callable[[], None]:
    """The step with its own counter."""
    count = iter(range(1000, 1_000_000))
    return lambda: step(next(count))


class _Reference:
    """The update on the device alone, in fp32."""

    def __init__(self, data: Offloaded) -> None:
        torch = data.bench.torch
        self.data = data
        self.states = [[first, torch.zeros_like(first), torch.zeros_like(first)] for first in data.initial()]
        self.weights16 = torch.cat([states[0].to(torch.bfloat16) for states in self.states])
        self._gradient32 = data.bench.empty(data.largest, dtype=torch.float32)

    def step(self, step: int) -> None:
        for piece, states in zip(self.data.pieces, self.states, strict=True):
            gradient = self._gradient32[: piece.size]
            gradient.copy_(self.data.gradient(piece, step))
            adamw(self.data.bench, states, gradient, step)
            self.weights16[piece.start : piece.end].copy_(states[0])

    def drop(self) -> None:
        """Free its memory before the others are timed."""
        self.states, self.weights16, self._gradient32 = [], None, None
        self.data.bench.release()


def _checks(
    data: Offloaded, reference: _Reference, update: Callable[[int], None], name: str, steps: int
) -> Iterator[Check]:
    data.reset()
    for step in range(steps):
        update(step)
    data.bench.synchronize()
    what = f"{name}, {steps} steps"
    worst = [0.0] * STATES
    for mine, theirs in zip(data.states, reference.states, strict=True):
        worst = [max(old, apart(a, b)) for old, a, b in zip(worst, mine, theirs, strict=True)]
    for name, difference in zip(NAMES, worst, strict=True):
        yield Check(what=f"{what}: {name}, relative", difference=difference, bound=STATE_BOUND)
    worst16 = max(
        narrow_apart(data.weights16[p.start : p.end], reference.weights16[p.start : p.end], states[0])
        for p, states in zip(data.pieces, reference.states, strict=True)
    )
    yield Check(what=f"{what}: bf16 weights, relative to the rounding allowed", difference=worst16, bound=1.0)


def apart(mine: Any, theirs: Any) -> float:
    """The largest difference, relative to the value and the root mean square; infinite for NaN."""
    there = mine.to(theirs.device)
    scale = theirs.abs() + theirs.square().mean().sqrt() + 1e-30
    worst = float(((there - theirs).abs() / scale).max())
    return math.inf if math.isnan(worst) else worst


def narrow_apart(mine: Any, theirs: Any, wide: Any) -> float:
    """The largest difference of bf16 weights, in multiples of the format's spacing plus the tolerance of the fp32
    weights they come from; infinite for NaN."""
    larger = mine.float().abs().maximum(theirs.float().abs())
    mantissa, _ = larger.frexp()
    power = larger / (2 * mantissa).clamp(min=1.0)
    allowed = power * NARROW_STEPS + STATE_BOUND * wide.square().mean().sqrt() + 1e-30
    worst = float(((mine.float() - theirs.float()).abs() / allowed).max())
    return math.inf if math.isnan(worst) else worst


def _rates(bench: Bench, data: Offloaded) -> tuple[bool, dict[str, Any], Queues | None]:
    """Whether PyTorch's fused CPU update is the faster one, and measured rates; overwrites the states."""
    torch, size = bench.torch, data.pieces[0].size
    states, near = data.states[0], bench.empty(size, dtype=torch.float32)
    data.reset()

    def on_cpu(host: HostUpdate) -> float:
        return min(bench.seconds(lambda: host.update(0, 0, 0)) for _ in range(3))

    ways = {}
    for fused in (True, False):
        host = HostUpdate(data, fused=fused)
        host.pieces([0], 0)
        ways[fused] = on_cpu(host)
        del host
    up = min(bench.seconds(lambda: near.copy_(states[0], non_blocking=True)) for _ in range(4))
    down = min(bench.seconds(lambda: states[0].copy_(near, non_blocking=True)) for _ in range(4))
    mine = [torch.zeros_like(near) for _ in range(STATES)]
    update = min(bench.seconds(lambda: adamw(bench, mine, near, 0)) for _ in range(4))
    if not bench.timed:
        return True, {}, None
    rates = Queues(
        up_bytes_s=4 * size / up,
        down_bytes_s=4 * size / down,
        cpu_parameters_s=size / min(ways.values()),
        gpu_parameters_s=size / update,
    )
    facts = {
        "host_to_gpu_bytes_s": rates.up_bytes_s,
        "gpu_to_host_bytes_s": rates.down_bytes_s,
        "cpu_update_parameters_s": rates.cpu_parameters_s,
        "cpu_update_parameters_s_by_way": {"fused": size / ways[True], "foreach": size / ways[False]},
        "gpu_update_parameters_s": rates.gpu_parameters_s,
        "cpu_threads": torch.get_num_threads(),
    }
    return ways[True] <= ways[False], facts, rates


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The formula of plans, with this host's rates."""
    stride, parameters = int(row.shape["stride"]), float(row.shape["parameters"])
    if stride < 2:  # everything on the chip is no offloaded update
        return None
    host = rates["cpu_update_parameters_s"]
    link = min(rates["host_to_gpu_bytes_s"], rates["gpu_to_host_bytes_s"])
    memory = SUSTAINED * host * UPDATE_BYTES / UPDATES_SHARE
    here = parameters / rates["gpu_update_parameters_s"]
    plain, strided = (
        float(update_s(np.array(parameters), turns, host, memory, link, here * turns)) for turns in (0.0, 1 / stride)
    )
    by = "the formula of offload-optimizer, with the rates of copies and updates that the run measured separately"
    return Predicted(gain=plain / strided, by=by)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    """Its strides without the rule's, which rests on measured rates."""
    subgroups = math.ceil(sizes["parameters"] / sizes["subgroup"])
    strides = {min(sizes["stride"], subgroups) or 1, *range(1, min(4, subgroups) + 1)}
    shape = {"parameters": sizes["parameters"]}
    return tuple(LabRow(what=f"update phase, stride {one}", shape=shape | {"stride": one}) for one in sorted(strides))


EXPERIMENT = Experiment(
    slug="deep-optimizer-states",
    title="Deep Optimizer States: offloaded Adam states updated on CPU and GPU concurrently",
    checks="weights and states after several steps equal those of AdamW on the GPU alone",
    claim=LabClaim(
        what="iterations 2.5 times faster than DeepSpeed's ZeRO-3 offload with TwinFlow, 7B to 20B parameters",
        comparable=False,
        why="the paper's gain is of training steps on several GPUs, this is of the update phase alone on one GPU and "
        "its host",
    ),
    sizes=(
        Size("parameters", "parameters of the model", default=1_200_000_000, on_cpu=10_007, most=10**11),
        Size("subgroup", "parameters of a subgroup", default=100_000_000, on_cpu=1_000, most=10**10),
        Size("stride", "every so many subgroups one on the GPU; 0 by rule", default=0, on_cpu=0, least=0, most=1000),
        Size("steps", "steps before the comparison", default=3, on_cpu=5, most=1000),
        Size("repeats", "timed updates", default=3, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=("cpu_update_parameters_s", "gpu_update_parameters_s", "host_to_gpu_bytes_s", "gpu_to_host_bytes_s"),
    fitted_to=(("NVIDIA H200", "2026-11-15"),),  # offload_optimizer.BANDWIDTH_CONTENTION
)
