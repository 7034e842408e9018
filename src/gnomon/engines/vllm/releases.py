"""What releases of vLLM differ in, beside their flags (`arguments.py`): defaults of a step, captured sizes, model
runner, what is reserved for CUDA graphs, what is cached, and how the scheduler orders requests.

0.24.0 is measured. 0.33.0 is read in its source and run on a CPU (`tests/oracles`): `EngineArgs.get_batch_defaults`,
`VllmConfig._set_cudagraph_sizes`, `VllmConfig.use_v2_model_runner`, `Worker.determine_available_memory`,
`ModelConfig.is_prefix_caching_supported` and `Scheduler.schedule` of its wheel. Host overheads and reserves under it
are those of 0.24.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from gnomon.engines.vllm import ENGINE, MEASURED
from gnomon.engines.vllm.platforms import NONE, capability
from gnomon.errors import unknown_name
from gnomon.spec import Chip

GIB = 1024**3
BLACKWELL = 10
"""The major number of data-centre Blackwell's compute capability."""
GB10 = (12, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Batch defaults of the API server on chips from a memory on."""

    from_bytes: float
    tokens: int
    sequences: int
    not_on: tuple[str, ...] = ()
    """Parts of names of chips that this is not for."""
    not_gb10: bool = False


SMALL = Tier(from_bytes=0, tokens=2048, sequences=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of vLLM."""

    version: str
    tiers: tuple[Tier, ...]
    """The first that a chip belongs to counts."""
    second_runner: tuple[str, ...] | None
    """Families of models on the second model runner; all where this is nothing."""
    second_offloads: bool = False
    """Whether the second model runner offloads weights; where it does not, vLLM says nothing, and loads them all."""
    reserves_graphs: bool = False
    """Whether the second model runner, too, reserves memory for CUDA graphs."""
    blackwell_capture: int = 512
    """Tokens of the largest step that is captured by default on data-centre Blackwell chips; 512 on others."""
    captures_decodes: bool = False
    """Whether the largest decode batches are captured by default where they lie between the usual sizes."""
    caches_hybrids: bool = False
    """Whether prefixes are cached by default for models with recurrent layers beside attention."""
    keeps_order: bool = False
    """Whether requests that find no slot for their adapter keep their place in the queue, slots count for requests that
    pause, and a request that preempts itself leaves the step to those behind it."""
    unsplit_images: bool = False
    """Whether an image that is not to be split is not, even where a chunk begins with it."""

    operated: bool = True
    """Whether Gnomon writes and reads its commands; others are predicted alone, with what follows here."""
    takes: tuple[str, ...] = ()
    """Settings that it has, of those of today's."""
    degrees: tuple[str, ...] = ()
    """Kinds of parallelism that it has beside tensor parallelism."""
    formats: tuple[str, ...] = ()
    """Formats of weights that it has."""
    caches: tuple[str, ...] = ("bf16", "fp16")
    generations: tuple[str, ...] = ()
    """Chips that it runs on."""
    memory_share: float | None = None
    """`gpu_memory_utilization` unless told otherwise, where that is not today's."""
    whole_prompts: bool = False
    """Whether a step has the tokens of the longest prompt unless told otherwise."""
    eager: bool = False
    """Whether it has no CUDA graphs."""
    shares_prefixes: bool = True
    """Whether prefixes are cached by default."""
    host: Mapping[str, float] = field(default_factory=dict)
    """Its own figures of `overheads.yaml`, where they were fitted."""
    gap_ranks_us: float = 0.0
    """What the gap between two steps has more of with several ranks."""
    fitted_on: str = ""
    tested_on: str = ""
    """What its figures were tested on, with the error there."""
    otherwise: tuple[tuple[str, str], ...] = ()
    """Settings under which its scheduler does what is not simulated, and what that is."""

    @property
    def title(self) -> str:
        """As messages write it: vLLM 0.24."""
        return f"{ENGINE.title} {self.version.rpartition('.')[0]}"

    @property
    def measured(self) -> bool:
        return self.version == MEASURED

    def tier(self, chip: Chip) -> Tier:
        """The batch defaults of a chip."""
        name, gb10 = chip.name.lower(), capability(chip) == GB10
        fits = (
            tier
            for tier in self.tiers
            if chip.memory_bytes >= tier.from_bytes
            and not any(part in name for part in tier.not_on)
            and not (gb10 and tier.not_gb10)
        )
        return next(fits, SMALL)

    def largest_capture(self, chip: Chip) -> int:
        found = capability(chip)
        return self.blackwell_capture if found != NONE and found[0] == BLACKWELL else 512


LARGE = Tier(from_bytes=70 * GIB, tokens=8192, sequences=1024, not_on=("a100",))
"""Not on an A100, where larger batches cost throughput."""
FIRST = Release(
    version="0.24.0",
    tiers=(LARGE,),
    second_runner=("llama", "mistral", "qwen3", "deepseek_v2", "qwen2_moe", "granitemoe"),
)
"""`DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES`."""
RELEASES = {
    one.version: one
    for one in (
        FIRST,
        Release(
            version="0.33.0",
            tiers=(
                Tier(from_bytes=160 * GIB, tokens=16384, sequences=1024),
                Tier(from_bytes=70 * GIB, tokens=8192, sequences=1024, not_on=("a100",), not_gb10=True),
            ),
            second_runner=None,
            second_offloads=True,
            reserves_graphs=True,
            blackwell_capture=1024,
            captures_decodes=True,
            caches_hybrids=True,
            keeps_order=True,
            unsplit_images=True,
            otherwise=(
                ("speculative_method", "pads a request that comes in with one token to compute to the size of decodes"),
                ("cpu_offload_gb", "may pin weights otherwise"),
                ("kv_offloading_size", "lets requests whose blocks were copied back in before all others"),
            ),
        ),
    )
}


def release(version: str = "", where: str = "") -> Release:
    """The release of a version, or of how it begins; the measured one where none is named."""
    wanted = version or MEASURED
    known = described()
    full = next((one for one in known if one == wanted or one.startswith(f"{wanted}.")), None)
    if full is None:
        raise unknown_name("version of vllm", wanted, tuple(known), where=where)
    return known[full]


@cache
def described() -> Mapping[str, Release]:
    """All releases, also those that are predicted alone."""
    from gnomon.engines.vllm.early import EARLY

    return {**{one.version: one for one in EARLY}, **RELEASES}
