"""What LoRA adapters add to a step: two thin GEMMs beside each linear layer, for every adapter in the step.

The first turns a layer's inputs into `rank` numbers (shrink), the second those into its outputs (expand). vLLM runs
both as Triton kernels over all tokens at once: thread blocks of 32 and 64 tokens of one adapter, which are many and
short, so that launches and blocks count beside what they move (`vllm/lora/ops/triton_ops`, with their default
configurations). Figures are fitted by `tools/feature_overheads.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import NamedTuple

from gnomon.cost.governor import FIGURES, STREAM

SHRINK_ROWS, EXPAND_ROWS = 32, 64
"""Tokens of a thread block."""
SHRINK_RANK, EXPAND_RANK = 16, 32
"""Ranks that a block of the first kernel makes, and one of the second reads at once."""
LARGE_STEP = 128
"""From so many tokens on the first kernel has few blocks that each read much."""
SMALL, LARGE = (64, 256), (8, 32)
"""Parts that inputs are cut into, and inputs that a block reads at once, below that and from there on."""
EXPAND_OUTPUTS = {False: 128, True: 64}
"""Outputs of a block of the second kernel, of a layer alone and of several that share their inputs."""
WIDE, NARROW = 4, 2
"""Bytes of a number between the two kernels, and of all others."""


class AdaptedLayers(NamedTuple):
    """Linear layers that share their inputs (query, key and value), so many times in a network."""

    times: int
    inputs: int
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterCost:
    """Seconds of adapters of one rank on one chip."""

    layers: Sequence[AdaptedLayers]
    rank: int
    processors: int
    bandwidth_bytes_s: float
    joules_per_byte: float
    launch_s: float
    """Of both kernels of one group of layers, on the device."""
    tile_s: float
    """Of a thread block on a processor."""
    read_s: float
    """Of each time that a block of the first kernel waits for inputs."""
    host_s: float
    """On the host, to launch both kernels one by one."""
    host_spread: float = 0.0
    """What that may be off by from host to host (log)."""

    def drawn(self, normal: float) -> AdapterCost:
        """With the launches of a host that is so many standard deviations slower."""
        return replace(self, host_s=self.host_s * exp(self.host_spread * normal))

    def work(self, tokens: int, adapters: int) -> tuple[float, float, float]:
        """Device seconds of so many tokens and adapters, those of them that follow the clock, and joules beyond the
        constant draw."""
        seconds = moved = 0.0
        for group in self.layers:
            blocks, reads, group_bytes = self._of(group, tokens, adapters)
            seconds += group.times * (self.launch_s + self.tile_s * blocks / self.processors + self.read_s * reads)
            moved += group.times * group_bytes
        seconds += moved / (STREAM * self.bandwidth_bytes_s)
        return seconds, FIGURES.clocked * seconds, self.joules_per_byte * moved

    def launch(self) -> float:
        """Host seconds of a step whose kernels are launched one by one."""
        return self.host_s * sum(group.times for group in self.layers)

    def _of(self, group: AdaptedLayers, tokens: int, adapters: int) -> tuple[int, int, int]:
        """Thread blocks of one group, reads of a block in turn, and bytes."""
        slices, each = len(group.outputs), _parts(tokens, adapters)
        parts, width = LARGE if tokens >= LARGE_STEP else SMALL
        shrink = min(parts, _parts(group.inputs, width)) * _parts(self.rank, SHRINK_RANK) * slices * adapters
        expand = _parts(max(group.outputs), EXPAND_OUTPUTS[slices > 1]) * _parts(self.rank, EXPAND_RANK)
        blocks = shrink * _parts(each, SHRINK_ROWS) + expand * slices * adapters * _parts(each, EXPAND_ROWS)
        outputs = sum(group.outputs)
        of_tokens = slices * group.inputs * NARROW + 2 * slices * self.rank * WIDE + 2 * outputs * NARROW
        weights = adapters * self.rank * NARROW * (slices * group.inputs + outputs)
        return blocks, _parts(group.inputs, parts * width), tokens * of_tokens + weights


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)
