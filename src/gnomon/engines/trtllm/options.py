"""The settings of TensorRT-LLM 1.2 (PyTorch backend) that Gnomon understands: flags of `trtllm-serve`, fields of its
YAML (`--extra_llm_api_options`), ranges, defaults and cross-checks.

Names are those of `TorchLlmArgs` (`tensorrt_llm/llmapi/llm_args.py` of 1.2), by their last part; `path` has where a
field stands in the YAML, which is understood as a name too: `kv_cache_config.enable_block_reuse`. Parallel degrees are
no settings: they come from the strategy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.engines import option_values
from gnomon.engines.option_values import OVERRIDDEN, bad_value, boolean
from gnomon.engines.option_values import number as number_of
from gnomon.engines.setting import EngineSetting
from gnomon.engines.trtllm.graphs import DEFAULT_LARGEST, batch_sizes
from gnomon.engines.trtllm.overheads import SERVED_BY
from gnomon.engines.trtllm.scheduler import GUARANTEED_NO_EVICT, MAX_UTILIZATION
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Model, NotModelled, Pool

TRTLLM_EXPERTS = "TRTLLM"
"""Experts by TensorRT-LLM's own kernels for Blackwell."""
GRAPHS = "there are no captured decode steps of these sizes here"


@dataclass(frozen=True, slots=True)
class TrtllmOption(EngineSetting):
    """One setting of TensorRT-LLM."""

    path: str = ""
    """Its place in the YAML, where `trtllm-serve` has no flag of its name."""
    always: bool = False
    """Written into a launch command even when it has its default."""
    written: bool = True
    """Whether TensorRT-LLM knows it; what it does not says how it is called."""


OPTIONS = (
    TrtllmOption(
        "max_seq_len", int, "tokens of the longest sequence",
        always=True, idle="it only limits how long a sequence may be, and no sequence here is longer",
    ),
    TrtllmOption(
        "max_batch_size", int, "requests that are active at once",
        default=2048, always=True, idle="it only limits how many sequences run at once, and no more do here",
    ),
    TrtllmOption(
        "max_num_tokens", int, "tokens of one step; a longer prompt needs chunked prefill",
        default=8192, always=True, idle="it only limits the tokens of a step, and no step here has more",
    ),
    TrtllmOption(
        "kv_cache_free_gpu_memory_fraction", float, "share of the memory that weights and activations leave",
        default=0.9, low=0.0, high=1.0, always=True, idle="it only limits the memory",
    ),
    TrtllmOption(
        "num_postprocess_workers", int, "processes that detokenize",
        default=0, low=0, high=256,
        unmodelled="the front end is one, with figures of servers that had none or four of them",
    ),
    TrtllmOption(
        "enable_chunked_prefill", bool, "cut a prompt that does not fit into a step",
        default=False, path="enable_chunked_prefill", idle="no prompt here is longer than what a step leaves",
    ),
    TrtllmOption(
        "disable_overlap_scheduler", bool, "schedule a step only once the outputs of the last one are there",
        default=False, path="disable_overlap_scheduler",
        idle="it decides how steps follow one another, and this is one step",
        idle_under_load=OVERRIDDEN,
    ),
    TrtllmOption(
        "capacity_scheduler_policy", str, "for what a request needs blocks to start: prompt and output, or the prompt",
        default=GUARANTEED_NO_EVICT, choices=(GUARANTEED_NO_EVICT, MAX_UTILIZATION),
        path="scheduler_config.capacity_scheduler_policy",
        idle="one step has no queue",
        idle_under_load="the cache here has blocks for all requests to completion",
    ),
    TrtllmOption(
        "context_chunking_policy", str, "whose chunks go first; only the default is simulated",
        default="FIRST_COME_FIRST_SERVED", choices=("FIRST_COME_FIRST_SERVED",),
        path="scheduler_config.context_chunking_policy",
    ),
    TrtllmOption(
        "enable_block_reuse", bool, "reuse the KV blocks of equal prompt beginnings",
        default=True, path="kv_cache_config.enable_block_reuse",
        idle="no prompts share a beginning here, and none is paused and finds its own blocks again",
    ),
    TrtllmOption(
        "enable_partial_reuse", bool, "reuse blocks that match in part too",
        default=True, path="kv_cache_config.enable_partial_reuse",
        unmodelled="what is reused is counted in whole blocks",
    ),
    TrtllmOption(
        "tokens_per_block", int, "tokens in a KV block",
        default=32, low=1, high=1024, path="kv_cache_config.tokens_per_block",
        idle="the cache of a step is counted by tokens, not by blocks",
    ),
    TrtllmOption(
        "kv_cache_max_tokens", int, "the most tokens of the KV cache, 0 for all that the memory holds",
        default=0, low=0, path="kv_cache_config.max_tokens", idle="the memory holds no more than that",
    ),
    TrtllmOption(
        "cuda_graph_max_batch_size", int, "sequences of the largest captured decode step, 0 for no CUDA graphs",
        low=0, high=2**17, path="cuda_graph_config.max_batch_size", idle=GRAPHS,
    ),
    TrtllmOption(
        "cuda_graph_enable_padding", bool, "pad decode steps to the next captured size",
        default=False, path="cuda_graph_config.enable_padding", idle=GRAPHS,
    ),
    TrtllmOption(
        "cuda_graph_batch_sizes", str, "the captured sizes, separated by spaces; else TensorRT-LLM's own list",
        default="", path="cuda_graph_config.batch_sizes", idle=GRAPHS,
    ),
    TrtllmOption(
        "stream_interval", int, "output tokens that a client gets at once",
        default=1, high=2**20, path="stream_interval",
        idle="it decides how tokens leave the engine, and this is one step",
        idle_under_load=OVERRIDDEN,
    ),
    TrtllmOption(
        "moe_config_backend", str,
        "the kernel of a mixture's experts; AUTO is the one of TensorRT-LLM's published tables (DeepGEMM, CUTLASS)",
        default="AUTO", choices=("AUTO", TRTLLM_EXPERTS), path="moe_config.backend",
        idle="there are no experts here, or one kernel of these alone is known",
    ),
    TrtllmOption(
        "attn_backend", str, "the attention kernels; only TensorRT-LLM's own are priced",
        default="TRTLLM", choices=("TRTLLM",), path="attn_backend",
    ),
    TrtllmOption(
        "max_beam_width", int, "sequences of a beam search; only plain sampling is priced",
        default=1, high=1, path="max_beam_width",
    ),
    TrtllmOption(
        "served_by", str, "what takes requests in: trtllm-serve over HTTP, or the LLM API called by trtllm-bench",
        default=SERVED_BY[0], choices=SERVED_BY, written=False,
        idle="it decides how requests reach the engine and tokens leave it, and this is one step",
        idle_under_load=OVERRIDDEN,
    ),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}
BY_PATH = {option.path: option.name for option in OPTIONS if option.path}
ALIASES = {"kv_cache_config.free_gpu_memory_fraction": "kv_cache_free_gpu_memory_fraction"}
ALIASES["free_gpu_memory_fraction"] = ALIASES["kv_cache_config.free_gpu_memory_fraction"]
FROM_STRATEGY = {
    "tp_size": "--tp",
    "pp_size": "--pp",
    "ep_size": "--ep",
    "enable_attention_dp": "--dp",
    "kv_cache_config.dtype": "--kv-dtype",
    "dtype": "--dtype",
}
NOT_SIMULATED = {
    "speculative_config": "speculative decoding is not simulated under TensorRT-LLM",
    "max_attention_window": "windows of the cache are those of the model; TensorRT-LLM keeps all tokens by default",
    "kv_cache_config.max_attention_window": "windows of the cache are those of the model",
    "kv_cache_config.host_cache_size": "blocks offloaded to the host are not simulated",
    "torch_compile_config": "compiled layers and piecewise CUDA graphs are not priced",
    "sparse_attention_config": "sparse attention that the model does not have is not priced",
    "lora_config": "adapters are not priced",
}
"""Fields that TensorRT-LLM knows and that are refused, with the reason."""


def fill(given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
    """Every setting, with TensorRT-LLM's defaults where none (or None) was given. Texts such as `true` are
    understood."""
    named = _once(given)
    values = {name: parsed(BY_NAME[name], value) for name, value in named.items()}
    settings = {o.name: values.get(o.name, o.default) for o in OPTIONS}
    if settings["max_seq_len"] is None:
        settings["max_seq_len"] = model.max_context
    _fill_graphs(settings)
    _check(settings, model)
    return settings


def _fill_graphs(settings: dict[str, Any]) -> None:
    """As `CudaGraphConfig.validate_cuda_graph_config` does: sizes that are listed say which is the largest."""
    listed = [int(size) for size in str(settings["cuda_graph_batch_sizes"]).split()]
    largest = settings["cuda_graph_max_batch_size"]
    if listed and largest not in (None, max(listed)):
        raise InputError(
            f"{largest} is not the largest of cuda_graph_batch_sizes, {max(listed)}, which TensorRT-LLM refuses",
            where="setting cuda_graph_max_batch_size",
            hint="Give one of them.",
        )
    settings["cuda_graph_max_batch_size"] = max(listed) if listed else DEFAULT_LARGEST if largest is None else largest


def captured_sizes(settings: Mapping[str, Any]) -> list[int]:
    """Sizes of decode steps that are captured; those above `max_batch_size` are left out
    (`PyTorchModelEngine._filter_cuda_graph_batch_sizes`)."""
    most = int(settings["max_batch_size"])
    listed = sorted({int(size) for size in str(settings["cuda_graph_batch_sizes"]).split()})
    largest, padded = int(settings["cuda_graph_max_batch_size"]), bool(settings["cuda_graph_enable_padding"])
    sizes = listed or (batch_sizes(largest, padded) if largest else [])
    kept = [size for size in sizes if size <= most]
    # With padding, the limit itself is captured in the place of a larger size.
    return [*kept, most] if padded and len(kept) < len(sizes) and most not in kept else kept


def listed() -> tuple[str, ...]:
    """The settings as help names them; what TensorRT-LLM has no word for, with its values."""
    return tuple(one.name if one.written else f"{one.name} ({' or '.join(one.choices)})" for one in OPTIONS)


def not_modelled(
    given: Mapping[str, Any], idle: Sequence[str] = (), under_load: bool = False
) -> tuple[NotModelled, ...]:
    """Settings among those given that no figure depends on; of those that are `idle`, none of one answer."""
    named = {_named(name): value for name, value in given.items() if value is not None}
    return option_values.not_modelled(named, [_named(name) for name in idle], BY_NAME, under_load)


def _check(settings: Mapping[str, Any], model: Model) -> None:
    if settings["max_seq_len"] > model.max_context:
        raise InputError(
            f"{settings['max_seq_len']:,} is more than the {model.max_context:,} tokens {model.name} supports",
            where="setting max_seq_len",
            hint=f"Use at most {model.max_context}.",
        )
    tokens, sequences, block = (settings[name] for name in ("max_num_tokens", "max_batch_size", "tokens_per_block"))
    if tokens < sequences:
        raise InputError(
            f"{tokens:,} is less than max_batch_size {sequences:,}: decodes that take turns are not simulated",
            where="setting max_num_tokens",
            hint=f"Set max_num_tokens to at least {sequences}, or max_batch_size to at most {tokens}.",
        )
    if settings["enable_chunked_prefill"] and tokens < sequences + block:
        raise InputError(
            f"{tokens:,} leaves no chunk of a block ({block} tokens) beside {sequences:,} decodes",
            where="setting max_num_tokens",
            hint=f"Set max_num_tokens to at least {sequences + block}.",
        )


def _once(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their names; one that its place in the YAML gives another value is refused."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        known = _named(name)
        if known in found and parsed(BY_NAME[known], found[known]) != parsed(BY_NAME[known], value):
            raise InputError(f"{known} is given twice", where="setting", hint=f"Give it once, as {known} alone.")
        found[known] = value
    return found


def _named(name: str) -> str:
    folded = str(name).strip().lstrip("-").replace("-", "_").lower()
    if folded in FROM_STRATEGY:
        raise InputError(f"'{name}' is not a setting here", where="setting", hint=f"Use {FROM_STRATEGY[folded]}.")
    if folded in NOT_SIMULATED:
        raise InputError(f"'{name}' cannot be set: {NOT_SIMULATED[folded]}", where="setting", hint="Leave it out.")
    folded = ALIASES.get(folded, BY_PATH.get(folded, folded))
    if folded not in BY_NAME:
        raise unknown_name("TensorRT-LLM setting", str(name), BY_NAME, where="setting")
    return folded


def parsed(option: TrtllmOption, value: Any) -> int | float | bool | str:
    """A setting's value, from a text or as it is. Raises InputError where it has no such value."""
    if option.name == "cuda_graph_batch_sizes":
        return _sizes(option, value)
    if option.kind is str:
        if str(value) not in option.choices:
            raise bad_value(option, value, f"one of {', '.join(option.choices)}")
        return str(value)
    if option.kind is bool:
        return boolean(option, value)
    number = number_of(option, value)
    if option.kind is float and not 0 < number <= 1:
        raise bad_value(option, value, "a share above 0 and at most 1")
    if not option.low <= number <= option.high:
        raise bad_value(option, value, f"between {option.low:g} and {option.high:,.0f}")
    return int(number) if option.kind is int else number


def _sizes(option: TrtllmOption, value: Any) -> str:
    """A list of sizes as text."""
    words = [str(one) for one in value] if isinstance(value, list | tuple) else str(value).replace(",", " ").split()
    if not all(word.isdigit() and 0 < int(word) <= 2**17 for word in words):
        raise bad_value(option, value, "a list of whole numbers")
    return " ".join(str(size) for size in sorted({int(word) for word in words}))
