"""Versions of DeepSpeed whose measurements are published, and today's: what each does differently, and how it is known.

Constants of a version are fitted on other sources than those it is tested on, or follow from its code;
`python -m tools.deepspeed_versions` fits them again and prints both errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gnomon.engines.megatron.engine import LAUNCH_S
from gnomon.engines.megatron.style import fused, parted
from gnomon.engines.training.traits import ShardedWeights, Update
from gnomon.graph.style import KernelStyle, Stream

TILE = (256, 128)
"""cuBLAS of CUDA 11 has tiles of this size for large GEMMs on an A100, and lets a started wave run out: BLOOM's authors
chose widths by it."""
UNALIGNED = {"Ampere": {"gemm_unaligned": 0.25}}
"""Batched GEMMs of heads whose width is no multiple of 8, in the cuBLAS of 2022 (CUDA 11), relative to today's:
`python -m tools.training_software unaligned`."""
SPREAD = 0.13
"""Of today's version, as earlier ones showed it in both directions: an estimate."""
MODULES = 12
"""Of a layer of Megatron-DeepSpeed, each of which DeepSpeed has hooks around: the layer, attention and its core,
softmax and dropout, the feed-forward network, two norms and four matrices."""
MODULE_S = 200e-6
"""Host seconds of the hooks around one module in one pass: the logarithmic mean of two hosts. One core of an EPYC of
2025, without CUDA, takes DeepSpeed 0.14.4 85 us (`python -m tools.zero3_hooks`); a workstation with two TITAN RTX
490 us (LianjiaTech/BELLE issue 402: 24 layers of 11 modules, ZeRO 3 less ZeRO 1)."""
SLOW_BYTES_S = 26e9
"""Of gathers one parameter at a time, copied through lists, beside what links take: a forward pass of 5 billion
parameters on 8 A100 took 480 ms with ZeRO 3 and 60 ms with ZeRO 2 (deepspeedai/DeepSpeed issue 1174, 0.3.16)."""
EXPOSED = 0.7
"""Share of gathers and scatters that nothing overlaps with, in forward and backward passes of MLP-Offload's logs."""
CONCATENATED = (Update("gather.concatenate", 2, 2),)
"""A gathered parameter is concatenated of the ranks' partitions (`AllGatherCoalescedHandle.wait`)."""
FLATTENED = (Update("scatter.flatten", 2, 2), Update("scatter.average", 2, 2))
"""Gradients are flattened into a bucket and averaged before they are scattered (`reduce_scatter_coalesced`)."""


PLAIN = ShardedWeights()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTable:
    """One version, and where its constants are from."""

    version: str
    date: str
    style: KernelStyle
    launch_s: float
    fitted_on: str
    tested_on: str
    """With the error there."""
    efficiency: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: UNALIGNED)
    whole_waves: tuple[int, int] | None = None
    system_spread: float = SPREAD
    run_spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sharded_weights: ShardedWeights = PLAIN
    exposed_gradient_bytes: float = 0.0
    wide_sums: bool = True
    """bf16 gradients are summed in fp32 beside them; else as they are (`grad_accum_dtype`)."""

    @property
    def source(self) -> str:
        return f"constants of {self.date}, fitted to {self.fitted_on}; tested on {self.tested_on}"


def _undropped(style: KernelStyle) -> KernelStyle:
    """Without dropout, as networks since Llama are trained."""
    return replace(style, dropout=None, residual=Stream(2, 1, 0, 0))


RELEASES = (
    VersionTable(
        version="0.3",
        date="2021-05",
        style=parted(overlap=False, gradient_dtype="bf16"),
        launch_s=LAUNCH_S["3.0"],
        whole_waves=TILE,
        system_spread=0.3,
        sharded_weights=ShardedWeights(exposed=1.0, software_bytes_s=SLOW_BYTES_S),
        fitted_on="DeepSpeed issue 1174 (BERT of 5 billion parameters, 8 A100); its prefetching did not work yet "
        "(issue 1069, pull request 1170)",
        tested_on="DeepSpeed issue 1069 and pull request 1453 (RoBERTa of 10 and 52 billion, 16 to 128 V100 and 64 "
        "A100): mean error 11%",
    ),
    VersionTable(
        version="0.5",
        date="2022",
        style=parted(overlap=False, gradient_dtype="bf16"),
        launch_s=LAUNCH_S["3.0"],
        whole_waves=TILE,
        run_spread={"Ampere": (0.047, 0.144)},
        fitted_on="half of BLOOM's trial runs",
        tested_on="the other half and MT-NLG: within their interval",
    ),
    VersionTable(
        version="0.9",
        date="2023",
        style=parted(overlap=True, gradient_dtype="bf16"),
        launch_s=LAUNCH_S["3.0"],
        run_spread={"Ampere": (0.047, 0.117)},
        fitted_on="half of vTrain's single-node runs",
        tested_on="the other half: 8%; vTrain's multi-node runs: 6%",
    ),
    VersionTable(
        version="0.14",
        date="2024",
        style=_undropped(parted(overlap=True, gradient_dtype="bf16")),
        launch_s=LAUNCH_S["3.0"],
        system_spread=0.2,
        sharded_weights=ShardedWeights(
            exposed=EXPOSED, module_s=MODULE_S, modules=MODULES, copied=CONCATENATED, reduced=FLATTENED
        ),
        exposed_gradient_bytes=4.0,
        wide_sums=False,
        fitted_on="logs of MLP-Offload, 40B, 70B and 120B on 4 H100 (github.com/mauryaavinash95/MLP-Offload, "
        "scripts/parse-res.py), its hooks to BELLE issue 402 and a CPU of 2025",
        tested_on="MLP-Offload's 52B and 100B: mean error 3%",
    ),
    VersionTable(
        version="0.18",
        date="2026",
        style=fused(),
        launch_s=LAUNCH_S["2026.08"],
        efficiency={},
        fitted_on="nothing of its own: earlier versions' constants, Megatron-LM's kernels of today",
        tested_on="nothing yet",
    ),
)
BY_VERSION = {one.version: one for one in RELEASES}
"""`run_spread` is found by `python -m tools.training_software spread`, of BLOOM's and MT-NLG's runs and of vTrain's.
All fitted runs of the first took longer than predicted: towards shorter ones it has the other's."""
