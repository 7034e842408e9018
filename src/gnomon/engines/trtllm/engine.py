"""TensorRT-LLM behind the engine contract: graph, memory, limits and step cost."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gnomon.cost.host import HostModel
from gnomon.cost.machine import Machine
from gnomon.cost.step import StepModel
from gnomon.engines.base import Capacity, Deployment, EngineOption, Knob, MemoryUse, StageWork
from gnomon.engines.simulated import check_simulated
from gnomon.engines.tiers import check_tiers
from gnomon.engines.trtllm import ENGINE, degrees, limits, platforms
from gnomon.engines.trtllm.formats import check_formats
from gnomon.engines.trtllm.memory import memory
from gnomon.engines.trtllm.options import captured_sizes, fill, listed, not_modelled
from gnomon.engines.trtllm.overheads import overheads, responses
from gnomon.engines.trtllm.scheduler import GUARANTEED_NO_EVICT, InflightBatching
from gnomon.engines.vllm.weights import check_cuts
from gnomon.errors import DoesNotFitError, InputError, unknown_name
from gnomon.graph import Graph
from gnomon.graph.support import check_priced
from gnomon.spec import Chip, Model, NotModelled, Pool, ServingLimits, Strategy
from gnomon.units import format_bytes

if TYPE_CHECKING:  # one step compiles no table, and starts no server
    from gnomon.cost.ranked import DrawnCost
    from gnomon.engines.operations import Operations

VERSIONS = ENGINE.versions


@dataclass(frozen=True)
class Trtllm:
    """TensorRT-LLM 1.2, PyTorch backend: in-flight batching, overlap scheduler, CUDA graphs for decodes."""

    version: str = ""
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        wanted = self.version or VERSIONS[-1]
        full = next((known for known in VERSIONS if known == wanted or known.startswith(f"{wanted}.")), None)
        if full is None:
            raise unknown_name("version of trtllm", wanted, VERSIONS)
        object.__setattr__(self, "version", full)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return limits.KNOBS

    def goes_together(self, turned: Mapping[str, int]) -> bool:
        return limits.goes_together(turned)

    def options_to_weigh(
        self, given: Mapping[str, Any], pools: Sequence[Pool], *, shares: bool
    ) -> tuple[EngineOption, ...]:
        return ()

    def capacity(self, settings: Mapping[str, Any]) -> Capacity:
        return limits.capacity(settings)

    def settings_for(
        self, *, context: int | None = None, sequences: int | None = None, step_tokens: int | None = None
    ) -> dict[str, int]:
        return limits.settings_for(context, sequences, step_tokens)

    def listed_settings(self) -> tuple[str, ...]:
        return listed()

    @property
    def networks(self) -> None:
        return None

    def sequence_state(self, model: Model) -> tuple[str, float]:
        return "bf16", model.state_bytes_per_sequence(2.0)

    @property
    def operations(self) -> Operations:
        from gnomon.engines.trtllm import operations

        return operations

    def settings(self, given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
        return fill(given, model, pool)

    def not_modelled(
        self, given: Mapping[str, Any], deployment: Deployment, idle: Sequence[str] = (), *, under_load: bool = False
    ) -> tuple[NotModelled, ...]:
        chip = deployment.pool.chip
        why = self.runs_not_on(chip)
        there = (NotModelled(option=chip.name, why=f"{why}; it is priced as if it did"),) if why else ()
        return (*there, *not_modelled(given, idle, under_load))

    def runs_not_on(self, chip: Chip) -> str:
        return platforms.not_run(chip)

    def graph(self, deployment: Deployment) -> Graph:
        return degrees.walk(self.stages(deployment))

    def stages(self, deployment: Deployment) -> tuple[StageWork, ...]:
        return degrees.stage_work(deployment)

    def check_simulated(self, deployment: Deployment) -> None:
        check_simulated(deployment, dense_ranks="not simulated")

    def arranged(self, strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        return degrees.arranged(strategy, settings)

    def check(self, deployment: Deployment) -> None:
        check_priced(deployment.model, deployment.dtype)
        _check_states(deployment.model)
        degrees.check(deployment)
        check_formats(deployment)

    def check_memory(self, deployment: Deployment) -> None:
        _check_states(deployment.model)
        degrees.check(deployment)
        check_formats(deployment)
        check_cuts(deployment.model, deployment.strategy)

    def memory(self, deployment: Deployment) -> MemoryUse:
        return memory(deployment)

    def limits(self, deployment: Deployment) -> ServingLimits:
        from gnomon.engines.trtllm.reuse import ReusedBlocks  # one step simulates nothing
        from gnomon.sim.serving.caches.counted import CountedBlocks

        use, settings = memory(deployment), deployment.settings
        longest = int(settings["max_seq_len"])
        check_tiers(use, deployment)
        if use.longest(longest) < longest:
            raise DoesNotFitError(
                f"{deployment.model.name} in {deployment.dtype} leaves room for {use.longest(longest):,} cached tokens "
                f"on {deployment.strategy.tp} x {deployment.pool.chip.name}, less than max_seq_len {longest:,} "
                f"(weights {format_bytes(use.parts['weights'])} per chip of {format_bytes(use.total_bytes)})",
                hint="`gnomon fit` lists the smallest changes that fit.",
            )
        no_evict = settings["capacity_scheduler_policy"] == GUARANTEED_NO_EVICT
        found = ServingLimits(
            kv_blocks=use.kv_blocks,
            block_tokens=use.block_tokens,
            max_sequences=settings["max_batch_size"],
            max_step_tokens=settings["max_num_tokens"],
            max_context=longest,
            lookahead=0 if settings["disable_overlap_scheduler"] else 1,
            empty_call_s=0.0,  # the loop takes the outputs in flight and goes on
            policy=InflightBatching(no_evict=no_evict, chunked=settings["enable_chunked_prefill"]),
            cache=ReusedBlocks if settings["enable_block_reuse"] else CountedBlocks,
            **degrees.limits(deployment),
            **overheads(deployment).latencies(settings),
        )
        return deployment.techniques.limits(found, deployment)

    def host(self, deployment: Deployment, layers: int | None = None) -> HostModel:
        settings = deployment.settings
        count = deployment.model.layers if layers is None else layers
        captured = tuple(captured_sizes(settings))
        padded = bool(settings["cuda_graph_enable_padding"])
        return overheads(deployment).host(count, captured, padded, responses(settings))

    def step_model(self, deployment: Deployment, stage: StageWork | None = None) -> StepModel:
        graph, layers = (self.graph(deployment), None) if stage is None else (stage.graph, stage.layers)
        machine = Machine(deployment.pool, deployment.profile, ENGINE.framework, serves=True)
        found = StepModel(graph=graph, machine=machine, host=self.host(deployment, layers))
        return deployment.techniques.costs(found, deployment)

    def step_cost(self, deployment: Deployment, longest: int | None = None) -> DrawnCost:
        from gnomon.cost.ranked import ranked  # one step compiles no table

        self.check_simulated(deployment)
        settings = deployment.settings
        most = int(settings["max_seq_len"])
        table = self.step_model(deployment).table(
            max_context=most if longest is None else min(most, longest),
            max_tokens=settings["max_num_tokens"],
            max_sequences=settings["max_batch_size"],
        )
        return ranked(table, deployment.strategy.dp)

    def drawn(
        self, deployment: Deployment, draws: int, longest: int | None = None
    ) -> Iterator[tuple[DrawnCost, ServingLimits]]:
        cost, found, extra = self.step_cost(deployment, longest), self.limits(deployment), overheads(deployment)
        yield cost, found
        for draw in range(draws):
            yield cost.drawn(draw), replace(found, **extra.latencies(deployment.settings, draw))

    @property
    def cost_ranges(self) -> tuple[str, ...]:
        return ("max_batch_size", "max_num_tokens")

    def cost_key(self, deployment: Deployment) -> Hashable:
        settings = deployment.settings
        sizes = (settings[name] for name in ("max_num_tokens", "max_batch_size", "max_seq_len"))
        return tuple(captured_sizes(settings)), settings["cuda_graph_enable_padding"], responses(settings), *sizes


def _check_states(model: Model) -> None:
    if any(block.mixer is not None and block.mixer.state_values() for block in model.blocks):
        raise InputError(
            f"{model.name} keeps states of sequences, whose cache under TensorRT-LLM is not modelled",
            where="--engine",
            hint="Use --engine vllm.",
        )
