"""The settings of SGLang 0.5.23 that Gnomon understands: their flags, ranges and defaults, and what is refused.

Parallel degrees are no settings: they come from the strategy. Defaults are those of a server on a GPU
(`sglang/srt/arg_groups`: `memory_hook.handle_gpu_memory_settings`, `cuda_graph_hook`, the fields' own). What depends on
the degrees or on the memory that weights leave is found when both are known (`resolved.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.engines import option_values
from gnomon.engines.option_values import OVERRIDDEN, bad_value, boolean
from gnomon.engines.option_values import number as number_of
from gnomon.engines.setting import EngineSetting
from gnomon.engines.sglang.order import ORDERS
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Chip, LatentAttention, Model, NotModelled, Pool

MIB = 1024.0**2
MOST_REQUESTS = 4096
"""SGLang never gives itself more request slots (`resolve_max_num_reqs`)."""
CHUNK_BY_MEMORY = ((35 * 1024, 4096), (60 * 1024, 4096), (160 * 1024, 8192))
SMALL_MEMORY_MIB, SMALL_CHUNK, LARGE_CHUNK = 20 * 1024, 2048, 16384
"""Tokens of a chunk by the memory of the chip, in MiB."""
PAGES_BLACKWELL = 64
"""Tokens of a page where TensorRT-LLM's attention kernels run, as they do on data-centre Blackwell chips."""


@dataclass(frozen=True, slots=True)
class SglangOption(EngineSetting):
    """One setting of SGLang; its default may depend on the degrees too."""

    off: int | None = None
    """A value outside of the range that switches it off."""
    flagged: str = ""
    """Its flag, where that has another name."""

    @property
    def flag(self) -> str:
        return self.flagged or "--" + self.name.replace("_", "-")


OPTIONS = (
    SglangOption(
        "context_length", int, "tokens of the longest sequence",
        idle="it only limits how long a sequence may be, and no sequence here is longer",
    ),
    SglangOption(
        "max_running_requests", int, "requests in the running batch",
        default=MOST_REQUESTS, high=2**16,
        idle="it only limits how many requests run at once, and no more do here",
    ),
    SglangOption(
        "chunked_prefill_size", int, "prompt tokens of one step; a longer prompt is cut into chunks, with -1 none is",
        off=-1, high=2**20,
        idle="it only limits the prompt tokens of a step, and no step here has more",
    ),
    SglangOption(
        "max_prefill_tokens", int, "prompt tokens of one step, whatever its chunks",
        default=16384,
        idle="it only limits the prompt tokens of a step, and chunks are smaller here",
    ),
    SglangOption(
        "prefill_max_requests", int, "prompts of one step",
        idle="it only limits the prompts of a step, and none here has more",
    ),
    SglangOption(
        "mem_fraction_static", float, "share of the memory for weights and the KV pool",
        low=0.0, high=1.0,
        idle="it only limits the memory",
    ),
    SglangOption(
        "max_total_tokens", int, "tokens of the KV pool, where it is not to fill the memory",
        idle="it only limits the memory",
    ),
    SglangOption(
        "page_size", int, "tokens in a page of the KV pool",
        high=1024,
        idle="the cache of a step is counted by tokens, not by pages",
    ),
    SglangOption(
        "schedule_policy", str, "the order in which waiting requests are tried",
        default=ORDERS[0], choices=ORDERS,
        idle="one step has no queue",
        idle_under_load="no prompts share a beginning here that the order could go by",
    ),
    SglangOption(
        "schedule_conservativeness", float, "how much of its possible output a running request is expected to make",
        default=1.0, low=0.0, high=100.0,
        idle="it only matters where the KV pool is nearly full",
    ),
    SglangOption(
        "disable_radix_cache", bool, "no prefix cache",
        default=False,
        idle="no prompts share a beginning here, and none is retracted and finds its own again",
    ),
    SglangOption(
        "enable_mixed_chunk", bool, "decodes ride along with chunks of prompts instead of pausing",
        default=False,
        idle="it decides how steps follow one another, and this is one step",
        idle_under_load=OVERRIDDEN,
    ),
    SglangOption(
        "disable_overlap_schedule", bool, "schedule a step only when the one before it has ended",
        default=False,
        idle="it decides how steps follow one another, and this is one step",
        idle_under_load=OVERRIDDEN,
    ),
    SglangOption(
        "disable_cuda_graph", bool, "no CUDA graphs",
        default=False,
        idle="there are no CUDA graphs in these steps",
    ),
    SglangOption(
        "disable_prefill_cuda_graph", bool, "no CUDA graphs of steps with prompts",
        default=False,
        idle="no step here has prompts",
    ),
    SglangOption(
        "cuda_graph_max_bs", int, "sequences of the largest captured decode step",
        high=2**14, flagged="--cuda-graph-max-bs-decode",
        idle="these steps run in the same graph, or without one",
    ),
    SglangOption(
        "attention_backend", str, "the attention kernels",
        default="auto", choices=("auto", "fa3", "fa4", "flashinfer", "triton", "trtllm_mha", "trtllm_mla", "flashmla"),
        unmodelled="attention is priced by the kernels that SGLang picks by itself on the chip",
    ),
    SglangOption(
        "moe_runner_backend", str, "the kernels of a mixture's experts",
        default="auto", choices=("auto", "triton", "deep_gemm", "flashinfer_trtllm", "flashinfer_cutlass", "marlin"),
        unmodelled="experts are priced by the kernels that SGLang picks by itself on the chip, but for Triton's on "
        "Blackwell",
    ),
    SglangOption(
        "enable_torch_compile", bool, "compile small models with torch.compile",
        default=False,
        unmodelled="layers are priced with the fused kernels that SGLang has without it",
    ),
    SglangOption(
        "stream_interval", int, "tokens between two that are streamed",
        default=1,
        unmodelled="every token leaves when its step has ended",
    ),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}
_FROM_STRATEGY = {
    "tp": "--tp", "tp_size": "--tp", "pp_size": "--pp", "dp_size": "--dp", "ep_size": "--ep", "ep": "--ep",
    "enable_dp_attention": "--dp", "kv_cache_dtype": "--kv-dtype", "quantization": "--dtype", "dtype": "--dtype",
}  # fmt: skip
REFUSED = {
    "speculative_algorithm": "speculative decoding under SGLang",
    "disaggregation_mode": "prefill and decode on servers of their own under SGLang",
    "enable_hierarchical_cache": "a KV cache in host memory under SGLang",
    "prefill_decode_interval": "decode rounds between prefill batches",
    "enable_priority_scheduling": "priorities of requests under SGLang",
    "moe_a2a_backend": "an all-to-all between expert-parallel ranks under SGLang",
    "attn_cp_size": "context parallelism under SGLang",
    "dcp_size": "decode context parallelism under SGLang",
}
"""Settings that would change figures, and that nothing here prices."""


def fill(given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
    """Every setting, with SGLang's defaults where none (or None) was given and they are known already."""
    named = {_named(name): value for name, value in given.items() if value is not None}
    values = {name: parsed(BY_NAME[name], value) for name, value in named.items()}
    settings = {o.name: values.get(o.name, o.default) for o in OPTIONS}
    if settings["context_length"] is None:
        settings["context_length"] = model.max_context
    if settings["chunked_prefill_size"] is None:
        settings["chunked_prefill_size"] = chunk_tokens(pool.chip)
    if settings["page_size"] is None:
        settings["page_size"] = page_tokens(model, pool.chip)
    _check(settings, model)
    return settings


def chunk_tokens(chip: Chip) -> int:
    """Prompt tokens of a step by the memory of the chip."""
    memory = chip.memory_bytes / MIB
    if memory < SMALL_MEMORY_MIB:
        return SMALL_CHUNK
    return next((tokens for most, tokens in CHUNK_BY_MEMORY if memory < most), LARGE_CHUNK)


def page_tokens(model: Model, chip: Chip) -> int:
    """One, but where the default attention kernels take larger pages: those of TensorRT-LLM on data-centre Blackwell,
    and those that choose their tokens (`get_default_attn_backend`, `_mla_backend_page_constraints`)."""
    latent = [block.mixer for block in model.blocks if isinstance(block.mixer, LatentAttention)]
    if any(mixer.indexer for mixer in latent):
        return PAGES_BLACKWELL
    return PAGES_BLACKWELL if chip.architecture.startswith("Blackwell") and chip.memory.startswith("HBM") else 1


def listed() -> tuple[str, ...]:
    """The settings as help names them."""
    return tuple(one.name for one in OPTIONS)


def not_modelled(
    given: Mapping[str, Any], idle: Sequence[str] = (), under_load: bool = False
) -> tuple[NotModelled, ...]:
    """Settings among those given that no figure depends on; of those that are `idle`, none of one answer."""
    named = {_named(name): value for name, value in given.items() if value is not None}
    return option_values.not_modelled(named, [_named(name) for name in idle], BY_NAME, under_load)


def flags(settings: Mapping[str, Any], model: Model, pool: Pool) -> list[str]:
    """The flags of a launch command for these settings, without those that equal SGLang's defaults."""
    defaults, words = fill({}, model, pool), list[str]()
    for option in OPTIONS:
        value = settings[option.name]
        if value is None or value == defaults[option.name]:
            continue
        if option.kind is bool:
            words += [option.flag] if value else []
        else:
            words += [option.flag, str(value)]
    return words


def _check(settings: Mapping[str, Any], model: Model) -> None:
    if settings["context_length"] > model.max_context:
        raise InputError(
            f"{settings['context_length']:,} is more than the {model.max_context:,} tokens {model.name} supports",
            where="setting context_length",
            hint=f"Use at most {model.max_context}.",
        )
    chunk, page = settings["chunked_prefill_size"], settings["page_size"]
    if chunk > 0 and chunk % page:
        raise InputError(
            f"{chunk:,} is not a multiple of page_size {page}, which SGLang refuses",
            where="setting chunked_prefill_size",
            hint=f"Use {max(chunk // page, 1) * page}.",
        )
    if settings["enable_mixed_chunk"] and chunk < 0:
        raise InputError(
            "decodes ride along with chunks, and prompts are not cut",
            where="setting enable_mixed_chunk",
            hint="Leave out chunked_prefill_size=-1.",
        )


def _named(name: str) -> str:
    folded = str(name).strip().lstrip("-").replace("-", "_").lower()
    if folded in _FROM_STRATEGY:
        raise InputError(f"'{name}' is not a setting here", where="setting", hint=f"Use {_FROM_STRATEGY[folded]}.")
    if folded in REFUSED:
        raise InputError(f"{REFUSED[folded]} is not modelled", where=f"setting {folded}", hint="Leave it out.")
    if folded not in BY_NAME:
        raise unknown_name("SGLang setting", str(name), BY_NAME, where="setting")
    return folded


def parsed(option: SglangOption, value: Any) -> int | float | bool | str:
    """A setting's value, from a text or as it is. Raises InputError where it has no such value."""
    if option.kind is str:
        if str(value) not in option.choices:
            raise bad_value(option, value, f"one of {', '.join(option.choices)}")
        return str(value)
    if option.kind is bool:
        return boolean(option, value)
    number = number_of(option, value)
    if number == option.off:
        return int(number)
    if option.name == "mem_fraction_static" and not 0 < number < 1:
        raise bad_value(option, value, "a share between 0 and 1")
    if not option.low <= number <= option.high:
        raise bad_value(option, value, f"between {option.low:g} and {option.high:,.0f}")
    return int(number) if option.kind is int else number
