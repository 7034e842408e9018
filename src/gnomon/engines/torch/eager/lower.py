"""A traced module as PyTorch's eager mode runs it on a GPU: kernels one after the other, each launched by the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gnomon.cost.host import HostModel
from gnomon.engines.own import MeasuredHosts, figures_of
from gnomon.engines.torch.eager.algebra import ALGEBRA, refuse_uncounted
from gnomon.engines.torch.eager.fused import Uses, chains
from gnomon.engines.torch.eager.gemms import GEMMS
from gnomon.engines.torch.eager.lowering import Lowering, Precision
from gnomon.engines.torch.eager.streams import base_name, stream
from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.engines.torch.engine import LAUNCH_S
from gnomon.errors import unknown_name
from gnomon.graph.ops import Op
from gnomon.spec.traced import Call, Phase, Traced

LAUNCHES = ("eager", "graph")
CALL_S = LAUNCH_S["none"]
"""Host seconds of a call with its share of Python, autograd and views, as measured on the built-in training runner."""
FORWARD_S = 20e-6
"""Host seconds of a call in a forward pass without gradients: 15 to 29 us in eleven networks, 20 at the median
(measurements/h200-2026-11-15/modules.json and the 512-token prompts of decoders.json)."""
INNER_S = 5e-6
"""Host seconds of each further kernel that one call launches: the driver's part alone. An estimate."""
HOST_SPREAD = 0.7
"""Log standard deviation of the launch time: on one virtual machine, launch-bound steps took from 1.0 to
3.0 times what its launches of training steps predict, and the same policy network 0.7 and 1.65 ms from run to run
(measurements/h200-2026-11-15/modules.json)."""
HOST_SOURCE = "launches on the host of the H200 that was measured"
GRAPH_S = 10e-6
"""Host seconds to start a captured graph. An estimate."""
OWN = {"call_us": (0.5, 1e4), "graph_us": (0.5, 1e5)}
"""Ranges of figures measured on the user's host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerHost:
    """Launch costs: as shipped, or as the user measured them (`gnomon calibrate --engine transformers`)."""

    forward_s: float = FORWARD_S
    graph_s: float = GRAPH_S
    source: str = HOST_SOURCE


def host(measured: MeasuredHosts) -> EagerHost:
    """Launch costs of the host, as the user measured them where they did."""
    own = figures_of(measured, "transformers", "eager", OWN, optional=("graph_us",))
    if own is None:
        return EagerHost()
    return EagerHost(
        forward_s=own.figures["call_us"] * 1e-6,
        graph_s=own.figures.get("graph_us", GRAPH_S * 1e6) * 1e-6,
        source=f"launches on your own host, {own.date}",
    )


def host_model(seconds: float, launches: EagerHost) -> HostModel:
    """A host model that takes so many seconds to launch a step."""
    return HostModel(eager_launch_s=seconds, spread=HOST_SPREAD, source=launches.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedKernel:
    """The kernels of one call."""

    module: str
    phase: Phase
    ops: tuple[Op, ...]

    @property
    def kernels(self) -> int:
        return sum(op.count for op in self.ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    launched: tuple[LaunchedKernel, ...]
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Operators without a rule, and how often they ran: priced as one pass over their operands."""
    host: EagerHost = EagerHost()

    @property
    def kernels(self) -> int:
        return sum(one.kernels for one in self.launched)

    def host_s(self, launch: str) -> float:
        """Host seconds of one step."""
        if launch not in LAUNCHES:
            raise unknown_name("way to launch", launch, LAUNCHES, where="launch")
        if launch == "graph":
            return self.host.graph_s
        trains = any(one.phase != "forward" for one in self.launched)
        each = CALL_S if trains else self.host.forward_s
        return len(self.launched) * each + (self.kernels - len(self.launched)) * INNER_S


def lower(
    traced: Traced, precision: Precision | None = None, host: EagerHost | None = None, *, fused: bool = False
) -> Lowered:
    """All calls that launch kernels, as operators of the graph; with `fused`, chains of memory-bound ones as one."""
    how = Lowering(precision=precision or Precision(), efficiencies=efficiencies())
    unknown: Counter[str] = Counter()
    each = [tuple(_kernels(call, how, unknown)) for call in traced.calls]
    if fused:
        _fuse(traced, each, how)
    launched = tuple(
        LaunchedKernel(module=call.module, phase=call.phase, ops=ops)
        for call, ops in zip(traced.calls, each, strict=True)
        if ops
    )
    return Lowered(launched=launched, unknown=dict(unknown), host=host or EagerHost())


def _fuse(traced: Traced, each: list[tuple[Op, ...]], how: Lowering) -> None:
    """Put one kernel in place of the first of every chain, and nothing in place of the others; what a convolution adds
    to its result goes with the chain that reads it."""
    uses, found = Uses(traced), list(chains(traced, [bool(ops) for ops in each]))
    read = {spec.storage for chain in found for call in chain.calls for spec in call.inputs}
    for at, call in enumerate(traced.calls):
        if len(each[at]) > 1 and each[at][0].kind == "conv" and any(made.storage in read for made in call.results):
            each[at] = each[at][:1]
    for chain in found:
        for at in chain.places:
            each[at] = ()
        kernel = uses.kernel(chain, how)
        if kernel.read_per_row or kernel.written_per_row:
            each[chain.places[0]] = (kernel,)


def _kernels(call: Call, how: Lowering, unknown: Counter[str]) -> Iterator[Op]:
    name = base_name(call)
    rule = GEMMS.get(name) or ALGEBRA.get(name)
    if rule is not None:
        yield from rule(call, how)
        return
    refuse_uncounted(call, name)
    kernel, known = stream(call, how.efficiencies)
    if kernel is not None:
        unknown.update(() if known else (call.op,))
        yield kernel
