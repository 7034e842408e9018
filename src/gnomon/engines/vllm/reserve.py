"""What vLLM keeps free of the cache beside the weights, part by part, as its worker measures it at the start.

The worker runs one step of `max_num_batched_tokens` tokens and draws a token for `max_num_seqs` sequences, and takes
the most memory that PyTorch held meanwhile (`determine_available_memory`). Figures were chosen on five starts on an
H200 (Llama-3.2-1B and Llama-3.1-8B at 92% of the memory, the latter in fp8, and two mixtures), and checked on six
others (`tests/engines/test_vllm_memory.py`): those of dense models agree to 5 MB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.vllm.captures import captured_sizes
from gnomon.engines.vllm.offloaders import backend
from gnomon.engines.vllm.releases import FIRST, Release
from gnomon.engines.vllm.weights import BY_OUTPUT, StageWeights
from gnomon.graph.dtypes import width
from gnomon.spec import AttentionMixer, Block, Chip, DenseFfn, LatentAttention, Model, MoeFfn, Strategy

MIB = 1024.0**2
DRIVER_BYTES, DRIVER_SHARE = 263 * MIB, 0.0025
"""What the driver's total holds and no program can have: 616 MiB of an H200's 143,771, from two starts of one model
with different shares; 440 to 550 of an H100's 81,559 and 320 of an RTX 3090's 24,576 by the totals that PyTorch prints
(issues 27508, 10511, 16343 and 2140 of vllm-project/vllm)."""
RUNTIME_BYTES = 0.205e9
"""Libraries and kernels that torch does not count, on one H200."""
NCCL_BYTES = 0.65e9
"""Buffers of a communicator and of the custom all-reduce. Recalled from start logs of eight-GPU machines, not measured
by us: they range from 0.2 to 1.5 GB."""
TUNING_BYTES = 256 * MIB
"""Triton flushes the cache with a buffer of this size while a compiled layer's kernels are tuned in that step."""
STREAM_COPIES, SAMPLED_COPIES = 4, 3
"""Hidden states of all tokens alive at once: inside a layer, and while tokens are drawn."""
INNER_COPIES = 1.5
"""Of what a layer's widest projection makes, alive at once: gate and up side by side, and what becomes of them."""
SAMPLER = {"v2": 4.0, "v1": 12.0}
"""Bytes per logit beside its 16 bits: an fp32 copy; the first runner also draws with probabilities and noise."""
GRAPH_BYTES, GRAPH_LAYER_BYTES = 8.72e6, 90.4e3
"""Of one captured graph, and of one layer in it, in the first runner's own estimate: two mixtures of 12 and 48 layers
with 51 sizes captured whole and in pieces. Releases whose second runner estimates them too (`releases.py`) are taken to
find as much."""
MEASURED_ON = ("Hopper", 143771 * MIB)
SLACK = {"measured": 0.05e9, "kind": 0.35e9, "runner": 0.65e9, "chip": 0.15e9, "ranks": 0.6e9}
"""How far the reserve may be off, 90%: dense models of the second runner on an H200; what mixtures and latents add on
that runner (DeepSeek-V2-Lite, measured afterwards, had 0.32 GB less room than predicted), the first runner
(Qwen2.5-14B, measured afterwards, had 0.62 GB more), another chip and several ranks. A release that was not measured
has the first runner's: as much as another runner was off."""


def visible_bytes(chip: Chip) -> float:
    """Memory that a program sees, of which `gpu_memory_utilization` takes its share."""
    if chip.vendor != "NVIDIA":
        return chip.memory_bytes
    return chip.memory_bytes * (1 - DRIVER_SHARE) - DRIVER_BYTES


def runner(model: Model, release: Release = FIRST, settings: Mapping[str, Any] | None = None) -> str:
    """The model runner that a release runs a model on."""
    if settings is not None and backend(settings) and not release.second_offloads:
        return "v1"
    if release.second_runner is None:
        return "v2"
    return "v2" if model.family in release.second_runner and not _recurrent(model) else "v1"


def activation_bytes(
    model: Model, settings: Mapping[str, Any], strategy: Strategy, stage: StageWeights, release: Release = FIRST
) -> float:
    """The most that tensors of the profiled step take: inside a layer, or while tokens are drawn at the end."""
    tokens, rows = int(settings["max_num_batched_tokens"]), int(settings["max_num_seqs"])
    value = width("bf16")
    layers = {id(layer): layer for layer in stage.layers}.values()
    layer = max((_widest(block, model, strategy) for block in layers), default=0.0)
    inside = tokens * (layer + STREAM_COPIES * model.hidden * value)
    inside += 0 if settings["enforce_eager"] else TUNING_BYTES
    if not stage.last:
        return inside
    states = (SAMPLED_COPIES * tokens + rows) * model.hidden * value
    return max(inside, states + rows * model.vocab * (value + SAMPLER[runner(model, release, settings)]))


def _widest(block: Block, model: Model, strategy: Strategy) -> float:
    """Bytes per token of what lives beside the stream in a layer's busiest moment."""
    return max(_feed_forward(block, model, strategy), _projection(block, model, strategy)) + _quantised(block, model)


def _feed_forward(block: Block, model: Model, strategy: Strategy) -> float:
    ffn = block.ffn
    if isinstance(ffn, DenseFfn):
        return (2 if ffn.gated else 1) * INNER_COPIES * ffn.inner / strategy.tp * width("bf16")
    if isinstance(ffn, MoeFfn):
        # Both halves of a pair's first GEMM share memory with the result of its second; its activation stands alone.
        # Ranks of data parallelism bring their tokens together before the experts.
        inner = ffn.inner if strategy.ep > 1 else ffn.inner / (strategy.tp * strategy.dp)
        return strategy.dp * ffn.topk * (max(2 * inner, model.hidden) + inner) * width("bf16")
    return 0.0


def _projection(block: Block, model: Model, strategy: Strategy) -> float:
    if block.mixer is None:
        return 0.0
    rows = [t.rows for t in block.mixer.tensors(model.hidden) if t.role in BY_OUTPUT | {"k", "v"}]
    fused = sum(rows) if isinstance(block.mixer, AttentionMixer) else max(rows, default=0)
    return INNER_COPIES * fused / strategy.tp * width("bf16")


def _quantised(block: Block, model: Model) -> float:
    """A copy of the stream in the narrow format in which it meets the weights."""
    inputs = {format.activations for _, format in block.formats if format.activations}
    return model.hidden * max((width(name) for name in inputs), default=0.0)


def runtime_bytes(
    model: Model, settings: Mapping[str, Any], strategy: Strategy, chip: Chip | None = None, release: Release = FIRST
) -> float:
    """Libraries, communicators, tables of positions, and what CUDA graphs are expected to take."""
    ranks = NCCL_BYTES if strategy.ranks > 1 else 0.0
    return RUNTIME_BYTES + ranks + position_bytes(model) + graph_bytes(model, settings, chip, release)


def position_bytes(model: Model) -> float:
    """Sines and cosines of every position, once for each width of turning channels."""
    widths = {_turning(block) for block in model.blocks} - {0}
    return sum(model.max_context * turning * width("bf16") for turning in widths)


def _turning(block: Block) -> int:
    mixer = block.mixer
    if isinstance(mixer, LatentAttention):
        return mixer.rope_dim
    if isinstance(mixer, AttentionMixer) and not (mixer.alibi or mixer.relative_buckets):
        return mixer.head_dim if mixer.rotary_dim is None else mixer.rotary_dim
    return 0


def graph_bytes(model: Model, settings: Mapping[str, Any], chip: Chip | None = None, release: Release = FIRST) -> float:
    """Each size is captured twice: whole for decodes, in pieces for the rest."""
    if runner(model, release, settings) == "v2" and not release.reserves_graphs:
        return 0.0
    # With adapters, graphs are captured with their kernels and without.
    times = 2 if settings["enable_lora"] else 1
    return times * 2 * len(captured_sizes(settings, chip, release)) * (GRAPH_BYTES + GRAPH_LAYER_BYTES * model.layers)


def slack_bytes(
    model: Model, chip: Chip, strategy: Strategy, release: Release = FIRST, settings: Mapping[str, Any] | None = None
) -> float:
    """By how much the room for the cache may differ from the estimate, 90% of the time."""
    parts = ["measured"]
    plain = all(isinstance(b.mixer, AttentionMixer) and isinstance(b.ffn, DenseFfn) for b in model.blocks)
    other = not release.measured or runner(model, release, settings) == "v1"
    parts += ["runner"] if other else [] if plain else ["kind"]
    parts += ["chip"] if (chip.architecture, chip.memory_bytes) != MEASURED_ON else []
    parts += ["ranks"] if strategy.ranks > 1 else []
    return float(sum(SLACK[name] ** 2 for name in parts) ** 0.5)


def _recurrent(model: Model) -> bool:
    return any(block.mixer is not None and block.mixer.state_values() for block in model.blocks)
