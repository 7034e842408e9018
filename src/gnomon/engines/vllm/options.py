"""The settings of vLLM that Gnomon understands: their flags, ranges and defaults, and vLLM's own cross-checks.

Parallel degrees are no settings: they come from the strategy. Defaults are those of the API server on a GPU
(`EngineArgs.get_batch_defaults`, `CacheConfig`, `SchedulerConfig` and `VllmConfig._set_cudagraph_sizes`);
`releases.py` has those that differ by version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.engines import option_values
from gnomon.engines.base import Deployment
from gnomon.engines.option_values import OVERRIDDEN, bad_value, boolean
from gnomon.engines.option_values import number as number_of
from gnomon.engines.vllm import offloaders
from gnomon.engines.vllm.captures import fill_capture
from gnomon.engines.vllm.drafts import DRAFTS, METHODS, assumed
from gnomon.engines.vllm.drafts import fill as fill_drafts
from gnomon.engines.vllm.earlier import check_taken
from gnomon.engines.vllm.experts import popularity_of, without_effect
from gnomon.engines.vllm.kernels import AUTO, BACKENDS
from gnomon.engines.vllm.option import Option
from gnomon.engines.vllm.overheads import FRONT_ENDS
from gnomon.engines.vllm.releases import FIRST, Release
from gnomon.errors import InputError, unknown_name
from gnomon.spec import AttentionMixer, Chip, LatentAttention, Model, NotModelled, Pool

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
NO_ADAPTERS = "no request of this load has an adapter, or there are none without enable_lora"


OPTIONS = (
    Option(
        "max_model_len", int, "tokens of the longest sequence",
        always=True,
        idle="it only limits how long a sequence may be, and no sequence here is longer",
    ),
    Option(
        "max_num_seqs", int, "sequences in one step",
        always=True,
        idle="it only limits how many sequences run at once, and no more do here",
    ),
    Option(
        "max_num_batched_tokens", int, "tokens in one step; a longer prompt is cut into chunks",
        always=True,
        idle="it only limits the tokens of a step, and no step here has more",
    ),
    Option(
        "gpu_memory_utilization", float, "share of the memory the engine may take",
        always=True, default=0.92, low=0.0, high=1.0,
        idle="it only limits the memory",
    ),
    Option(
        "block_size", int, "tokens in a KV block",
        low=16, step=16,
        idle="the cache of a step is counted by tokens, not by blocks",
    ),
    Option(
        "decode_context_parallel_size", int, "tensor-parallel ranks that share the cache of one key-value head",
        default=1,
    ),
    Option(
        "all2all_backend", str, "how tokens reach experts of other data-parallel ranks; only vLLM's default is priced",
        default="allgather_reducescatter", choices=("allgather_reducescatter",),
    ),
    Option(
        "expert_popularity", str, "how tokens choose experts: uniform, or zipf:0.6 for a power law",
        default="uniform", flagged=False,
        idle="all experts are on every rank",
    ),
    Option(
        "enable_eplb", bool, "place experts by their popularity",
        default=False,
        idle="all experts are on every rank, or as popular",
    ),
    Option(
        "num_redundant_experts", int, "further copies of popular experts, in each layer",
        default=0, low=0, high=2**14, written="--eplb-config.num_redundant_experts",
        idle="there are none without enable_eplb",
    ),
    Option(
        "moe_backend", str, "the kernel of a mixture's experts",
        default=AUTO, choices=BACKENDS,
    ),
    Option(
        "moe_activation", str, "the format that inputs of mxfp4 experts are quantized to: auto is the checkpoint's",
        default=AUTO, choices=(AUTO, "mxfp8"), written="--quantization-config.moe.activation",
    ),
    Option(
        "async_scheduling", bool, "schedule the next step while one runs",
        default=True,
        idle="it decides how steps follow one another, and this is one step",
        idle_under_load=OVERRIDDEN,
    ),
    Option(
        "enforce_eager", bool, "no CUDA graphs",
        default=False,
        idle="there are no CUDA graphs in these steps, and vLLM reserves no memory for those of this model",
    ),
    Option(
        "enable_prefix_caching", bool, "reuse the KV blocks of equal prompt beginnings",
        idle="no prompts share a beginning here, and none is preempted and finds its own blocks again",
    ),
    Option(
        "max_cudagraph_capture_size", int, "tokens of the largest captured step",
        low=0, high=2**17,
        idle="these steps run in the same graph, or without one, and vLLM reserves no memory for those of this model",
    ),
    Option(
        "scheduling_policy", str, "who is served first: by arrival, or by the priority of requests",
        default="fcfs", choices=("fcfs", "priority"),
        idle="one step has no queue",
        idle_under_load="no request of this load has a priority",
    ),
    Option(
        "enable_lora", bool, "serve LoRA adapters beside the base model",
        default=False,
        idle="no request has an adapter here",
    ),
    Option(
        "max_loras", int, "adapters of one step, and slots for them in the GPU's memory",
        default=1, high=1024,
        idle="there are no adapters without enable_lora",
        idle_under_load=NO_ADAPTERS,
    ),
    Option(
        "max_lora_rank", int, "the largest rank of an adapter; all run at it",
        default=16, high=512,
        idle="there are no adapters without enable_lora",
        idle_under_load=NO_ADAPTERS,
    ),
    Option(
        "max_cpu_loras", int, "adapters kept in the host's memory; as many as max_loras where not given",
        high=2**20,
        idle="it decides which adapters are read again, and this is one step",
        idle_under_load=NO_ADAPTERS,
    ),
    Option(
        "kv_offloading_size", float, "GiB of the host's memory that keep KV blocks beside the GPU's",
        default=0.0, low=0, high=2**20,
        idle="no prompts share a beginning here that has left the GPU's cache",
    ),
    *offloaders.OPTIONS,
    Option(
        "speculative_method", str, "what writes drafts that decodes verify",
        default="none", choices=METHODS, written="--speculative-config.method",
        idle="drafts are verified in decode steps of a simulated load",
        idle_under_load=OVERRIDDEN,
    ),
    Option(
        "num_speculative_tokens", int, "drafts of each sequence in a step",
        default=0, low=0, high=64, written="--speculative-config.num_speculative_tokens",
        idle="there are no drafts without speculative_method",
    ),
    Option(
        "draft_acceptance", str, "share of drafts accepted, 0.8 or one a position 0.9:0.8:0.75",
        default="", flagged=False,
        idle="there are no drafts without speculative_method",
    ),
    Option(
        "draft_parameters", float, "parameters of the draft model",
        default=0.0, low=0, high=1e13, flagged=False,
        idle="there is no draft model without speculative_method=draft_model",
    ),
    Option(
        "draft_model", str, "the weights that write drafts: a hub id or a folder",
        default="", written="--speculative-config.model",
        unmodelled="it is a name: figures depend on speculative_method and draft_parameters",
    ),
    Option(
        "front_end", str, "what takes requests in: vllm serve over http, or the engine called in_process",
        default=FRONT_ENDS[0], choices=FRONT_ENDS, flagged=False,
        idle="it decides how requests reach the engine and tokens leave it, and this is one step",
        idle_under_load=OVERRIDDEN,
    ),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}
_DRAFTED = (*DRAFTS, "async_scheduling")
_FROM_STRATEGY = {
    "tensor_parallel_size": "--tp",
    "pipeline_parallel_size": "--pp",
    "data_parallel_size": "--dp",
    "enable_expert_parallel": "--ep",
    "kv_cache_dtype": "--kv-dtype",
    "quantization": "--dtype",
    "dtype": "--dtype",
}


def fill(given: Mapping[str, Any], model: Model, pool: Pool, release: Release = FIRST) -> dict[str, Any]:
    """Every setting, with vLLM's defaults where none (or None) was given. Texts such as `true` are understood."""
    named = {_named(name): value for name, value in given.items() if value is not None}
    values = {name: parsed(BY_NAME[name], value) for name, value in named.items()}
    settings = {o.name: values.get(o.name, o.default) for o in OPTIONS}
    if settings["max_model_len"] is None:
        settings["max_model_len"] = model.max_context
    if settings["enable_prefix_caching"] is None:
        settings["enable_prefix_caching"] = release.shares_prefixes and caches_prefixes(model)
    if not release.operated:
        _fill_earlier(settings, named, release)
    if settings["kv_offloading_size"] and not settings["enable_prefix_caching"]:
        raise InputError(
            "blocks in the host's memory are found by prefix caching, which is off",
            where="setting kv_offloading_size",
            hint="Set enable_prefix_caching=true, or leave it out.",
        )
    if settings["block_size"] is None:
        settings["block_size"] = block_tokens(model, pool.chip)
    if settings["max_cpu_loras"] is None:
        settings["max_cpu_loras"] = settings["max_loras"]
    offloaders.check_offloading(settings)
    fill_drafts(settings, named, model)
    popularity_of(settings)
    _fill_batch(settings, pool.chip, release)
    _check(settings, model)
    fill_capture(settings, pool.chip, release)
    if (
        not release.operated
        and (own := {name: given for name, given in named.items() if name in release.takes}) != named
    ):
        check_taken(named, settings, fill(own, model, pool, release), release)
    return settings


def _fill_earlier(settings: dict[str, Any], named: Mapping[str, Any], release: Release) -> None:
    """Defaults of releases that are predicted alone, where they are not today's."""
    usual = {"async_scheduling": False, "enforce_eager": release.eager, "gpu_memory_utilization": release.memory_share}
    settings |= {name: value for name, value in usual.items() if name not in named}


def listed() -> tuple[str, ...]:
    """The settings as help names them; what vLLM has no flag for, with its values."""
    return tuple(
        one.name if one.flagged or not one.choices else f"{one.name} ({' or '.join(one.choices)})" for one in OPTIONS
    )


def not_modelled(
    given: Mapping[str, Any], deployment: Deployment, idle: Sequence[str] = (), under_load: bool = False
) -> tuple[NotModelled, ...]:
    """Settings among those given that no figure depends on; of those that are `idle`, none of one answer. And what
    drafts assume, where there are some."""
    named = {_named(name): value for name, value in given.items() if value is not None}
    unused = {*map(_named, idle), *without_effect(deployment), *offloaders.without_effect(deployment.settings)}
    drafted = () if "speculative_method" in unused else assumed(named, deployment.model)
    return (*option_values.not_modelled(named, tuple(unused), BY_NAME, under_load), *drafted)


def caches_prefixes(model: Model) -> bool:
    """Whether vLLM caches prefixes unless told otherwise: not where layers keep a state beside or instead of keys and
    values (`ModelConfig.is_prefix_caching_supported`)."""
    return all(isinstance(block.mixer, AttentionMixer | LatentAttention) for block in model.blocks)


def block_tokens(model: Model, chip: Chip) -> int:
    """Tokens of a block as the attention kernels need it: those of latent attention on large Blackwell chips take no
    less than 32, and those that choose their tokens 64 (`get_supported_kernel_block_sizes`)."""
    latent = [block.mixer for block in model.blocks if isinstance(block.mixer, LatentAttention)]
    if any(mixer.indexer for mixer in latent):
        return 64
    return 32 if latent and chip.architecture.startswith("Blackwell") and chip.memory.startswith("HBM") else 16


def flags(settings: Mapping[str, Any], model: Model, pool: Pool, release: Release = FIRST) -> list[str]:
    """The flags of a launch command for these settings, without those that equal vLLM's defaults."""
    always = {option.name: settings[option.name] for option in OPTIONS if option.always}
    defaults = fill(always, model, pool, release) | _not_taken(model, release)
    if settings["num_speculative_tokens"]:  # captured sizes follow the drafts of decodes
        drafted = always | {name: settings[name] for name in _DRAFTED}
        largest = "max_cudagraph_capture_size"
        defaults[largest] = fill(drafted, model, pool, release)[largest]
    words: list[str] = []
    for option in OPTIONS:
        value = settings[option.name]
        if not option.flagged or (value == defaults[option.name] and not option.always):
            continue
        if option.kind is bool:
            words.append(option.flag if value else option.flag.replace("--", "--no-", 1))
        elif not (option.name == "max_cudagraph_capture_size" and settings["enforce_eager"]):
            words += [option.flag, str(value)]
    return words


def _not_taken(model: Model, release: Release) -> dict[str, Any]:
    """Defaults of vLLM's that plans do not take, and so have to say: prefixes of models with recurrent layers are
    cached where chunks end at blocks of their states, which is not simulated."""
    hybrid = any(isinstance(block.mixer, AttentionMixer | LatentAttention) for block in model.blocks)
    return {"enable_prefix_caching": True} if release.caches_hybrids and hybrid else {}


def _fill_batch(settings: dict[str, Any], chip: Chip, release: Release) -> None:
    tier = release.tier(chip)
    tokens, sequences = settings["max_num_batched_tokens"], settings["max_num_seqs"]
    if sequences is None:
        settings["max_num_seqs"] = tier.sequences
    if tokens is None:
        most = settings["max_num_seqs"] * settings["max_model_len"]
        longest = settings["max_model_len"] if release.whole_prompts else 0
        settings["max_num_batched_tokens"] = min(max(tier.tokens, longest), most)
    if sequences is None:
        settings["max_num_seqs"] = min(settings["max_num_seqs"], settings["max_num_batched_tokens"])


def _check(settings: Mapping[str, Any], model: Model) -> None:
    if settings["max_model_len"] > model.max_context:
        raise InputError(
            f"{settings['max_model_len']:,} is more than the {model.max_context:,} tokens {model.name} supports",
            where="setting max_model_len",
            hint=f"Use at most {model.max_context}.",
        )
    _check_adapters(settings)
    tokens, sequences = settings["max_num_batched_tokens"], settings["max_num_seqs"]
    if tokens < sequences:
        raise InputError(
            f"{tokens:,} is less than max_num_seqs {sequences:,}, which vLLM refuses",
            where="setting max_num_batched_tokens",
            hint=f"Set max_num_batched_tokens to at least {sequences}, or max_num_seqs to at most {tokens}.",
        )
    if settings["max_cudagraph_capture_size"] == 0 and not settings["enforce_eager"]:
        raise InputError(
            "vLLM captures at least one size",
            where="setting max_cudagraph_capture_size",
            hint="Set enforce_eager=true to do without CUDA graphs.",
        )


def _check_adapters(settings: Mapping[str, Any]) -> None:
    """As vLLM's `LoRAConfig` has it."""
    if not settings["enable_lora"]:
        for name, usual in (("max_loras", 1), ("max_lora_rank", 16), ("max_cpu_loras", 1)):
            if settings[name] != usual:
                raise InputError(
                    "there are no adapters without enable_lora",
                    where=f"setting {name}",
                    hint="Set enable_lora=true, or leave it out.",
                )
    if settings["max_lora_rank"] not in LORA_RANKS:
        raise InputError(
            f"vLLM takes no rank of {settings['max_lora_rank']}",
            where="setting max_lora_rank",
            hint=f"Use one of {', '.join(map(str, LORA_RANKS))}.",
        )
    if settings["max_cpu_loras"] < settings["max_loras"]:
        raise InputError(
            f"{settings['max_cpu_loras']} is less than max_loras {settings['max_loras']}, which vLLM refuses",
            where="setting max_cpu_loras",
            hint=f"Set it to at least {settings['max_loras']}.",
        )


def _named(name: str) -> str:
    folded = str(name).strip().lstrip("-").replace("-", "_").lower()
    if folded in _FROM_STRATEGY:
        raise InputError(f"'{name}' is not a setting here", where="setting", hint=f"Use {_FROM_STRATEGY[folded]}.")
    if folded not in BY_NAME:
        raise unknown_name("vLLM setting", str(name), BY_NAME, where="setting")
    return folded


def parsed(option: Option, value: Any) -> int | float | bool | str:
    """A value of a setting, from a text or as it is. Raises InputError where it is none."""
    if option.kind is str:
        if option.choices and str(value) not in option.choices:
            raise bad_value(option, value, f"one of {', '.join(option.choices)}")
        return str(value)
    if option.kind is bool:
        return boolean(option, value)
    number = number_of(option, value)
    if option.name == "gpu_memory_utilization" and not 0 < number <= 1:
        raise bad_value(option, value, "a share above 0 and at most 1")
    if not option.low <= number <= option.high:
        raise bad_value(option, value, f"between {option.low:g} and {option.high:,.0f}")
    if option.kind is int and number % option.step:
        raise bad_value(option, value, f"a multiple of {option.step}")
    return int(number) if option.kind is int else number
