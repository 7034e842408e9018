"""SGLang behind the engine contract: graph, memory, limits and step cost."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gnomon.cost.machine import Machine
from gnomon.cost.profile import Profile
from gnomon.cost.step import StepModel
from gnomon.engines.base import Capacity, Deployment, EngineOption, Knob, MemoryUse, Networks, StageWork
from gnomon.engines.sglang import ENGINE, checks, degrees
from gnomon.engines.sglang.memory import check_cache, chunk_of, memory, pool, step_tokens
from gnomon.engines.sglang.options import fill, listed, not_modelled
from gnomon.engines.sglang.overheads import SglangHost, captured_sizes, host, overheads
from gnomon.engines.sglang.scheduling import Scheduling
from gnomon.engines.simulated import check_simulated
from gnomon.engines.tiers import check_tiers
from gnomon.errors import DoesNotFitError, InputError, unknown_name
from gnomon.graph import Graph
from gnomon.graph.support import check_priced
from gnomon.spec import Chip, Model, NotModelled, Pool, ServingLimits, Strategy
from gnomon.units import format_bytes

if TYPE_CHECKING:  # one step compiles no table, and starts no server
    from gnomon.cost.ranked import DrawnCost
    from gnomon.engines.operations import Operations

VERSIONS = ENGINE.versions
DP_CONSERVATIVENESS = 0.3
"""What data-parallel attention multiplies `schedule_conservativeness` by (`_handle_data_parallelism`)."""
SEQUENCES, TOKENS, CONTEXT = "max_running_requests", "chunked_prefill_size", "context_length"
KNOBS = (
    Knob(name=SEQUENCES, values=(64, 128, 256, 512, 1024), label="{} requests"),
    Knob(name=TOKENS, values=(2048, 4096, 8192, 16384), label="chunked prefill {}"),
)


@dataclass(frozen=True)
class Sglang:
    """SGLang 0.5.23: prompts before decodes, a radix cache, one step in flight, graphs for decodes and for prompts."""

    version: str = ""
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        wanted = self.version or VERSIONS[-1]
        full = next((known for known in VERSIONS if known == wanted or known.startswith(f"{wanted}.")), None)
        if full is None:
            raise unknown_name("version of sglang", wanted, VERSIONS)
        object.__setattr__(self, "version", full)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return KNOBS

    def goes_together(self, turned: Mapping[str, int]) -> bool:
        return True

    def options_to_weigh(
        self, given: Mapping[str, Any], pools: Sequence[Pool], *, shares: bool
    ) -> tuple[EngineOption, ...]:
        return ()

    def capacity(self, settings: Mapping[str, Any]) -> Capacity:
        chunk = int(settings[TOKENS])
        tokens = chunk if chunk > 0 else max(int(settings["max_prefill_tokens"]), int(settings[CONTEXT]))
        return Capacity(sequences=int(settings[SEQUENCES]), step_tokens=tokens, context=int(settings[CONTEXT]))

    def settings_for(
        self, *, context: int | None = None, sequences: int | None = None, step_tokens: int | None = None
    ) -> dict[str, int]:
        wanted = {CONTEXT: context, SEQUENCES: sequences, TOKENS: step_tokens}
        return {name: value for name, value in wanted.items() if value is not None}

    def listed_settings(self) -> tuple[str, ...]:
        return listed()

    @property
    def networks(self) -> Networks | None:
        return None

    def sequence_state(self, model: Model) -> tuple[str, float]:
        return model.working_dtype, 0.0

    @property
    def operations(self) -> Operations:
        from gnomon.engines.sglang import operations

        return operations

    def settings(self, given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
        return fill(given, model, pool)

    def not_modelled(
        self, given: Mapping[str, Any], deployment: Deployment, idle: Sequence[str] = (), *, under_load: bool = False
    ) -> tuple[NotModelled, ...]:
        chip = deployment.pool.chip
        why = self.runs_not_on(chip)
        there = (NotModelled(option=chip.name, why=f"{why}; it is priced as if it did"),) if why else ()
        priced = degrees.experts_priced(chip)
        rest = {name: value for name, value in given.items() if (name, value) not in priced}
        return (*there, *not_modelled(rest, idle, under_load))

    def runs_not_on(self, chip: Chip) -> str:
        return checks.not_run(chip)

    def graph(self, deployment: Deployment) -> Graph:
        return degrees.walk(self.stages(deployment))

    def stages(self, deployment: Deployment) -> tuple[StageWork, ...]:
        with checks.as_sglang():
            return degrees.stage_work(deployment)

    def check_simulated(self, deployment: Deployment) -> None:
        check_simulated(deployment)

    def arranged(self, strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        return degrees.arranged(strategy, settings)

    def check(self, deployment: Deployment) -> None:
        check_priced(deployment.model, deployment.dtype)
        degrees.check(deployment)
        check_cache(deployment)
        checks.check_weights(deployment, cut=False)

    def check_memory(self, deployment: Deployment) -> None:
        degrees.check(deployment)
        check_cache(deployment)
        checks.check_weights(deployment, cut=True)

    def memory(self, deployment: Deployment) -> MemoryUse:
        return memory(deployment)

    def limits(self, deployment: Deployment) -> ServingLimits:
        use, settings, held = memory(deployment), deployment.settings, pool(deployment)
        page = use.block_tokens
        check_tiers(use, deployment)
        if held.tokens <= page + 1:
            raise DoesNotFitError(
                f"{deployment.model.name} in {deployment.dtype} leaves no room for a KV pool on "
                f"{deployment.strategy.tp} x {deployment.pool.chip.name} (weights "
                f"{format_bytes(use.parts['weights'])} per chip of {format_bytes(use.usable_bytes)} usable)",
                hint="`gnomon fit` lists the smallest changes that fit.",
            )
        options = scheduling(settings, deployment.strategy.dp)
        found = ServingLimits(
            kv_blocks=use.kv_blocks,
            block_tokens=page,
            max_sequences=held.requests,
            max_step_tokens=max(step_tokens(deployment), held.requests),
            # A request is let in where its prompt, its output and one page are fewer tokens than the pool has.
            max_context=min(int(settings[CONTEXT]), held.tokens - page - 1),
            lookahead=0 if settings["disable_overlap_schedule"] else 1,
            empty_call_s=0.0,
            policy=options.policy,
            cache=options.cache,
            ranks=deployment.strategy.dp,  # round-robin, the default of `load_balance_method` with dp attention
            **overheads(deployment).latencies(),
        )
        changed = deployment.techniques.limits(found, deployment)
        if changed.cache is not found.cache:
            message = "a technique brings a KV cache of its own, and SGLang's scheduler works on its radix tree alone"
            raise InputError(message, where="--with", hint="Leave it out, or use --engine vllm.")
        return changed

    def host(self, deployment: Deployment, layers: int | None = None) -> SglangHost:
        return host(deployment, deployment.model.layers if layers is None else layers)

    def step_model(self, deployment: Deployment, stage: StageWork | None = None) -> StepModel:
        graph, layers = (self.graph(deployment), None) if stage is None else (stage.graph, stage.layers)
        machine = Machine(deployment.pool, own_kernels(deployment.profile))
        found = StepModel(graph=graph, machine=machine, host=self.host(deployment, layers))
        return deployment.techniques.costs(found, deployment)

    def step_cost(self, deployment: Deployment, longest: int | None = None) -> DrawnCost:
        from gnomon.cost.ranked import ranked  # one step compiles no table

        self.check_simulated(deployment)
        most, requests = int(deployment.settings[CONTEXT]), pool(deployment).requests
        table = self.step_model(deployment).table(
            max_context=most if longest is None else min(most, longest),
            max_tokens=max(step_tokens(deployment), requests) + 1,
            max_sequences=requests,
        )
        return ranked(table, deployment.strategy.dp)

    def drawn(
        self, deployment: Deployment, draws: int, longest: int | None = None
    ) -> Iterator[tuple[DrawnCost, ServingLimits]]:
        cost, limits, extra = self.step_cost(deployment, longest), self.limits(deployment), overheads(deployment)
        yield cost, limits
        for draw in range(draws):
            yield cost.drawn(draw), replace(limits, **extra.latencies(draw))

    @property
    def cost_ranges(self) -> tuple[str, ...]:
        return ()

    def cost_key(self, deployment: Deployment) -> Hashable:
        names = (SEQUENCES, TOKENS, CONTEXT, "max_prefill_tokens", "enable_mixed_chunk")
        return captured_sizes(deployment), pool(deployment).requests, *(deployment.settings[name] for name in names)


def own_kernels(profile: Profile) -> Profile:
    """Operators by the kernels that SGLang runs, where a profile has fits of them; collectives are the engine's own, as
    vLLM's are, from whose custom all-reduce they come."""
    mark = f".{ENGINE.framework}"
    own = {key.removesuffix(mark): family for key, family in profile.families.items() if key.endswith(mark)}
    return replace(profile, families={**profile.families, **own}) if own else profile


def scheduling(settings: Mapping[str, Any], dp: int = 1) -> Scheduling:
    """What each of so many data-parallel schedulers reads of the settings."""
    chunk = chunk_of(settings, dp)
    most = settings["prefill_max_requests"]
    return Scheduling(
        chunk_tokens=chunk if chunk > 0 else None,
        prefill_tokens=int(settings["max_prefill_tokens"]),
        prefill_requests=None if most is None else int(most),
        mixed=bool(settings["enable_mixed_chunk"]),
        conservativeness=float(settings["schedule_conservativeness"]) * (DP_CONSERVATIVENESS if dp > 1 else 1.0),
        order=str(settings["schedule_policy"]),
        radix=not settings["disable_radix_cache"],
    )
