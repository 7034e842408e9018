"""Speculative decoding that flags of `vllm serve` ask for, as vLLM 0.24 understands them (`SpeculativeConfig`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnomon.engines.command_line import Value, names, option_text
from gnomon.engines.imported import CommandImport, single
from gnomon.engines.vllm.drafts import LOOKUP, METHODS, NEEDS_MODEL, USUAL_SHARE
from gnomon.engines.vllm.options import BY_NAME, parsed
from gnomon.errors import GnomonError, InputError, unknown_name

FLAG = "speculative-config"
SHORT = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
"""Flags that say one field each."""
OWN_HEADS = names("""
    mtp deepseek_mtp mimo_mtp mimo_v2_mtp glm4_moe_mtp glm4_moe_lite_mtp glm_ocr_mtp ernie_mtp nemotron_h_mtp
    exaone_moe_mtp exaone4_5_mtp qwen3_next_mtp qwen3_5_mtp longcat_flash_mtp minimax_m3_mtp pangu_ultra_moe_mtp
    step3p5_mtp hy_v3_mtp gemma4_mtp""")
"""All of them are `mtp` for vLLM (`MTPModelTypes`)."""
NOT_PRICED = names("medusa mlp_speculator suffix custom_class extract_hidden_states dflash")
BESIDE = names("""
    enforce_eager draft_tensor_parallel_size tensor_parallel_size quantization moe_backend attention_backend
    max_model_len revision code_revision disable_padded_drafter_batch use_local_argmax_reduction prompt_lookup_max
    prompt_lookup_min parallel_drafting num_speculative_tokens_per_batch_size suffix_decoding_max_tree_depth
    suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor suffix_decoding_min_token_prob
    draft_load_config rejection_sample_method synthetic_acceptance_rates synthetic_acceptance_length
    draft_sample_method""")
"""Fields beside the method, the number of drafts and the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFlags:
    """What a release takes in `--speculative-config`."""

    heads: tuple[str, ...] = OWN_HEADS
    not_priced: tuple[str, ...] = NOT_PRICED
    beside: tuple[str, ...] = BESIDE

    @property
    def known(self) -> tuple[str, ...]:
        """Every method."""
        return (*METHODS[1:], *self.heads[1:], *self.not_priced)


DRAFTS = DraftFlags()
LOADED = ("revision", "code_revision")
BY_NAME_OF_MODEL = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash"}
"""Methods that vLLM finds from the name of the weights."""


def draft_settings(given: CommandImport, flags: DraftFlags = DRAFTS) -> dict[str, Any]:
    """The settings of `--speculative-config`, or of the flags that say its fields."""
    fields = _fields(given)
    if fields is None:
        return {}
    whole = dict(fields)
    model = _text(fields.pop("model", None), "model")
    method = _method(given, _text(fields.pop("method", None), "method"), model, flags)
    tokens = fields.pop("num_speculative_tokens", None)
    for name in fields:
        if name not in flags.beside:
            raise unknown_name(
                "field", name, ("method", "model", "num_speculative_tokens", *flags.beside), where=f"--{FLAG}"
            )
    if method in flags.not_priced:
        given.ignore(option_text(FLAG, whole), f"not modelled: drafts by {method}", affects=True)
        return {}
    if tokens is None:
        hint = "Give num_speculative_tokens, as in --speculative-config.num_speculative_tokens 3."
        raise InputError("does not say how many drafts a step has", where=f"--{FLAG}", hint=hint)
    for name, value in fields.items():
        _beside(given, name, value)
    assumed = f"nothing says how many drafts are accepted: {USUAL_SHARE:g} is assumed until the plan sets it"
    given.ignore("draft_acceptance", assumed, affects=True)
    return {"speculative_method": method, "num_speculative_tokens": _tokens(tokens)} | _weights(given, method, model)


def _fields(given: CommandImport) -> dict[str, Any] | None:
    """All that is said of drafts; nothing where no flag is about them."""
    config = given.take(FLAG)
    if config is not None and not isinstance(config, dict):
        raise InputError(f"'{single(f'--{FLAG}', config)}' is no JSON object", where=f"--{FLAG}")
    found = dict(config or {})
    for flag, name in SHORT.items():
        value: Value | None = given.take(flag)
        if value is None:
            continue
        if name in found:
            raise InputError(f"is said by --{flag} too", where=f"--{FLAG}.{name}", hint="Say it once.")
        found[name] = single(f"--{flag}", value)
    return None if config is None and not found else found


def _text(value: Any, name: str) -> str:
    if value is not None and not isinstance(value, str):
        raise InputError(f"'{value}' is no name", where=f"--{FLAG}.{name}")
    return single(f"--{FLAG}.{name}", value) if value else ""


def _method(given: CommandImport, said: str, model: str, flags: DraftFlags) -> str:
    """What vLLM takes: a class by its path, what is said, or what the name of the weights says."""
    if said and said not in flags.known:
        raise unknown_name("method", said, flags.known, where=f"--{FLAG}")
    if _is_class(given, model):
        return "custom_class"
    if not said and not model:
        hint = f"Give a method: {', '.join(METHODS[1:])}."
        raise InputError("names neither a method nor a draft model", where=f"--{FLAG}", hint=hint)
    method = said or ("ngram" if model in ("ngram", "[ngram]") else "draft_model")
    method = "mtp" if method in flags.heads else method
    if method not in ("draft_model", "mtp"):
        return method
    return next((found for part, found in BY_NAME_OF_MODEL.items() if part in model.lower()), method)


def _is_class(given: CommandImport, model: str) -> bool:
    """Whether vLLM takes a name for a Python class of your own, `package.Class`."""
    if "." not in model or "/" in model:
        return False
    try:
        given.names.other_model(model)
    except GnomonError:
        return True
    return False


def _tokens(value: Any) -> int:
    where = f"--{FLAG}.num_speculative_tokens"
    option = BY_NAME["num_speculative_tokens"]
    try:
        found = int(parsed(option, value))
    except GnomonError as error:
        error.where = where
        raise
    if not found:
        raise InputError("'0' is not a number of drafts", where=where, hint=f"It is above {option.default}.")
    return found


def _weights(given: CommandImport, method: str, model: str) -> dict[str, Any]:
    """The draft model, and its size where it is one of its own."""
    if method in LOOKUP:
        if model not in ("", "[ngram]", *LOOKUP):
            given.ignore(f"--{FLAG}.model {model}", f"{method} has no draft model", affects=False)
        return {}
    if not model:
        if method in NEEDS_MODEL:
            hint = "Give model, as in --speculative-config.model NAME."
            raise InputError(f"{method} names no draft model", where=f"--{FLAG}", hint=hint)
        return {}
    if method != "draft_model":
        return {"draft_model": model}
    try:
        found = given.names.other_model(model)
    except GnomonError as error:
        error.where = f"--{FLAG}.model"
        error.hint = (
            "How large it is has to be known: name a model of `gnomon models`, or a folder with its config.json."
        )
        raise
    return {"draft_model": model, "draft_parameters": float(found.parameters)}


def _beside(given: CommandImport, name: str, value: Any) -> None:
    loaded = name in LOADED
    why = (
        "where and how files are loaded, once at the start" if loaded else "not modelled: how drafts are made beside it"
    )
    given.ignore(f"--{FLAG}.{name} {value}", why, affects=not loaded)
