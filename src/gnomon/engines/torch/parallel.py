"""One rank's shard of the network: split, initialised and wrapped.

Tensor parallelism is PyTorch's (`ColwiseParallel`, `RowwiseParallel`), the head sharded by vocabulary under
`loss_parallel`. Norms work on this rank's tokens with replicated weights. Every weight is drawn unsharded, seeded by
its name, and then split: all plans start from the same weights.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module

from gnomon.engines.torch import context
from gnomon.engines.torch.experts import MixtureOfExperts
from gnomon.engines.torch.model import Part, Tensor, rope_table
from gnomon.engines.torch.optimizers import optimizers
from gnomon.engines.torch.ranks import Place
from gnomon.engines.torch.techniques import Together
from gnomon.engines.training.stages import Stages
from gnomon.sim.training import schedule, usual_schedule
from gnomon.spec import Recipe
from gnomon.spec.training_job import TrainingJob

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
WEIGHT_STD = 0.02
"""As GPT-2 and Llama are initialised."""
HEAD_NORMS = ("attn.q_norm.weight", "attn.k_norm.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The parts of the network on this rank, and which weights tensor-parallel ranks replicate."""

    parts: tuple[Part, ...]
    copied: frozenset[str]
    """Weights that tensor-parallel ranks replicate."""
    summed: frozenset[str]
    """Replicated weights whose gradient on a rank covers its local tokens or heads only."""

    def named(self) -> list[tuple[str, Any]]:
        """Weights that learn."""
        return [entry for part in self.in_order for entry in part.named_parameters() if entry[1].requires_grad]

    @property
    def in_order(self) -> list[Part]:
        """Parts from the embedding to the head: ranks that hold the same hold it in one order."""
        return sorted(self.parts, key=lambda part: (part.head is not None, part.embed is None, *map(int, part.layers)))

    def held(self, axis: str) -> list[tuple[str, Any]]:
        """Those of them whose gradients are reduced over an axis: copies, or of shared-out experts expert_copies."""
        shared = {
            f"{prefix}.{name}"
            for part in self.parts
            for prefix, module in part.named_modules()
            if isinstance(module, MixtureOfExperts) and module.place is not None
            for name, _ in module.experts.named_parameters(prefix="experts")
        }
        return [(name, weight) for name, weight in self.named() if (name in shared) == (axis == "expert_copies")]


def build(job: TrainingJob, seed: int, place: Place, techniques: Together) -> Share:
    """This rank's parts with initialised weights."""
    model, strategy, recipe, seq = job.model, job.strategy, job.recipe, job.load.seq
    dtype = DTYPES[job.dtype]
    held = stages(job)
    parts, copied, summed = [], set(), set()
    numbers = schedule(recipe.schedule if strategy.pp > 1 else usual_schedule(1).name).placement
    for stage in numbers.stages(strategy.pp, strategy.vp)[place.at("pp")].tolist():
        with torch.device("meta"):
            part = Part(model, held[stage], seq, recipe, ends=(stage == 0, stage + 1 == len(held)))
        if strategy.ep > 1:
            for layer in part.layers.values():
                layer.ffn.share(place)
        if strategy.cp > 1:
            _share_sequences(part, recipe, seq, place)
        if strategy.tp > 1:
            _cut(part, place, recipe.sequence_parallel)
        with torch.device("meta"):
            techniques.build(part)
        if strategy.tp > 1:
            replicated = {name: weight for name, weight in part.named_parameters() if _is_replicated(weight)}
            copied |= set(replicated)
            summed |= {
                name for name, weight in replicated.items() if _is_summed(name, weight, recipe.sequence_parallel)
            }
        Filling(job=job, seed=seed, place=place, techniques=techniques).fill(part)
        if not model.learned_positions:
            cos, sin = rope_table(seq, model.blocks[0].attention.head_dim, dtype, place.device)
            rows = context.positions(seq, place)
            part.rope = cos[rows], sin[rows]
        parts.append(part)
    return Share(parts=tuple(parts), copied=frozenset(copied), summed=frozenset(summed))


def stages(job: TrainingJob) -> list[range]:
    """Layers of every pipeline stage, as they are priced."""
    placement = schedule(job.recipe.schedule).placement
    parts = job.strategy.pp * (1 if placement.copies == 2 else job.strategy.vp)
    sizes = Stages(job.model, job.recipe.stage_layers if job.strategy.pp > 1 else ()).sizes(parts).tolist()
    ends = list(accumulate(sizes))
    return [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _is_replicated(weight: Any) -> bool:
    return not isinstance(weight, DTensor) or bool(weight.placements[0].is_replicate())


def _is_summed(name: str, weight: Any, sequence_parallel: bool) -> bool:
    """DTensor reduces its own gradients; a plain norm sees local tokens only, a norm of heads local heads only."""
    return not isinstance(weight, DTensor) and (sequence_parallel or name.endswith(HEAD_NORMS))


def _share_sequences(part: Part, recipe: Recipe, seq: int, place: Place) -> None:
    """Attention over the tokens of all context-parallel ranks."""
    for layer in part.layers.values():
        layer.attn.mix = context.attention(recipe.cp_comm, place)
    if part.embed is not None:
        part.embed.rows = context.positions(seq, place)


def _cut(part: Part, place: Place, sequence_parallel: bool) -> None:
    """Replace weights by this rank's shards and insert the collectives: two per layer, forward and backward."""
    mesh = place.mesh("tp")
    between = Shard(1) if sequence_parallel else Replicate()
    attn_input = {"input_layouts": (between, None), "desired_input_layouts": (Replicate(), None)}
    ffn_input = {"input_layouts": (between,), "desired_input_layouts": (Replicate(),)}
    for layer in part.layers.values():
        plan: dict[str, Any] = {f"attn.{name}": ColwiseParallel() for name in "qkv"}
        plan |= {f"ffn.{name}": ColwiseParallel() for name in ("gate", "up") if getattr(layer.ffn, name) is not None}
        plan |= {name: RowwiseParallel(output_layouts=between) for name in ("attn.out", "ffn.down")}
        # One all-gather for all projections that read the same tokens.
        plan |= {"attn": PrepareModuleInput(**attn_input), "ffn": PrepareModuleInput(**ffn_input)}
        parallelize_module(layer, mesh, plan)
    if part.embed is not None:
        cut = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
        parallelize_module(part.embed, mesh, {"tokens": cut})
        if sequence_parallel:
            part.embed.cut(place.size("tp"), place.at("tp"))
    if part.head is not None:
        cut = ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(part, mesh, {"head": cut})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Weights initialised layer by layer, so that under ZeRO 2 and 3 at most one layer is unsharded at a time."""

    job: TrainingJob
    seed: int
    place: Place
    techniques: Together

    def fill(self, part: Part) -> None:
        for number, layer in part.layers.items():
            self._draw(layer, f"layers.{number}.")
            self._ready(layer)
        head = part.head if self.job.model.tied_embeddings else None
        if head is not None:
            head.weight = None
        self._draw(part, "")
        if head is not None and part.embed is not None:
            head.weight = part.embed.tokens.weight
        self._ready(part)

    def _ready(self, module: nn.Module) -> None:
        self.techniques.drawn(module)
        if self.job.recipe.zero < 2:
            return
        working = DTYPES[self.job.dtype]
        ffn = getattr(module, "ffn", None)
        if isinstance(ffn, MixtureOfExperts) and ffn.place is not None:
            _shard(ffn.experts, working, self.job.recipe, self.place.sharded("expert_copies"))
        _shard(module, working, self.job.recipe, self.place.sharded("copies"))

    def _draw(self, root: nn.Module, prefix: str) -> None:
        for path, module in root.named_modules():
            for key, empty in list(module.named_parameters(recurse=False)):
                if empty.is_meta:
                    name = prefix + (f"{path}.{key}" if path else key)
                    filled = nn.Parameter(self._drawn(name, empty), requires_grad=empty.requires_grad)
                    setattr(module, key, filled)

    def _drawn(self, name: str, empty: Any) -> Tensor:
        working, recipe = DTYPES[self.job.dtype], self.job.recipe
        masters = recipe.zero >= 2 and optimizers()[recipe.optimizer].fp32_masters
        full = _initial(name, empty, self.seed, self.place).to(working).to(torch.float32 if masters else working)
        if not isinstance(empty, DTensor):
            return full
        (placement,) = empty.placements
        if placement.is_shard():
            pieces = full.chunk(self.place.size("tp"), placement.dim)
            full = pieces[self.place.at("tp")].clone(memory_format=torch.contiguous_format)
        return DTensor.from_local(full, empty.device_mesh, empty.placements, run_check=False)


def _initial(name: str, empty: Any, seed: int, place: Place) -> Tensor:
    """A whole weight in fp32: the number it starts at, where it has one, else drawn."""
    full = torch.empty(empty.shape, dtype=torch.float32, device=place.device)
    start = getattr(empty, "start_at", None)
    first = getattr(empty, "first_of_stack", None)
    if start is None and empty.dim() == (1 if first is None else 2):
        start = 0.0 if name.endswith("bias") else 1.0
    if start is not None:
        return full.fill_(start)
    for number, matrix in enumerate([full] if first is None else full, first or 0):
        own = name if first is None else f"{name}.{number}"
        chance = torch.Generator(place.device).manual_seed(zlib.crc32(f"{seed} {own}".encode()))
        matrix.normal_(0.0, WEIGHT_STD, generator=chance)
    return full


def _shard(module: nn.Module, working: Any, recipe: Recipe, mesh: Any) -> None:
    precision = MixedPrecisionPolicy(param_dtype=working, reduce_dtype=torch.float32)
    # None: a layer reshards after its forward; the root, whose backward comes next, does not.
    reshard = None if recipe.zero == 3 else False
    fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward=reshard)
    # Losses are scaled before the backward pass, so gradients are summed.
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
