"""vLLM behind the engine contract: graph, memory, limits and step cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gnomon.cost.host import HostModel
from gnomon.cost.machine import Machine
from gnomon.cost.step import StepModel
from gnomon.engines.base import Capacity, Deployment, EngineOption, Knob, MemoryUse, Networks, StageWork
from gnomon.engines.tiers import check_tiers
from gnomon.engines.vllm import (
    ENGINE,
    degrees,
    drafts,
    earlier,
    limits,
    lora,
    offload,
    offloaders,
    platforms,
    simulated,
    weight_offload,
)
from gnomon.engines.vllm.blocks import check_blocks
from gnomon.engines.vllm.cache import sequence_state_bytes
from gnomon.engines.vllm.captures import captured_sizes
from gnomon.engines.vllm.formats import check_formats
from gnomon.engines.vllm.memory import memory
from gnomon.engines.vllm.options import fill, listed, not_modelled
from gnomon.engines.vllm.overheads import Overheads, overheads
from gnomon.engines.vllm.releases import Release, release
from gnomon.engines.vllm.states import state_dtype
from gnomon.engines.vllm.weighed import options_to_weigh
from gnomon.engines.vllm.weights import check_cuts
from gnomon.errors import DoesNotFitError
from gnomon.graph import Graph
from gnomon.graph.support import check_priced
from gnomon.spec import Chip, Model, NotModelled, Pool, ServingLimits, Strategy
from gnomon.units import format_bytes

if TYPE_CHECKING:  # one step compiles no table, and starts no server
    from gnomon.cost.ranked import DrawnCost
    from gnomon.engines.operations import Operations

COSTED = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_model_len",
    "enable_lora",
    "max_lora_rank",
    "speculative_method",
    "num_speculative_tokens",
    "draft_parameters",
    "expert_popularity",
    "enable_eplb",
    "num_redundant_experts",
    *offloaders.SETTINGS,
)
"""Settings that a step's cost depends on, beside the sizes that are captured."""


@dataclass(frozen=True)
class Vllm:
    """vLLM: asynchronous scheduling, chunked prompts, full graphs for decodes, piecewise ones for the rest."""

    version: str = ""
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", release(self.version).version)

    @property
    def release(self) -> Release:
        """What its version differs from others in."""
        return release(self.version)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return limits.KNOBS

    def goes_together(self, turned: Mapping[str, int]) -> bool:
        return limits.goes_together(turned)

    def options_to_weigh(
        self, given: Mapping[str, Any], pools: Sequence[Pool], *, shares: bool
    ) -> tuple[EngineOption, ...]:
        found = options_to_weigh(given, pools, shares=shares)
        why = f"{self.release.title} is predicted with what it has by default"
        return (
            found
            if self.release.operated
            else tuple(replace(one, on={}, off={}, usual=False, reject_reason=why) for one in found)
        )

    def capacity(self, settings: Mapping[str, Any]) -> Capacity:
        return limits.capacity(settings)

    def settings_for(
        self, *, context: int | None = None, sequences: int | None = None, step_tokens: int | None = None
    ) -> dict[str, int]:
        return limits.settings_for(context, sequences, step_tokens)

    def listed_settings(self) -> tuple[str, ...]:
        return listed() if self.release.operated else self.release.takes

    @property
    def networks(self) -> Networks:
        from gnomon.engines.vllm import networks

        return networks

    def sequence_state(self, model: Model) -> tuple[str, float]:
        return state_dtype(model), sequence_state_bytes(model)

    @property
    def operations(self) -> Operations | None:
        if not self.release.operated:
            return None
        from gnomon.engines.vllm import operations

        return operations

    def settings(self, given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
        return fill(given, model, pool, self.release)

    def not_modelled(
        self, given: Mapping[str, Any], deployment: Deployment, idle: Sequence[str] = (), *, under_load: bool = False
    ) -> tuple[NotModelled, ...]:
        chip = deployment.pool.chip
        why = self.runs_not_on(chip)
        there = (NotModelled(option=chip.name, why=f"{why}; it is priced as if it did"),) if why else ()
        others = (*self._otherwise(given, idle), *earlier.as_today(self.release))
        return (*there, *not_modelled(given, deployment, idle, under_load), *others)

    def _otherwise(self, given: Mapping[str, Any], idle: Sequence[str]) -> Iterator[NotModelled]:
        """Settings that act as in the measured release, and not quite as in this one."""
        filled = {name.replace("-", "_"): value for name, value in given.items()}
        for name, what in self.release.otherwise:
            if name not in idle and filled.get(name) not in (None, 0, drafts.NONE):
                yield NotModelled(option=f"{name}={filled[name]}", why=f"{self.release.title} {what}: not simulated")

    def runs_not_on(self, chip: Chip) -> str:
        return platforms.not_run(chip, self.release.title) or earlier.not_run(chip, self.release)

    def graph(self, deployment: Deployment) -> Graph:
        return degrees.walk(self.stages(deployment))

    def stages(self, deployment: Deployment) -> tuple[StageWork, ...]:
        return weight_offload.read_from_host(deployment, degrees.stage_work(deployment))

    def check_simulated(self, deployment: Deployment) -> None:
        simulated.check(deployment)

    def arranged(self, strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        return degrees.arranged(strategy, settings)

    def check(self, deployment: Deployment) -> None:
        check_priced(deployment.model, deployment.dtype)
        degrees.check(deployment)
        check_formats(deployment)
        earlier.check_release(deployment, self.release)
        _check_blocks(deployment)
        lora.check(deployment)
        offload.check(deployment)
        weight_offload.check(deployment)

    def check_memory(self, deployment: Deployment) -> None:
        degrees.check(deployment)
        check_formats(deployment)
        earlier.check_release(deployment, self.release)
        check_cuts(deployment.model, deployment.strategy)
        _check_blocks(deployment)
        lora.check(deployment)
        offload.check(deployment)
        weight_offload.check(deployment)

    def memory(self, deployment: Deployment) -> MemoryUse:
        use = memory(deployment, self.release)
        return use if deployment.images is None else _images().beside(use, deployment)

    def limits(self, deployment: Deployment) -> ServingLimits:
        from gnomon.sim.serving.caches.counted import CountedBlocks  # one step simulates nothing
        from gnomon.sim.serving.caches.hashed import HashedBlocks
        from gnomon.sim.serving.caches.tiered import TieredBlocks

        use, settings = self.memory(deployment), deployment.settings
        check_tiers(use, deployment)
        longest = int(settings["max_model_len"])
        held = use.longest(longest)
        if held < longest:
            raise DoesNotFitError(
                f"{deployment.model.name} in {deployment.dtype} leaves room for {held:,} cached tokens on "
                f"{deployment.strategy.tp} x {deployment.pool.chip.name}, less than max_model_len "
                f"{settings['max_model_len']:,} (weights {format_bytes(use.parts['weights'])} per chip of "
                f"{format_bytes(use.usable_bytes)} usable)",
                hint="`gnomon fit` lists the smallest changes that fit.",
            )
        cache: Callable[..., Any] = HashedBlocks if settings["enable_prefix_caching"] else CountedBlocks
        if settings["kv_offloading_size"]:
            cache = TieredBlocks
        found = ServingLimits(
            by_priority=settings["scheduling_policy"] == "priority",
            policy=self.policy(settings, images=deployment.images is not None),
            **(_images().limits(deployment, self.release) if deployment.images else {}),
            **lora.limits(deployment),
            **drafts.limits(deployment),
            kv_blocks=use.tokens_held(longest) // use.block_tokens,
            block_tokens=use.block_tokens,
            max_sequences=settings["max_num_seqs"],
            max_step_tokens=settings["max_num_batched_tokens"],
            max_context=settings["max_model_len"],
            lookahead=1 if settings["async_scheduling"] else 0,
            cache=cache,
            **simulated.limits(deployment.strategy),
            **offload.limits(deployment, use),
            **self._overheads(deployment).latencies(front_end=settings["front_end"]),
        )
        return deployment.techniques.limits(found, deployment)

    def policy(self, settings: Mapping[str, Any], images: bool = False) -> Callable[..., Any] | None:
        """The scheduler of these settings, and of requests with images; the simulator's default where it does."""
        from gnomon.engines.vllm.policies import InPlacePolicy, InPlaceSteppedPolicy
        from gnomon.sim.serving.policies.ordered import OrderedPolicy
        from gnomon.sim.serving.policies.stepped import SteppedPolicy

        stepped = images or settings["speculative_method"] != drafts.NONE or settings["kv_offloading_size"]
        if settings["scheduling_policy"] != "priority" and not settings["enable_lora"]:
            return SteppedPolicy if stepped else None
        if self.release.keeps_order:
            return InPlaceSteppedPolicy if stepped else InPlacePolicy
        return SteppedPolicy if stepped else OrderedPolicy

    def _captured(self, deployment: Deployment) -> list[int]:
        return captured_sizes(deployment.settings, deployment.pool.chip, self.release)

    def _overheads(self, deployment: Deployment) -> Overheads:
        return overheads(deployment, self.release)

    def host(self, deployment: Deployment, layers: int | None = None) -> HostModel:
        captured = tuple(self._captured(deployment))
        return self._overheads(deployment).host(deployment.model.layers if layers is None else layers, captured)

    def step_model(self, deployment: Deployment, stage: StageWork | None = None) -> StepModel:
        graph, layers = (self.graph(deployment), None) if stage is None else (stage.graph, stage.layers)
        machine = Machine(deployment.pool, deployment.profile)
        host = self.host(deployment, layers)
        adapters, drafting = lora.adapter_cost(deployment), drafts.draft_cost(deployment)
        tower = _images().tower_cost(deployment) if deployment.images else None
        place = None if stage is None else self.stages(deployment).index(stage)
        prefetch = weight_offload.prefetch_cost(deployment, place)
        found = StepModel(
            graph=graph, machine=machine, host=host, adapters=adapters, drafting=drafting, tower=tower,
            prefetch=prefetch,
        )  # fmt: skip
        return deployment.techniques.costs(found, deployment)

    def step_cost(self, deployment: Deployment, longest: int | None = None) -> DrawnCost:
        from gnomon.cost.ranked import ranked  # one step compiles no table
        from gnomon.cost.staged import StagedStepCost

        simulated.check(deployment)
        settings = deployment.settings
        most = int(settings["max_model_len"])
        sizes = {
            "max_context": most if longest is None else min(most, longest),
            "max_tokens": settings["max_num_batched_tokens"],
            "max_sequences": settings["max_num_seqs"],
        }
        if deployment.strategy.pp > 1:
            stages = self.stages(deployment)
            return StagedStepCost.of([self.step_model(deployment, stage).table(**sizes) for stage in stages])
        return ranked(self.step_model(deployment).table(**sizes), deployment.strategy.dp)

    def drawn(
        self, deployment: Deployment, draws: int, longest: int | None = None
    ) -> Iterator[tuple[DrawnCost, ServingLimits]]:
        cost, limits, extra = self.step_cost(deployment, longest), self.limits(deployment), self._overheads(deployment)
        yield cost, limits
        for draw in range(draws):
            yield cost.drawn(draw), replace(limits, **extra.latencies(draw, deployment.settings["front_end"]))

    @property
    def cost_ranges(self) -> tuple[str, ...]:
        return ("max_num_seqs", "max_num_batched_tokens")

    def cost_key(self, deployment: Deployment) -> Hashable:
        return tuple(self._captured(deployment)), tuple(
            deployment.settings[name] for name in (*COSTED, degrees.CONTEXT)
        )


def _images() -> Any:
    """Images of requests, which most loads do not have."""
    from gnomon.engines.vllm import images

    return images


def _check_blocks(deployment: Deployment) -> None:
    """A technique with its own GEMM kernels reads blocks in its own way."""
    if not deployment.techniques.brings_gemm_kernels:
        check_blocks(deployment.model, deployment.strategy)
