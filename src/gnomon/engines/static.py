"""What engines of static batches share: libraries and programs that run one batch from its prompts to its last token.

Their operators are lowered as vLLM's; no server of theirs is started, and no load is simulated.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from gnomon.cost.host import HostModel
from gnomon.cost.machine import Machine
from gnomon.cost.profile import Profile
from gnomon.cost.step import StepModel
from gnomon.engines.base import Deployment, Knob, MemoryUse, StageWork
from gnomon.engines.declared import EngineInfo
from gnomon.engines.vllm import earlier, limits
from gnomon.engines.vllm.engine import Vllm
from gnomon.engines.vllm.releases import FIRST, Release
from gnomon.errors import InputError, unknown_name
from gnomon.spec import AttentionMixer, Chip, Model, MoeFfn, NotModelled, Pool, Strategy

if TYPE_CHECKING:  # one step compiles no table
    from gnomon.cost.ranked import DrawnCost

TAKEN = (limits.CONTEXT, limits.SEQUENCES, limits.TOKENS)
"""Settings that say how long and how large a batch is."""


@dataclass(frozen=True)
class StaticEngine(Vllm):
    """One engine of the kind; NCCL sums its partial results, and cuBLAS multiplies."""

    INFO: ClassVar[EngineInfo]
    DEGREES: ClassVar[tuple[str, ...]] = ()
    """Kinds of parallelism beside tensor parallelism."""
    FORMATS: ClassVar[tuple[str, ...]] = ("bf16", "fp16")
    """Of weights; the cache has 16 bits."""

    def __post_init__(self) -> None:
        wanted = self.version or self.INFO.versions[-1]
        if wanted not in self.INFO.versions:
            raise unknown_name(f"version of {self.name}", wanted, self.INFO.versions)
        object.__setattr__(self, "version", wanted)

    @property
    def release(self) -> Release:
        return FIRST

    @property
    def operations(self) -> None:
        return None

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return tuple(knob for knob in super().knobs if knob.name in TAKEN)

    def settings(self, given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
        for name in given:
            if name.replace("-", "_") not in TAKEN:
                raise unknown_name(f"{self.title} setting", name, TAKEN, where="setting")
        filled = super().settings(given, model, pool)
        return {name: filled[name] for name in TAKEN}

    def listed_settings(self) -> tuple[str, ...]:
        return TAKEN

    def arranged(self, strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        if strategy.cp > 1:
            message = f"{strategy.cp} is not 1: {self.title} shares no context"
            raise InputError(message, where="--cp", hint="Use 1, or another engine.")
        return strategy, dict(settings)

    def not_modelled(
        self, given: Mapping[str, Any], deployment: Deployment, idle: Sequence[str] = (), *, under_load: bool = False
    ) -> tuple[NotModelled, ...]:
        found = super().not_modelled(given, self._filled(deployment), idle, under_load=under_load)
        why = f"what {self.title} keeps of memory beside weights and cache is counted as vLLM's: its own is not known"
        return (*found, NotModelled(option=f"--engine {self.name}", why=why))

    def memory(self, deployment: Deployment) -> MemoryUse:
        return super().memory(self._filled(deployment))

    def check(self, deployment: Deployment) -> None:
        self.check_kind(deployment)
        super().check(self._filled(deployment))

    def check_memory(self, deployment: Deployment) -> None:
        self.check_kind(deployment)
        super().check_memory(self._filled(deployment))

    def check_kind(self, deployment: Deployment) -> None:
        """Raise InputError for networks, degrees and formats that are not priced."""
        for block in deployment.model.blocks:
            if not isinstance(block.mixer, AttentionMixer) or isinstance(block.ffn, MoeFfn):
                message = f"{deployment.model.name} is not priced for {self.title}: it has other layers than attention "
                hint = "Use another engine."
                raise InputError(message + "and dense feed-forward networks", where="model", hint=hint)
        earlier.check_offered(deployment, self.title, self.DEGREES, self.FORMATS, ("bf16", "fp16"))

    def stages(self, deployment: Deployment) -> tuple[StageWork, ...]:
        return super().stages(self._filled(deployment))

    def cost_key(self, deployment: Deployment) -> Hashable:
        return super().cost_key(self._filled(deployment))

    def _filled(self, deployment: Deployment) -> Deployment:
        """With vLLM's other settings, as they are by default."""
        settings = super().settings(deployment.settings, deployment.model, deployment.pool)
        return replace(deployment, settings=settings)

    def runs_not_on(self, chip: Chip) -> str:
        return ""

    def profile(self, deployment: Deployment) -> Profile:
        """What its kernels are priced by."""
        return deployment.profile

    def host(self, deployment: Deployment, layers: int | None = None) -> HostModel:
        raise NotImplementedError

    def step_model(self, deployment: Deployment, stage: StageWork | None = None) -> StepModel:
        graph, layers = (self.graph(deployment), None) if stage is None else (stage.graph, stage.layers)
        machine = Machine(deployment.pool, self.profile(deployment), self.INFO.framework)
        found = StepModel(graph=graph, machine=machine, host=self.host(deployment, layers))
        return deployment.techniques.costs(found, deployment)

    def check_simulated(self, deployment: Deployment) -> None:
        raise InputError(
            f"{self.title} runs static batches: its steps are predicted, loads are not simulated",
            where="--engine",
            hint="Use gnomon predict, or another engine.",
        )

    def step_cost(self, deployment: Deployment, longest: int | None = None) -> DrawnCost:
        self.check_simulated(deployment)
        return super().step_cost(deployment, longest)
