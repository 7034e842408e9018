"""How an engine trains: its kernels, its states, what it overlaps, what it keeps for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from gnomon.engines.training.adapters import AdapterStyle
from gnomon.graph.gemm_recipes import GemmRecipe
from gnomon.graph.layers import NodePass
from gnomon.graph.style import KernelStyle
from gnomon.sim.training import names
from gnomon.spec import Chip
from gnomon.spec.recompute import FULL, INSIDE, RECOMPUTE, parse


@dataclass(frozen=True, slots=True)
class Update:
    """One kernel over all parameters of a rank: bytes read and written per parameter, and its efficiency."""

    name: str
    reads: float
    writes: float
    efficiency: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Bytes per parameter of working weights, gradients and states, and the kernels of an update."""

    weight_bytes: float
    gradient_bytes: float
    state_bytes: float
    sharded_weight_bytes: float
    """Of sharded weights at rest: none where the optimizer's own are the weights."""
    updates: tuple[Update, ...]
    """Of the parameters whose states a rank holds."""
    accumulate: Update
    """A micro-batch's gradient added to the sum, of all parameters of a rank."""
    clear: Update
    """Gradients set to zero, of all parameters of a rank."""
    casts: tuple[Update, ...] = ()
    """Working copies made of the weights for every micro-batch, and their gradients cast back, of all parameters."""
    widened_bytes: float = 0.0
    """Of fp32 copies of gradients that are summed in 16 bits, made for the update, of parameters whose states a rank
    holds."""
    widened_stay: bool = False
    """Whether those copies stay for the next update; else they are freed before the next forward pass."""
    copy_bytes: float = 0.0
    """Of working copies, which the layers that are not recomputed save for their backward pass, and the head."""
    newton_steps: int = 0
    """Steps of Newton and Schulz that make each matrix of momenta orthogonal, three GEMMs per step (Muon)."""
    newton_values: int = 1
    """Values of matrices of one shape that are multiplied together, at most: one matrix at a time, where they are
    fewer."""
    traded_bytes: float = 0.0
    """Of a parameter of the layers, which ranks trade for full matrices and back where ZeRO 2 and 3 shard them by
    rows."""
    ends: Optimizer | None = None
    """Of embeddings and heads, where another rule updates them: its states, and its kernels."""

    def states(self, parameters: Any, ends: Any) -> Any:
        """Bytes of the states of so many parameters, of which some are of embeddings and heads."""
        other = self.ends.state_bytes if self.ends else self.state_bytes
        return self.state_bytes * (parameters - ends) + other * ends


@dataclass(frozen=True, slots=True)
class Packing:
    """One way in which an engine makes batches of sequences of several lengths."""

    name: str
    """One of `spec.loads.sequences.PACKINGS`."""
    document_masking: tuple[bool, ...] = (False,)
    """Whether packed documents are kept apart, the usual first."""
    pads: bool = True
    """Packed sequences are padded to the most tokens there may be; else they are flattened."""


PLAIN_PACKINGS = (Packing("wrapped"), Packing("max-length"))
"""Of engines whose attention runs over full rows: documents one after the other, or padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedWeights:
    """What an engine that gathers sharded weights (ZeRO 3) layer by layer takes beyond the collectives themselves."""

    exposed: float = 0.0
    """Share of gathers and scatters that nothing overlaps with: they wait for the module before, and it for them."""
    module_s: float = 0.0
    """Host seconds of the hooks around one module in one pass over it, beside its launches."""
    modules: int = 0
    """Modules of a layer that have such hooks."""
    copied: tuple[Update, ...] = ()
    """Kernels over every parameter that is gathered, in a forward and again in a backward pass."""
    reduced: tuple[Update, ...] = ()
    """Kernels over every gradient that is scattered."""
    software_bytes_s: float = inf
    """Bytes per second that the engine's own handling of gathered weights and scattered gradients allows, one parameter
    after the other, beside what links take."""

    def hooks_s(self, passes: int) -> float:
        """Host seconds of the hooks of a layer."""
        return passes * self.modules * self.module_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One engine in one version, on the chips at hand."""

    style: KernelStyle
    optimizers: Mapping[str, Optimizer]
    source: str = ""
    """What this version's constants were fitted to and tested on; empty where the profile says so."""
    passes: tuple[NodePass, ...] = ()
    """What techniques rewrite of the operators, before gradients are derived."""
    system_spread: float = 0.0
    """Log standard deviation of a step's time that published runs show beside the operators' own: clusters, recipes and
    builds of one version differ. `tools/training_software.py spread` finds it."""
    run_spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By architecture, that of published runs of this version, towards shorter and towards longer steps: it takes the
    place of the operators' own. A straggler makes a step longer, and nothing makes it as much shorter."""
    framework: str = "torch"
    """Whose kernels to price, where a profile has several."""
    grouped_gemm: float = 1.0
    """Throughput of grouped GEMMs relative to as many equal ones in one batch."""
    efficiency: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By architecture of the chip and kind of operator: throughput of this version's kernels relative to those that the
    chip's profile was fitted to; 1 where nothing is said."""
    recipes: tuple[GemmRecipe, ...] = ()
    """Ways to multiply in eight bits or fewer that it has; `style.recipe` is the plan's."""
    narrow_parameters: bool = False
    """Parameters that are multiplied so are kept and gathered so, without working weights in 16 bits beside them."""
    atomic_bytes_s: float = 0.0
    """Of a processor, for kernels that add rows up by atomics (`style.scattered`), whatever the memory behind; 0 where
    it has none."""
    whole_waves: tuple[int, int] | None = None
    """Tiles of GEMMs whose last wave takes as long as a full one; None where the profile's kernels choose better."""
    wire_bytes: float | None = None
    """Bytes of a gradient on the wire; None where it travels as it is summed."""
    overlap_reduce: bool = False
    """Gradients are reduced while the backward pass goes on."""
    overlap_alone: bool = False
    """Gradients are reduced while the backward pass goes on, but only in plans without a pipeline."""
    blocking_sends: bool = False
    split_sends: bool = True
    """Tensor-parallel ranks that hold the same activations send a part each."""
    launch_s: Mapping[str, float] = field(default_factory=dict)
    """Host seconds to launch a kernel, by recomputation: a pass cannot be faster than its launches."""
    runtime_bytes: float = 0.0
    """What the framework holds beside tensors: libraries, workspaces, buffers of collectives."""
    spare: float = 0.0
    """Share of the chip's memory that fragments and cannot be counted on."""
    fragmentation: float = 0.0
    """What the allocator reserves beyond the most it has allocated, as a share of that."""
    caching_allocator: bool = False
    """Steps of plans that neither cut nor shard a network are run through PyTorch's allocator (`allocations.py`), which
    says what it reserves and whether that fits."""
    zero: tuple[int, ...] = (0, 1, 2, 3)
    pipeline_zero: int = 3
    """The most that ranks share out in a pipeline."""
    pieces: bool = False
    """It can cut collectives of tensor parallelism into pieces that overlap with GEMMs."""
    cuda_graphs: bool = False
    """It can replay kernels from CUDA graphs."""
    hybrid_shards: tuple[int, ...] = ()
    """ZeRO stages that it has over some of the data-parallel ranks, with replicas (HSDP)."""
    second_copies: bool = False
    """With ZeRO 3, neighbours may hold a second copy of the weights between them (hpZ)."""
    replicas_once: bool = False
    """Gradients that ZeRO 2 and 3 shard are summed over replicas after the last micro-batch, not after each."""
    schedules: tuple[str, ...] = field(default_factory=names)
    """Schedules of pipelines that it runs."""
    uneven_stages: bool = False
    """Whether a plan may say how many layers each stage of a pipeline has."""
    split_recompute: tuple[str, ...] = RECOMPUTE[:2]
    """Ways to recompute with schedules that split the backward pass: full recomputation would have to keep what it
    recomputes."""
    split_zero: int = 3
    """The most that ranks share out with them."""
    split_tp: bool = True
    """Whether they go with tensor parallelism."""
    recompute: tuple[str, ...] = RECOMPUTE
    """Ways to recompute activations that it has."""
    recomputed_modules: tuple[str, ...] = ()
    """Modules of `spec.recompute.MODULES` that it recomputes by themselves."""
    searched_modules: tuple[str, ...] = ()
    """Of those, which a plan search recomputes together where a network has them: they take little time."""
    recomputed_layers: tuple[str, ...] = ()
    """Choices of layers (`spec.recompute.LAYERS`) that it recomputes in full, where not all are."""
    fills_pipelines: bool = False
    """Schedules need as many micro-batches as give every rank work at once."""
    whole_sums: bool = False
    """In a pipeline, gradients that ZeRO 2 and 3 shard stay unsharded until the last micro-batch."""
    frozen_bytes: float | None = None
    """Of a weight that is not trained; None where it takes what a trained one does beside its states."""
    adapters: AdapterStyle | None = None
    """How it trains low-rank adapters beside frozen weights; None where it does not."""
    sharded_weights: ShardedWeights = ShardedWeights()
    """Of plans with ZeRO 3."""
    refuses: Callable[[str, Any, Mapping[str, Any]], Iterable[tuple[Any, str]]] | None = None
    """Of a technique by its name, a `TrainingCase` and values: plans that the engine does not run with it, and why."""
    host_update_apart: bool = False
    """Whether states on the host are updated once all their gradients are there, and all weights go back after that;
    else copies, the host's work and the backward pass overlap."""
    exposed_gradient_bytes: float = 0.0
    """Of a gradient that is copied to host memory in a backward pass, where that waits for the copy; 0 where copies
    overlap with it."""
    gathers_forward: bool = False
    """With ZeRO 2, weights are gathered for every forward, not once after the optimizer."""
    frees_gradients: bool = False
    """Gradients do not outlive a step: the first micro-batch's are written as its activations go, and added to by the
    next ones."""
    bucketed: bool = False
    """Gradients are copied into buckets of their own to be reduced, which stay (PyTorch's DDP)."""
    packings: tuple[Packing, ...] = PLAIN_PACKINGS
    """How it makes batches of sequences of several lengths, the usual way first."""
    tf32_vendors: tuple[str, ...] = ("NVIDIA", "AMD")
    """Of chips on which GEMMs of fp32 can run in tf32, where a chip has it."""
    cuts_documents: bool = False
    """Ranks of context parallelism share out each document of a packed sequence, not the sequence as it is."""
    buffers_ahead: bool = False
    """A stage holds a buffer for what each micro-batch of the step will send it."""

    def of_chip(self, chip: Chip) -> Mapping[str, float]:
        """Relative efficiency of kernels on a chip's architecture."""
        return self.efficiency.get(chip.architecture.partition(" ")[0], {})

    def launch_of(self, mode: str) -> float:
        """Host seconds to launch a kernel of a layer that is recomputed so."""
        return self.launch_s.get(FULL if mode == INSIDE else parse(mode).like, 0.0)

    def overlaps(self, pp: Any) -> Any:
        """Whether gradients of a plan, or of each of many, are reduced overlapped with its backward passes."""
        return self.overlap_reduce | (self.overlap_alone & np.equal(pp, 1))

    def in_format(self, dtype: str) -> Traits:
        """With the recipe of a plan's format, where that is one of its own."""
        recipe = next((one for one in self.recipes if one.name == dtype), None)
        return replace(self, style=replace(self.style, recipe=recipe)) if recipe else self

    def on_chip(self, chip: Chip) -> Traits:
        """With the copies of narrow operands that the chip's GEMMs need, and its rate of atomics."""
        recipe, style = self.style.recipe.on(chip), self.style
        if self.atomic_bytes_s:
            rate = self.atomic_bytes_s * chip.sm_count / chip.memory_bandwidth_bytes_s
            style = replace(style, scattered=min(rate, 1.0))
        elif recipe is style.recipe:
            return self
        return replace(self, style=replace(style, recipe=recipe))
