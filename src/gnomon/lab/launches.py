"""Launches: what the host spends on an operator, measured alone, calls in CUDA graphs, and counts to predict both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gnomon.calibrate.timer import captured
from gnomon.cost.machine import Machine
from gnomon.lab.base import LabRun, Rates
from gnomon.lab.bench import Bench, untimed
from gnomon.lab.priced import attention_s, conv_s, gemm_s, stream_s

ELEMENTWISE, GEMM, ATTENTION, VIEW = "kernel_launches_s", "gemm_launches_s", "attention_launches_s", "view_launches_s"
RATES = (ELEMENTWISE, GEMM, ATTENTION, VIEW)
CONV = "conv_launches_s"
"""Of convolutions with a bias."""
TRITON = "triton_launches_s"
"""Of Triton kernels, by those who have one."""
PROBE, PROBES = 300, 5
LEAST_S = 5e-3
"""Of a sample: calls are repeated until they take this long."""
Call = Callable[[], Any]


def launch_rates(bench: Bench) -> dict[str, float]:
    """Operators per second that the host launches on tiny tensors, by kind; nothing on a CPU."""
    if not bench.timed:
        return {}
    torch = bench.torch
    functional = torch.nn.functional
    x, w = (bench.empty(64, 64, dtype=torch.bfloat16).zero_() for _ in range(2))
    heads, image, kernel = (
        bench.empty(*shape, dtype=torch.bfloat16).zero_().contiguous(memory_format=torch.channels_last)
        for shape in ((1, 4, 64, 64), (1, 64, 8, 8), (64, 64, 3, 3))
    )
    heads = heads.contiguous()
    calls: dict[str, Call] = {
        ELEMENTWISE: lambda: x * 1.5,
        GEMM: lambda: functional.linear(x, w),
        ATTENTION: lambda: functional.scaled_dot_product_attention(heads, heads, heads),
        VIEW: lambda: x.transpose(0, 1),
        CONV: lambda: functional.conv2d(image, kernel, x[0], padding=1),
    }
    with torch.no_grad():
        return {name: call_rate(bench, call) for name, call in calls.items()}


def call_rate(bench: Bench, call: Call) -> float:
    """Calls per second, from an idle device to an idle one."""

    def several() -> None:
        for _ in range(PROBE):
            call()

    several()
    return PROBE / min(bench.seconds(several) for _ in range(PROBES))


def graphed(bench: Bench, call: Call) -> LabRun:
    """Device seconds of a call in a graph of many."""
    return bench.cold(lambda _: call(), 1)


def graphed_with_bytes(bench: Bench, call: Call, held: int = 0) -> LabRun:
    """Device seconds of a call in a graph, and the most bytes that it allocates beside those that are `held`."""
    before = bench.held_bytes if bench.timed else 0
    with bench.peak() as most:
        call()
        bench.synchronize()
        allocated = most() - before
    return replace(graphed(bench, call), gpu_bytes=held + allocated if bench.timed else 0)


def repeated(bench: Bench, call: Call, samples: int = 5) -> LabRun:
    """Seconds of one call among others like it, launches included, from idle to idle."""
    if not bench.timed:
        return untimed()
    call()
    count = max(1, min(2000, int(LEAST_S / bench.seconds(call))))

    def several() -> None:
        for _ in range(count):
            call()

    return bench.measured([bench.seconds(several) / count for _ in range(samples)], 0)


def replayable(bench: Bench, call: Call) -> tuple[Call, Any]:
    """A call captured once, and where each replay leaves its output; the call itself where there is no GPU."""
    if bench.device != "cuda":
        return call, None
    found: list[Any] = []
    side = bench.stream()
    bench.synchronize()
    with bench.within(side):
        call()
    bench.synchronize()
    graph = captured(bench.torch, lambda _: found.append(call()), 1, stream=side)
    graph.replay()
    bench.synchronize()
    return partial(graph.replay), found[0]


@dataclass(slots=True)
class Tally:
    """Kernels of a pass: their seconds on a machine, and how many of each kind the host launches."""

    machine: Machine
    device_s: float = 0.0
    elementwise: float = 0.0
    gemms: float = 0.0
    attentions: float = 0.0
    views: float = 0.0
    convs: float = 0.0
    flops: float = 0.0
    """Of GEMMs, convolutions and attention."""

    def gemm(self, m: int, n: int, k: int, *, batch: int = 1) -> None:
        self.device_s += gemm_s(self.machine, m, n, k, batch=batch)
        self.flops += 2.0 * m * n * k * batch
        self.gemms += 1

    def conv(self, places: int, outputs: int, inputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        """A convolution of so many output places, channels last, without its bias."""
        self.device_s += conv_s(self.machine, places, outputs, inputs, kernel**2, stride=stride, groups=groups)
        self.flops += 2.0 * places * outputs * (inputs // groups) * kernel**2
        self.convs += 1

    def stream(self, read: float, written: float) -> None:
        """An elementwise kernel, by its bytes."""
        self.device_s += stream_s(self.machine, read, written)
        self.elementwise += 1

    def attention(self, sequences: int, heads: int, tokens: int, head_dim: int, *, causal: bool) -> None:
        self.device_s += attention_s(self.machine, sequences, heads, tokens, head_dim, causal=causal)
        self.flops += 4.0 * sequences * heads * tokens**2 * head_dim / (2 if causal else 1)
        self.attentions += 1

    def add(self, other: Tally, times: int) -> None:
        """Another's kernels, so many times."""
        self.device_s += times * other.device_s
        self.elementwise += times * other.elementwise
        self.gemms += times * other.gemms
        self.attentions += times * other.attentions
        self.views += times * other.views
        self.convs += times * other.convs
        self.flops += times * other.flops

    @property
    def launches(self) -> float:
        return self.elementwise + self.gemms + self.attentions + self.convs

    def host_s(self, rates: Rates) -> float:
        """Seconds of the host's launches, at rates measured alone."""
        counts = (self.elementwise, self.gemms, self.attentions, self.views)
        found = sum(count / rates[name] for count, name in zip(counts, RATES, strict=True))
        return found + (self.convs / rates[CONV] if self.convs else 0.0)
