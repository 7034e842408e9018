"""The contract of an engine, model side: everything specific to one engine is behind it, in words that all share.

What starts an engine is apart, in `operations.py`: predictions never import it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gnomon.cost.host import HostModel
from gnomon.cost.profile import Profile
from gnomon.cost.step import Piece, StepCost, StepModel
from gnomon.engines.own import MeasuredHosts
from gnomon.engines.techniques import NO_TECHNIQUES, AppliedTechniques
from gnomon.graph import Graph
from gnomon.spec import (
    Batch,
    Chip,
    ImageTokens,
    Model,
    NotModelled,
    Pool,
    Recipe,
    ServingLimits,
    Strategy,
    TrainingLoad,
)

if TYPE_CHECKING:  # serving imports nothing of training, and no prediction what starts an engine
    from gnomon.engines.operations import Operations
    from gnomon.engines.training.traits import Traits
    from gnomon.spec import NetworkStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagesTaken:
    """Images of a request, as its model's tower takes them: so many, all alike."""

    count: int
    taken: ImageTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is served or trained, and on which chips."""

    model: Model
    pool: Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCase(Case):
    """One replica as it is asked for, before an engine has filled in its defaults; a `Deployment` once it has."""

    strategy: Strategy
    dtype: str | None = None
    """Format of the weights, where it was given."""
    kv_dtype: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(ServingCase):
    """One replica: a model on chips under an engine. Settings hold every option, defaults filled in."""

    dtype: str
    kv_dtype: str
    settings: Mapping[str, Any]
    profile: Profile
    """What the chip's operators are priced by."""
    overheads: MeasuredHosts = field(default_factory=dict)
    """Host overheads that the user measured; see `engines/own.py`."""
    dp_load_ratio: float = 1.0
    """Tokens of all data-parallel ranks in a step, over those if each had as many as the busiest."""
    images: ImagesTaken | None = None
    """Images of every request, where a load has some."""
    techniques: AppliedTechniques = NO_TECHNIQUES
    """What its techniques change; `strategy.techniques` has their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes:
    """What one rank holds beside its KV cache: on its chip, and in the tiers that it shares with its host's others."""

    weights: float
    activations: float
    runtime: float
    host: float = 0.0
    nvme: float = 0.0

    @property
    def total(self) -> float:
        """On the chip."""
        return self.weights + self.activations + self.runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes on one rank. `parts` has weights, activations, runtime and kv; kv is what is left for the cache."""

    total_bytes: float
    usable_bytes: float
    parts: Mapping[str, float]
    kv_blocks: int
    """Blocks that sequences may use; all ranks have as many."""
    kv_bytes_per_token: float
    block_tokens: int = 16
    block_bytes: float = 0.0
    """Of the whole network's layers that one tensor-parallel rank would hold."""
    slack_bytes: float = 0.0
    """By how much `kv` may differ from what the engine finds, 90% of the time."""
    context: int = 0
    """Tokens of the longest sequence that the engine takes."""
    step_tokens: int = 1
    """The most tokens of one step: a sequence is only let in where there is room for as many of its own at once."""
    host_bytes: float = 0.0
    """Memory of each host that its ranks take, with weights above all."""
    nvme_bytes: float = 0.0
    """Of each host's disks."""
    full_tier: str = ""
    """The tier beyond the chip that has no room for its part; no sequence fits then."""
    sequence_blocks: Callable[[int, int], int] | None = None
    """Blocks of a sequence of so many tokens, up to so many of them of one step, where they are not just its tokens
    over those of a block: what has left a window is only given up between steps."""

    def blocks_of(self, tokens: int) -> int:
        """Blocks that there must be for one sequence of so many tokens to be let in."""
        if self.sequence_blocks is None:
            return -(-tokens // self.block_tokens)
        return self.sequence_blocks(tokens, self.step_tokens)

    def sequence_bytes(self, tokens: int, new: int) -> float:
        """Cache bytes that one sequence of so many tokens holds after a step that made `new` of them, with whole blocks
        where layers keep different things."""
        if self.sequence_blocks is None:
            return tokens * self.kv_bytes_per_token
        return self.sequence_blocks(tokens, min(new, self.step_tokens)) * self.block_bytes

    def longest(self, most: int) -> int:
        """Tokens of the longest sequence that has room, up to `most`."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks_of(middle) <= self.kv_blocks else (low, middle - 1)
        return low

    def tokens_held(self, tokens: int) -> int:
        """Tokens of all sequences together where each has so many."""
        if self.sequence_blocks is None:
            return max(self.kv_blocks, 0) * self.block_tokens
        return int(max(self.kv_blocks, 0) / max(self.blocks_of(tokens), 1) * tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What an engine's settings allow, whatever they are called."""

    sequences: int
    """Sequences of one step."""
    step_tokens: int
    """Tokens of one step; a longer prompt is cut into chunks."""
    context: int
    """Tokens of the longest sequence, prompt and output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A setting that a serving search may turn."""

    name: str
    values: tuple[int, ...]
    """To try beside the engine's default."""
    label: str
    """How a plan's label says a value, which stands for `{}`."""
    needs: str = ""
    """A setting that has to be on, where there is nothing to turn without it."""
    of_adapters: bool = False
    """Whether it acts on requests with LoRA adapters alone."""

    def tried(self, settings: Mapping[str, Any], adapters: int) -> tuple[int, ...]:
        """Values to try beside settings with their defaults filled in, for requests with so many different adapters:
        of one that acts on those alone, none that leaves more of it unused than it takes."""
        if self.needs and not settings.get(self.needs):
            return ()
        if not self.of_adapters:
            return self.values
        return tuple(value for value in self.values if value < 2 * adapters)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOption:
    """A choice beside the knobs that decides a deployment: settings with which it is on, and others without it."""

    name: str
    on: Mapping[str, Any]
    off: Mapping[str, Any] = field(default_factory=dict)
    """Settings in their place; none of them where they are just left out."""
    lossless: bool = True
    """Whether answers stay the same."""
    usual: bool = False
    """Whether it is on where nothing is said."""
    reject_reason: str = ""
    """Why it does not apply, where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """The operators of one rank of a pipeline's stage, and how many layers they are of."""

    layers: int
    graph: Graph


class TrainingEngine(Protocol):
    """One training engine in one version: its behaviour is described by its traits, which predictions read."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def version(self) -> str: ...

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        """How it trains such a model, with an optimizer and in a format."""

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        """Raise InputError for what the engine cannot run, or Gnomon cannot price under it."""


class KernelChoices(Protocol):
    """The kernels that an engine picks, where shipped profiles name families of operators by them."""

    def as_run(self, chip: Chip, donor: Chip, profile: Profile) -> Profile:
        """A donor's profile with its experts named by the kernels that another chip runs them with, and without those
        that do not run there."""

    def not_widened(self, chip: Chip) -> str:
        """What keeps a chip from running narrow weights beside 16-bit inputs; empty where nothing does."""


class Networks(Protocol):
    """Networks beside plain decoders under an engine: encoders, and decoders with towers or a source."""

    def not_served(self, model: Model) -> str:
        """Why the engine does not run it; empty where it does."""

    def check(self, deployment: Deployment) -> None:
        """Raise InputError for an encoder that Gnomon cannot price under the engine."""

    def pieces(self, engine: Engine, deployment: Deployment, step: NetworkStep, steps: Batch) -> tuple[Piece, ...]:
        """The tower, where something goes through it, and the decoder or encoder over its own steps."""

    def check_images(self, deployment: Deployment) -> None:
        """Raise for images of a load (`Deployment.images`) that are not simulated under the engine."""

    def memory(self, engine: Engine, deployment: Deployment, step: NetworkStep) -> MemoryUse:
        """As of a decoder, whose weights and cache have the tower's among them; an encoder has no cache."""


class Engine(Protocol):
    """One serving engine in one version."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """As its users write it."""

    @property
    def version(self) -> str: ...

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Settings that a serving search may turn."""

    def goes_together(self, turned: Mapping[str, int]) -> bool:
        """Whether the engine takes these values of knobs at once."""

    def options_to_weigh(
        self, given: Mapping[str, Any], pools: Sequence[Pool], *, shares: bool
    ) -> tuple[EngineOption, ...]:
        """What `--with auto` weighs beside techniques, for settings as given and requests that share beginnings or do
        not."""

    def capacity(self, settings: Mapping[str, Any]) -> Capacity:
        """What settings with their defaults filled in allow."""

    def settings_for(
        self, *, context: int | None = None, sequences: int | None = None, step_tokens: int | None = None
    ) -> dict[str, int]:
        """The engine's own settings that allow so much, one for each that is asked for: for hints, and for a context
        that is cut to what fits."""

    def listed_settings(self) -> tuple[str, ...]:
        """All settings, as the help of `--set` names them."""

    @property
    def networks(self) -> Networks | None:
        """Networks beside plain decoders; nothing where it serves none."""

    def sequence_state(self, model: Model) -> tuple[str, float]:
        """The format and the bytes of what the engine keeps of a sequence whatever its length."""

    @property
    def operations(self) -> Operations | None:
        """What starts it, imported when it is asked for; nothing where nothing here does."""

    @property
    def cost_ranges(self) -> tuple[str, ...]:
        """Settings the step cost only has to cover: one made for larger values serves smaller ones as well."""

    def cost_key(self, deployment: Deployment) -> Hashable:
        """Deployments on the same chips that agree in this have the same step cost."""

    def settings(self, given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
        """All settings with defaults filled in. Unknown names and bad values raise InputError."""

    def not_modelled(
        self, given: Mapping[str, Any], deployment: Deployment, idle: Sequence[str] = (), *, under_load: bool = False
    ) -> tuple[NotModelled, ...]:
        """Settings among those given that no figure of a deployment depends on, and `idle` ones, of which an answer was
        found not to, that of a load or of one step; what figures assume where a setting is not given; and a chip that
        the engine does not run on, where the figures are those as if it did."""

    def runs_not_on(self, chip: Chip) -> str:
        """Why the engine does not run on a chip, as a sentence; empty where it does."""

    def check(self, deployment: Deployment) -> None:
        """Raise InputError for what the engine cannot run, or Gnomon cannot price under it."""

    def check_simulated(self, deployment: Deployment) -> None:
        """Raise InputError for replicas whose loads are not simulated."""

    def arranged(self, strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        """Degrees and given settings as the engine takes them, where a degree is one of its settings."""

    def check_memory(self, deployment: Deployment) -> None:
        """Raise InputError for what the engine cannot load; unlike `check`, operators need not exist for all of the
        model."""

    def graph(self, deployment: Deployment) -> Graph:
        """The operators a step passes through, as this engine fuses them: those of one rank of each stage. The batch is
        that of one data-parallel rank."""

    def stages(self, deployment: Deployment) -> tuple[StageWork, ...]:
        """The operators of each pipeline stage, one where there is no pipeline; a full pipeline steps as many batches
        as it has stages, and takes no less time than its busiest stage for each."""

    def memory(self, deployment: Deployment) -> MemoryUse:
        """Memory of one rank; `kv_blocks` is 0 or less when the model does not fit."""

    def limits(self, deployment: Deployment) -> ServingLimits:
        """What the scheduler works within. Raises DoesNotFitError."""

    def host(self, deployment: Deployment) -> HostModel:
        """What the engine's host adds to a step: launches, gaps, padding."""

    def step_model(self, deployment: Deployment, stage: StageWork | None = None) -> StepModel:
        """What prices a step of all layers, or of a stage of a pipeline."""

    def step_cost(self, deployment: Deployment, longest: int | None = None) -> StepCost:
        """The step model's table, for sequences of up to `longest` tokens where shorter than the engine's longest.
        Raises InputError for strategies whose steps are not those of one scheduler, one after another."""

    def drawn(
        self, deployment: Deployment, draws: int, longest: int | None = None
    ) -> Iterator[tuple[StepCost, ServingLimits]]:
        """The step cost and the limits by the central estimate first, then under each of so many draws; operators are
        priced once."""
