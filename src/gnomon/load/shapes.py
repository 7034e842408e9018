"""Shapes written by hand: a model as plain values, field by field as the nouns have them, and back."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from gnomon.errors import InputError, unknown_name
from gnomon.load.families.base import MAX_LAYERS, check_expert_groups, check_shared
from gnomon.load.fields import Fields, shown
from gnomon.spec import (
    AttentionMixer,
    Block,
    ConvolutionLayer,
    CrossAttention,
    DenseFfn,
    Embedding,
    Format,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Linear,
    Mamba,
    Mamba2,
    Model,
    Modulation,
    MoeFfn,
    Norm,
    NotModelled,
    ShortConvolution,
)
from gnomon.spec.formats import PLAIN_BITS

SCHEMA = "gnomon.model/1"
KINDS: dict[str, type] = {
    "attention": AttentionMixer,
    "latent": LatentAttention,
    "cross": CrossAttention,
    "mamba": Mamba,
    "mamba2": Mamba2,
    "gated_delta": GatedDelta,
    "lightning": LightningAttention,
    "short_convolution": ShortConvolution,
    "dense": DenseFfn,
    "moe": MoeFfn,
    "linear": Linear,
    "table": Embedding,
    "convolution": ConvolutionLayer,
    "norm": Norm,
    "modulation": Modulation,
}
"""The word that `kind` holds, where a field may hold several nouns."""
_NAMES = {noun: kind for kind, noun in KINDS.items()}
_UNSAID = ("hub_id", "source", "family", "name", "not_modelled", "beside", "wide_layers")
_OURS = ("source", "not_modelled", "beside", "wide_layers")
"""Fields of a model that its reader fills in: a file has none of them."""
NEEDS: dict[type, dict[str, str]] = {
    AttentionMixer: {
        "qk_norm_whole": "qk_norm", "qk_norm_weight": "qk_norm", "qk_norm_bias": "qk_norm", "key_bias": "qkv_bias",
        "chunked": "window",
    },
    CrossAttention: {"qk_norm_whole": "qk_norm"},
    MoeFfn: {"shared_gate": "shared_inner"},
}  # fmt: skip
"""Fields that say nothing without another."""
TIMELESS: dict[type, dict[str, str]] = {
    Model: {
        "scaled_embedding": "a factor on embeddings takes no time of its own",
        "centred_norms": "norms of decoders take as long with a mean as without",
    },
    Block: {"norm_after": "norms take as long behind a half of a layer as before it"},
    MoeFfn: {
        "router": "scores of experts take as long by any rule",
        "groups": "choosing experts by groups takes no longer, and tokens are dealt to experts evenly",
        "topk_groups": "choosing experts by groups takes no longer, and tokens are dealt to experts evenly",
    },
}
"""Fields that no figure depends on, where they are not what they are by default."""
ENCODING = ("encoder", "encoder-decoder", "diffusion", "multimodal")
"""Kinds of networks whose kernels are priced one by one, norms and factors among them."""
MAX_BLOCKS = 10_000
_FROM_ZERO = frozenset({"vocab", "rotary_dim", "norms"})
"""Counts that may be none though that is not what they are by default: a network for images has no vocabulary."""


def model_from_dict(data: dict[str, Any], where: str) -> Model:
    """The model of a mapping; unknown fields are errors."""
    config = Fields(data, where)
    config.check_schema(SCHEMA)
    found: Model = _noun(Model, config.filled({"name": "custom", "family": "custom"}), ("schema",))
    _check(found, config)
    told = {one.option: one for one in _timeless(found, config)}
    return dataclasses.replace(found, not_modelled=tuple(told.values()))


def _timeless(model: Model, config: Fields) -> Iterator[NotModelled]:
    """What the shapes say that no figure depends on, each once."""
    parts: list[Any] = [] if model.kind in ENCODING else [model]
    parts += [part for block in model.blocks for part in (block, block.ffn) if part is not None]
    for part in parts:
        for field in dataclasses.fields(part):
            why = TIMELESS.get(type(part), {}).get(field.name)
            value = getattr(part, field.name)
            if why and value != field.default:
                shown_value = str(value).lower() if isinstance(value, bool) else value
                yield NotModelled(option=f"{config.spot('')}, {field.name}: {shown_value}", why=why)


def model_to_dict(model: Model) -> dict[str, Any]:
    """What `model_from_dict` reads; fields at their default are left out, and so is where the model came from."""
    plain = _plain(model)
    assert isinstance(plain, dict)
    return {"schema": SCHEMA, "name": model.name} | {key: plain[key] for key in plain if key not in _UNSAID}


def shapes_to_yaml(shapes: dict[str, Any]) -> str:
    """A model as the text of a YAML file: runs of equal layers are written once, with their count."""
    import yaml

    text: str = yaml.safe_dump(shapes, sort_keys=False, default_flow_style=None, width=100)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        if value and all(isinstance(item, tuple) for item in value):  # formats by role
            return {role: _plain(format) for role, format in value}
        return [_plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    kind = {"kind": _NAMES[type(value)]} if type(value) in _NAMES else {}
    said = {
        field.name: _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) not in (field.default, None)
    }
    return kind | said


@cache
def _hints(noun: type) -> dict[str, Any]:
    return get_type_hints(noun)


def _noun(noun: type, config: Fields, taken: tuple[str, ...] = ()) -> Any:
    """One noun, each field read as its type asks."""
    fields = [field for field in dataclasses.fields(noun) if noun is not Model or field.name not in _OURS]
    values: dict[str, Any] = {}
    for key in (*taken, *(field.name for field in fields)):
        config.raw(key, None)
    config.done()  # a slip in a field's name is told before the field it leaves out
    for field in fields:
        if config.has(field.name):
            values[field.name] = _value(_hints(noun)[field.name], config, field.name, field.default)
        elif type(None) in get_args(_hints(noun)[field.name]):
            values[field.name] = None
        elif field.default is dataclasses.MISSING:
            raise InputError("is missing", where=config.spot(field.name))
    _check_needs(noun, values, {field.name: field.default for field in fields}, config)
    return noun(**values)


def _check_needs(noun: type, values: dict[str, Any], defaults: dict[str, Any], config: Fields) -> None:
    for name, needed in NEEDS.get(noun, {}).items():
        if values.get(name, defaults[name]) != defaults[name] and not values.get(needed, defaults[needed]):
            raise InputError(f"says nothing without {needed}", where=config.spot(name), hint="Leave it out.")


def _value(hint: Any, config: Fields, key: str, default: Any) -> Any:
    if key == "formats":
        inner = config.inner(key)
        return tuple(sorted((role, _noun(Format, inner.inner(role))) for role in inner.items()))
    if get_origin(hint) in (Union, types.UnionType):
        return _union([part for part in get_args(hint) if part is not type(None)], config, key, default)
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint), config, key)
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return _noun(hint, config.inner(key), ("kind",) if hint in _NAMES else ())
    if hint is bool:
        return config.flag(key, False)
    if hint is str:
        return config.text(key)
    if hint is float:
        return config.number(key)
    return config.whole(key, least=0 if default == 0 or key in _FROM_ZERO else 1)


def _union(parts: list[Any], config: Fields, key: str, default: Any) -> Any:
    if len(parts) == 1:
        return _value(parts[0], config, key, default)
    return _kind(parts, config.inner(key))


def _kind(parts: list[Any], config: Fields) -> Any:
    known = [kind for kind, noun in KINDS.items() if noun in parts]
    kind = config.text("kind")
    if kind not in known:
        raise unknown_name("kind", kind, known, where=config.spot("kind"))
    return _noun(KINDS[kind], config, ("kind",))


def _tuple(parts: tuple[Any, ...], config: Fields, key: str) -> tuple[Any, ...]:
    found = config.list(key)
    if parts[-1] is not Ellipsis:  # a pair of whole numbers
        if len(found) != len(parts) or not all(type(item) is int and 0 <= item <= 2**31 for item in found):
            raise InputError(f"{shown(found)} is not {len(parts)} whole numbers", where=config.spot(key))
        return tuple(found)
    if len(found) > MAX_BLOCKS:
        raise InputError(f"holds {len(found):,} entries", where=config.spot(key))
    members = list(get_args(parts[0])) or [parts[0]]
    items = [config.item(key, place) for place in range(len(found))]
    return tuple(_noun(members[0], item) if len(members) == 1 else _kind(members, item) for item in items)


def _check(model: Model, config: Fields) -> None:
    """What single fields cannot show to be wrong."""
    if not model.blocks:
        raise InputError("holds no layers", where=config.spot("blocks"))
    if model.layers > MAX_LAYERS:
        raise InputError(f"{model.layers:,} layers are more than {MAX_LAYERS:,}", where=config.spot("blocks"))
    plain = "kept_dtype" if any(block.formats for block in model.blocks) else "dtype"
    if plain == "dtype" and model.kept_dtype:
        message, hint = "says nothing where no layer has formats", "Leave it out."
        raise InputError(message, where=config.spot("kept_dtype"), hint=hint)
    if getattr(model, plain) not in PLAIN_BITS:
        raise unknown_name("number format", getattr(model, plain), PLAIN_BITS, where=config.spot(plain))
    towers = ((f"towers[{place}].blocks", tower.blocks) for place, tower in enumerate(model.towers))
    for key, blocks in (("blocks", model.blocks), ("mtp", model.mtp), *towers):
        for place, block in enumerate(blocks):
            _check_block(block, config.spot(f"{key}[{place}]"))


def _check_block(block: Block, spot: str) -> None:
    mixer, ffn = block.mixer, block.ffn
    if mixer is None and ffn is None:
        raise InputError("is a layer of nothing", where=spot, hint="Give it a mixer, an ffn, or both.")
    if isinstance(mixer, AttentionMixer | CrossAttention):
        check_shared(mixer.heads, mixer.kv_heads, f"{spot}.mixer.kv_heads")
    if isinstance(mixer, Mamba2):
        check_shared(mixer.heads, mixer.groups, f"{spot}.mixer.groups", of="groups")
    if isinstance(mixer, GatedDelta):
        check_shared(mixer.value_heads, mixer.key_heads, f"{spot}.mixer.key_heads", "value heads", "key heads")
    if isinstance(ffn, MoeFfn):
        if ffn.topk > ffn.experts:
            raise InputError(f"{ffn.topk} experts per token of only {ffn.experts}", where=f"{spot}.ffn.topk")
        check_expert_groups(ffn, f"{spot}.ffn.groups", f"{spot}.ffn.topk_groups")
