"""Helpers of the readers of all families. Field names are as Hugging Face writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import Fields, shown
from gnomon.spec import AttentionMixer, Block, DenseFfn, Embedding, Model, MoeFfn

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
MAX_LAYERS = 10_000
MOST_MERGED = 64
"""Patches per side that become one token, at most."""

Reader = Callable[[Fields, str], Model]
"""From a config and its family to the model; the caller adds name and source."""


def layer_count(config: Fields, key: str = "num_hidden_layers") -> int:
    return config.whole(key, most=MAX_LAYERS)


def attention(config: Fields, *, head_dim: int | None = None, bias: bool = False, **features: Any) -> AttentionMixer:
    """Grouped-query attention under the usual field names; `bias` is that of all projections."""
    heads = config.whole("num_attention_heads")
    kv_heads = config.whole("num_key_value_heads", heads)
    check_shared(heads, kv_heads, config.spot("num_key_value_heads"))
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim or head_dim_of(config)}
    return AttentionMixer(**shape | {"qkv_bias": bias, "out_bias": bias} | features)


def multi_head(
    config: Fields,
    heads: str = "num_attention_heads",
    width: str = "hidden_size",
    *,
    head_dim: int | None = None,
    bias: bool = False,
    **features: Any,
) -> AttentionMixer:
    """Attention with a key-value head for each query head, by the fields of the heads and of the width they split."""
    count = config.whole(heads)
    shape = {"heads": count, "kv_heads": count, "head_dim": head_dim or split(config, width, count)}
    return AttentionMixer(**shape | {"qkv_bias": bias, "out_bias": bias} | features)


def check_shared(count: int, groups: int, where: str, what: str = "heads", of: str = "key-value heads") -> None:
    """Raise where `count` is not a multiple of `groups`."""
    if count % groups:
        raise InputError(f"{count} {what} cannot share {groups} {of} evenly", where=where)


def head_dim_of(config: Fields, default: int | None = None) -> int:
    """The head dimension of the file, else the family's default, else the hidden size divided by the heads."""
    if config.has("head_dim"):
        return config.whole("head_dim")
    return default or split(config, "hidden_size", config.whole("num_attention_heads"), "Add head_dim to the file.")


def split(config: Fields, key: str, heads: int, hint: str = "") -> int:
    """The width of each head, where a field is divided by the heads."""
    hidden = config.whole(key)
    if hidden % heads:
        raise InputError(f"{hidden} is not a multiple of {heads} heads", where=config.spot(key), hint=hint)
    return hidden // heads


def experts(
    config: Fields, count: str, inner: str, *, topk: str = "num_experts_per_tok", shared: str = "", **features: Any
) -> MoeFfn:
    """A mixture of experts by the fields of their count and of their width; `shared` is the field that counts shared
    experts of the same width."""
    number, chosen = config.whole(count), config.whole(topk)
    if chosen > number:
        raise InputError(f"{chosen} experts per token of only {number}", where=config.spot(topk))
    if shared:
        features["shared_inner"] = config.whole(inner) * config.whole(shared, 0, least=0)
    return MoeFfn(experts=number, topk=chosen, inner=config.whole(inner), **features)


def grouped_experts(config: Fields, count: str, inner: str, **features: Any) -> MoeFfn:
    """A mixture of experts that are chosen from the best of their groups (`n_group`, `topk_group`)."""
    groups = config.whole("n_group", 1)
    chosen = config.whole("topk_group", groups)
    mixture = experts(config, count, inner, groups=groups, topk_groups=chosen, **features)
    check_expert_groups(mixture, config.spot("n_group"), config.spot("topk_group"))
    return mixture


def check_expert_groups(ffn: MoeFfn, groups: str, chosen: str) -> None:
    """Raise for groups that do not divide the experts; `groups` and `chosen` name the fields of the two counts."""
    check_shared(ffn.experts, ffn.groups, groups, "experts", "groups")
    if ffn.topk_groups > ffn.groups:
        raise InputError(f"{ffn.topk_groups} groups per token of only {ffn.groups}", where=chosen)


def dense(config: Fields, key: str = "intermediate_size", **features: Any) -> DenseFfn:
    return DenseFfn(inner=config.whole(key), **features)


def gather(layers: Iterable[Block]) -> tuple[Block, ...]:
    """The layers with runs of equal ones joined to one block."""
    return tuple(replace(block, count=sum(one.count for one in same)) for block, same in groupby(layers))


def uniform(count: int, **parts: Any) -> tuple[Block, ...]:
    """A stack of identical layers."""
    return (Block(count=count, **parts),)


def decoder(config: Fields, family: str, blocks: Iterable[Block], **features: Any) -> Model:
    """A model whose embedding and head are read from the usual fields, unless `features` gives them."""
    found: dict[str, Any] = {"name": family, "family": family, "blocks": gather(blocks)} | features
    usual: dict[str, Callable[[], Any]] = {
        "hidden": lambda: config.whole("hidden_size"),
        "vocab": lambda: config.whole("vocab_size"),
        "max_context": lambda: config.whole("max_position_embeddings"),
        "tied_embeddings": lambda: config.flag("tie_word_embeddings", False),
        "dtype": lambda: dtype(config),
    }
    return Model(**found | {name: read() for name, read in usual.items() if name not in found})


def dtype(config: Fields) -> str:
    key = "dtype" if config.has("dtype") else "torch_dtype"
    name = config.text(key, "bfloat16").removeprefix("torch.")
    other = config.text("torch_dtype", name).removeprefix("torch.")
    if other != name:
        raise InputError(f"'{name}' and the torch_dtype '{other}' differ", where=config.spot(key), hint="Give one.")
    if name not in DTYPES:
        hint = f"Supported: {', '.join(DTYPES)}."
        raise InputError(f"the number format '{name}' is not supported", where=config.spot(key), hint=hint)
    return DTYPES[name]


def drafts(config: Fields, layer: Block, key: str = "num_nextn_predict_layers") -> tuple[Block, ...]:
    """Layers for multi-token prediction, each like `layer`."""
    count = config.whole(key, 0, least=0, most=64)
    return (replace(layer, count=count),) if count else ()


def head_bias(config: Fields) -> tuple[Embedding, ...]:
    return (Embedding(name="head_bias", width=config.whole("vocab_size")),)


def layer_kinds(config: Fields, layers: int, known: Sequence[str], key: str = "layer_types") -> list[str] | None:
    """The kind of each layer, where the file lists them."""
    if config.raw(key, None) is None:
        return None
    found = config.list(key)
    for word in found:
        if not isinstance(word, str) or word not in known:
            name = word if isinstance(word, str) else shown(word)
            raise unknown_name("kind of layer", name, known, where=config.spot(key))
    if len(found) != layers:
        raise InputError(f"names {len(found)} layers of {layers}", where=config.spot(key))
    return found


def numbers(config: Fields, key: str) -> list[int]:
    """A list of layer indices."""
    found = config.list(key)
    for entry in found:
        if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
            raise InputError(f"{shown(entry)} is not a layer index", where=config.spot(key))
    return found


def window_of(config: Fields) -> int | None:
    """The sliding window of all layers, where the file has one."""
    return config.whole("sliding_window") if config.has("sliding_window") else None


def windows(config: Fields, layers: int, period: int) -> list[int | None]:
    """Sliding windows in all layers but every `period`-th, unless the file names each layer's kind."""
    window = window_of(config)
    kinds = layer_kinds(config, layers, ("sliding_attention", "full_attention"))
    if kinds is None:
        kinds = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]
    return [window if kind == "sliding_attention" else None for kind in kinds]


def rotary_dim(config: Fields, head_dim: int, default: float = 1.0) -> int | None:
    """Rotary channels of a head, where these are not all."""
    share = default
    for holder in (config, config.inner("rope_parameters")):
        if holder.has("partial_rotary_factor"):
            share = holder.number("partial_rotary_factor")
    if share > 1:
        raise InputError(f"{share} is more than 1", where=config.spot("partial_rotary_factor"))
    return None if share == 1 else int(head_dim * share)


def rotary_layers(config: Fields, count: int, interval: int = 4) -> list[bool]:
    """Which layers have rotary positions; despite its name, `no_rope_layers` holds 1 for those that do."""
    given = numbers(config, "no_rope_layers")
    if not given:
        every = config.whole("no_rope_layer_interval", interval)
        return [(layer + 1) % every != 0 for layer in range(count)]
    if len(given) != count:
        raise InputError(f"names {len(given)} layers of {count}", where=config.spot("no_rope_layers"))
    return [bool(entry) for entry in given]


def refuse(config: Fields, key: str, what: str) -> None:
    """Raise for a feature that `Model` cannot express, where it is switched on."""
    if config.flag(key, False):
        raise InputError(f"{what} is not supported", where=config.spot(key))


def only(config: Fields, key: str, known: Sequence[str]) -> None:
    """Raise for a value that is not one of the supported ones, where it is given."""
    if config.has(key) and config.text(key) not in known:
        raise InputError(
            f"'{config.text(key)}' is not supported", where=config.spot(key), hint=f"Supported: {', '.join(known)}."
        )
