"""What a quantisation config says: formats, what they are for, and what is left out. One reader per method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import Fields, shown
from gnomon.spec import Format
from gnomon.spec.formats import MXFP4, NVFP4

MIXED = "MIXED_PRECISION"
LEAST_GROUP = 32
"""Weights that share a scale, at least: GEMMs are measured with 128, and read more scales with fewer."""
ALL = ("Linear",)
"""Targets that mean every matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Formats with the modules each is for, in the order they are tried, and the modules that none is for."""

    groups: tuple[tuple[tuple[str, ...], Format], ...]
    left_out: tuple[Any, ...] = ()
    key: str = ""
    """The field that names what is left out, for errors."""
    head: bool = False
    """The head is quantised too, unless it is left out."""
    towers: bool = False
    experts_only: bool = False


def fp8(block: tuple[int, int], scale_bits: float, static: bool = False) -> Format:
    return Format(name="fp8", bits=8, block=block, scale_bits=scale_bits, activations="fp8", static=static)


def scheme(config: Fields) -> Scheme:
    """The scheme of a `quantization_config`."""
    method = config.text("quant_method", "").lower() or _guess(config)
    if method not in METHODS:
        raise unknown_name("way to quantise", method, METHODS, where=config.spot("quant_method"))
    return METHODS[method](config)


def _guess(config: Fields) -> str:
    """Files of other tools do not name their method."""
    if config.has("quant_algo"):
        return "modelopt"
    if config.has("load_in_4bit") or config.has("load_in_8bit"):
        return "bitsandbytes"
    raise InputError("is missing", where=config.spot("quant_method"), hint=f"Supported: {', '.join(METHODS)}.")


def _left_out(config: Fields, *keys: str) -> tuple[tuple[Any, ...], str]:
    for key in keys:
        if config.has(key):
            return tuple(config.list(key)), config.spot(key)
    return (), config.spot(keys[0])


def _fp8(config: Fields) -> Scheme:
    """Blocks of weights share a scale, as in DeepSeek-V3, or each matrix has one."""
    left_out, key = _left_out(config, "modules_to_not_convert", "ignored_layers")
    sides = config.list("weight_block_size")
    if sides and (len(sides) != 2 or not all(type(side) is int and 0 < side <= 65536 for side in sides)):
        raise InputError(f"{shown(sides)} is not rows and columns", where=config.spot("weight_block_size"))
    static = config.text("activation_scheme", "dynamic") == "static"
    format = fp8((sides[0], sides[1]) if sides else (0, 0), 32, static)
    return Scheme(groups=((ALL, format),), left_out=left_out, key=key)


def _fbgemm(config: Fields) -> Scheme:
    left_out, key = _left_out(config, "modules_to_not_convert")
    return Scheme(groups=((ALL, fp8((1, 0), 32)),), left_out=left_out, key=key)


def _grouped(bits: int, group: int, zero: bool) -> Format:
    """Whole numbers that share a scale, and perhaps a zero point, along the inputs."""
    size = 0 if group == -1 else group
    return Format(
        name=f"int{bits}", bits=bits, block=(1, size), scale_bits=16, zero_bits=bits if zero else 0, activations=""
    )


def _bits(config: Fields, *keys: str) -> int:
    key = next((key for key in keys if config.has(key)), keys[0])
    bits = config.whole(key)
    if bits not in (2, 3, 4, 8):
        raise InputError(f"{bits} bits are not supported", where=config.spot(key), hint="Supported: 2, 3, 4, 8.")
    return bits


def _group(config: Fields, *keys: str) -> int:
    key = next((key for key in keys if config.has(key)), keys[0])
    if config.raw(key, 128) == -1:
        return -1
    return config.whole(key, 128)


def _checked_group(config: Fields, *keys: str) -> int:
    """The group size of integer weights, where GEMMs were measured with about as many scales."""
    size = _group(config, *keys)
    if 0 < size < LEAST_GROUP:
        key = next((key for key in keys if config.has(key)), keys[0])
        hint = f"Supported: {LEAST_GROUP} or more, and -1 for one scale per row."
        raise InputError(f"scales of {size} weights are not priced", where=config.spot(key), hint=hint)
    return size


def _gptq(config: Fields) -> Scheme:
    format = _grouped(_bits(config, "bits"), _checked_group(config, "group_size"), True)
    left_out, key = _left_out(config, "modules_to_not_convert")
    return Scheme(groups=((ALL, format),), left_out=left_out, key=key, head=config.flag("lm_head", False))


def _awq(config: Fields) -> Scheme:
    bits, group = _bits(config, "bits", "w_bit"), _checked_group(config, "group_size", "q_group_size")
    left_out, key = _left_out(config, "modules_to_not_convert")
    format = _grouped(bits, group, config.flag("zero_point", True))
    return Scheme(groups=((ALL, format),), left_out=left_out, key=key)


def _mxfp4(config: Fields) -> Scheme:
    left_out, key = _left_out(config, "modules_to_not_convert")
    return Scheme(groups=((ALL, MXFP4),), left_out=left_out, key=key, experts_only=True)


def _bitsandbytes(config: Fields) -> Scheme:
    left_out, key = _left_out(config, "llm_int8_skip_modules")
    four = config.flag("load_in_4bit", False) or config.flag("_load_in_4bit", False)
    if not four:
        format = Format(name="int8", bits=8, block=(1, 0), scale_bits=32, activations="int8")
    else:
        name = config.text("bnb_4bit_quant_type", "fp4")
        if name not in ("nf4", "fp4"):
            raise unknown_name("4-bit type", name, ("nf4", "fp4"), where=config.spot("bnb_4bit_quant_type"))
        # Scales are quantised in turn: eight bits each, and an fp32 number for 256 of them.
        twice = config.flag("bnb_4bit_use_double_quant", False)
        format = Format(name=name, bits=4, block=(1, 64), scale_bits=8 + 32 / 256 if twice else 32)
    return Scheme(groups=((ALL, format),), left_out=left_out or ("lm_head",), key=key, head=True, towers=True)


def _modelopt(config: Fields) -> Scheme:
    left_out, key = _left_out(config, "ignore", "exclude_modules")
    if config.has("config_groups"):
        return _groups(config, left_out, key)
    algorithms: dict[str, Callable[[], Format]] = {
        "FP8": lambda: fp8((0, 0), 32, static=True),
        "NVFP4": lambda: NVFP4,
        "W4A16_AWQ": lambda: _grouped(4, _checked_group(config, "group_size"), False),
    }
    name = config.text("quant_algo")
    if name not in algorithms:
        raise unknown_name("algorithm", name, algorithms, where=config.spot("quant_algo"))
    return Scheme(groups=((ALL, algorithms[name]()),), left_out=left_out, key=key, head=True, towers=True)


def _compressed(config: Fields) -> Scheme:
    return _groups(config, *_left_out(config, "ignore"))


def _groups(config: Fields, left_out: tuple[Any, ...], key: str) -> Scheme:
    named = config.inner("config_groups").items()
    if not 0 < len(named) <= 64:
        raise InputError(f"holds {len(named)} groups", where=config.spot("config_groups"))
    groups = []
    for name in named:
        group = config.inner("config_groups").inner(name)
        targets = group.list("targets")
        if not targets or not all(isinstance(target, str) for target in targets):
            raise InputError(f"{shown(targets)} does not name modules", where=group.spot("targets"))
        groups.append((tuple(targets), _weights(group)))
    return Scheme(groups=tuple(groups), left_out=left_out, key=key, head=True, towers=True)


def _weights(group: Fields) -> Format:
    """The format of one group of compressed-tensors."""
    weights = group.inner("weights")
    bits, kind, strategy = weights.whole("num_bits"), weights.text("type", "int"), weights.text("strategy", "tensor")
    size = _group(weights, "group_size") if strategy in ("group", "tensor_group") else 0
    if kind == "float" and bits == 4:
        if size not in (16, 32):
            raise InputError(f"{size} values per scale are not supported", where=weights.spot("group_size"))
        return NVFP4 if size == 16 else MXFP4
    name = {("float", 8): "fp8", ("int", 8): "int8", ("int", 4): "int4"}.get((kind, bits))
    if name is None:
        raise InputError(f"{kind} of {bits} bits is not supported", where=weights.spot("num_bits"))
    if strategy == "group":
        _checked_group(weights, "group_size")
    blocks = {"tensor": (0, 0), "channel": (1, 0), "group": (1, max(size, 0)), "block": _block(weights)}
    if strategy not in blocks:
        raise unknown_name("strategy", strategy, blocks, where=weights.spot("strategy"))
    zero = 0 if weights.flag("symmetric", True) else bits
    narrow = name if group.has("input_activations") else ""
    static = bool(narrow) and group.inner("input_activations").raw("dynamic", False) is False
    return Format(
        name=name,
        bits=bits,
        block=blocks[strategy],
        scale_bits=16,
        zero_bits=zero,
        activations=narrow,
        static=static,
    )


def _block(weights: Fields) -> tuple[int, int]:
    sides = weights.list("block_structure") if isinstance(weights.raw("block_structure", None), list) else []
    if len(sides) == 2 and all(type(side) is int and 0 < side <= 65536 for side in sides):
        return sides[0], sides[1]
    return 128, 128


METHODS: dict[str, Callable[[Fields], Scheme]] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "fbgemm_fp8": _fbgemm,
    "fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
