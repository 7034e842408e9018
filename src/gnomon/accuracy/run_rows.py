"""Rows of published training runs as options of `simulate_training`, or why they cannot be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.accuracy.deployment_rows import Row, Unfit, positive
from gnomon.errors import InputError
from gnomon.load import chip, model
from gnomon.load.shapes import SCHEMA

NEEDED = (
    "id", "source", "confidence", "framework", "model", "arch", "layers", "hidden", "heads", "kv_heads", "ffn",
    "vocab", "seq_len", "moe", "gpu", "n_gpus", "gpus_per_node", "inter_link", "tp", "seq_par", "pp", "vp", "cp",
    "ep", "dp", "zero_stage", "schedule", "micro_batch", "global_batch", "precision", "recompute", "features",
    "step_time_s", "step_time_derived_s", "tflops_per_gpu", "tflops_kind",
    "mem_gb", "mem_kind", "outcome", "good_for", "fields_not_read", "notes",
)  # fmt: skip
KNOWN = {
    "Llama 3 8B": "llama-3-8b",
    "Llama 3 70B": "llama-3-70b",
    "Llama 3.1 8B": "llama-3.1-8b",
    "Llama 3.1 70B": "llama-3.1-70b",
    "Llama 3.1 405B": "llama-3.1-405b",
    "Llama 2 7B": "llama-2-7b",
    "Llama 2 13B": "llama-2-13b",
    "Llama 2 70B": "llama-2-70b",
    "GPT-3 175B": "gpt3-175b",
    "Qwen3 30B-A3B": "qwen3-30b-a3b",
    "Qwen3 30B A3B": "qwen3-30b-a3b",
    "Qwen3 235B-A22B": "qwen3-235b-a22b",
    "Qwen3 235B A22B": "qwen3-235b-a22b",
    "DeepSeek V3": "deepseek-v3",
    "DeepSeek-V3": "deepseek-v3",
    "GPT-OSS 120B": "gpt-oss-120b",
    "Mixtral 8x22B": "mixtral-8x22b",
    "Mixtral 8x7B": "mixtral-8x7b",
}
"""Networks of the catalog by the beginning of their name in the table; their shapes need not have been read."""
CHIPS = {"H100": "H100-SXM-80GB", "H100-SXM 80GB 700W": "H100-SXM-80GB", "B200": "B200-SXM-180GB"}
ENGINES = {
    "Megatron-LM": "megatron",
    "Megatron-Core": "megatron",
    "Megatron-Bridge": "megatron@bridge",
    "NeMo/Megatron": "megatron@bridge",
    "Megatron-DeepSpeed": "deepspeed@0.5",
    "TorchTitan": "torchtitan@2024",
    "Megatron-DeepSpeed ZeRO": "deepspeed@0.3",
    "DeepSpeed ZeRO-3": "deepspeed@0.5",
    "Composer FSDP": "torch@2.0",
    "PyTorch DDP": "torch",
}
OLD = ("A100-SXM 80GB", "A100-SXM 40GB", "V100-SXM2 32GB", "V100-SXM3 32GB")
"""Megatron-LM's rows of these cards are from 2020 to 2022."""
SIZES = {"GPT-2 39B": (48, 8192, 32), "GPT-2 52B": (64, 8192, 32), "GPT-2 18B": (40, 6144, 32)}
"""Layers, channels and heads of BigScience's networks by size (bigscience-workshop/bigscience, experiments/gpt2.md and
its scripts' MSIZE), which the table leaves out."""
SIZES_VOCAB = 50_304
FORMULA = "hardware (Megatron formula)"
"""TFLOP/s of 96 B s l h^2 (1 + s/6h + V/16lh) (Narayanan et al. 2021), from which seconds of a step follow."""
OTHER_TABLES = ("Megatron-LM SC21", "Korthikanti 2022")
BRIDGE_LIKE = "Megatron-LM examples/llama"
"""Whose scripts reduce gradients in 16 bits and keep weights in fp8, as Megatron-Bridge's do."""
FITTED = "vTrain measured single-node"
HARMLESS = ("link", "mfu_pct", "hfu_pct", "gpu memory", "vp (from")
"""Beginnings of what a prediction does not ask of the table."""
NOT_SIMULATED = {
    r"\b(q?lora|peft|adapters?|frozen)\b": "adapters (LoRA) or frozen weights are not simulated",
    r"(?<!w/o )\bmtp\b": "multi-token prediction (MTP) is not trained here",
    r"\basynctp\b": "overlapped tensor-parallel communication (AsyncTP) is not simulated",
    r"\bep overlap on\b": "overlapped expert-parallel communication is not simulated",
    r"\btokendrop\b": "tokens dropped at an expert's capacity are not simulated",
}
"""What makes another run of it, in a row's model or features, and why it is left out."""
PLAIN_FEATURES = (
    "", "2d", "dropless", "eager", "force-balanced", "fsdp2", "fsdp2+tp", "fsdp shards over dp*cp", "vanilla tp",
    "w/o mtp", "ep overlap off", "hybridep", "deepep", "torch.compile",
)  # fmt: skip
"""Features that the plan's other columns say, or that are so in a prediction."""
FORMATS = {
    "nvfp4": "nvfp4",
    "fp8-mx": "mxfp8",
    "mxfp8": "mxfp8",
    "rowwise": "fp8-rows",
    "blockwise": "fp8-blocks",
    "fp8-cs": "fp8-current",
    "current scaling": "fp8-current",
    **{name: name for name in ("fp8", "bf16", "fp16")},
}
"""Parts of a precision's name with the format of a plan, the narrower ones first."""
GATHERED = "all-gather"
"""Of a precision that gathers weights in the format of its GEMMs."""
SCHEDULES = ("", "none", "1f1b", "1f1b-interleaved", "interleaved 1f1b")
DIMS = ("dims", "model dims")
DEFAULT_LENGTH = "seq_len where not in table"
GIB, GB = 1024.0**3, 1e9
ON_DEVICE = ("GB", "nvidia-smi")
"""Read off the device: what the allocator reserves, with context and buffers."""
RESERVED = ("TorchTitan",)
"""Frameworks whose logs give what the allocator reserves, not what it allocates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCase:
    """A training run: its network (a catalog name, or shapes), the options of its plan, and what was measured."""

    row: Row
    network: str | Mapping[str, Any]
    options: Mapping[str, Any]
    assumed: tuple[str, ...]
    """Columns the plan needs that its source does not give."""
    adapters: tuple[int, float, int] | None
    """Of a node, as the source gives them: how many, bytes per second of one, and the chips that share them (0 where it
    does not say). A tray of four chips is a node to some, where the catalog's is the rack that NVLink joins."""
    measured: Mapping[str, float]
    """Seconds of a step, bytes of the fullest rank."""


def run_case_of(row: Row) -> RunCase:
    """The row as a case to compare; raises `Unfit`."""
    row = _completed(row)
    _check(row)
    name = next((known for begin, known in KNOWN.items() if row["model"].startswith(begin)), None)
    network = name if name and _count(row, "seq_len") <= model(name).max_context else _shapes(row)
    options: dict[str, Any] = {
        "on": f"{_chip(row['gpu'])}:{_count(row, 'n_gpus')}",
        "seq": _count(row, "seq_len"),
        "global_batch": _count(row, "global_batch"),
        "micro_batch": _count(row, "micro_batch", 1),
        **{degree: _count(row, degree, 1) for degree in ("tp", "pp", "vp", "cp", "ep")},
        "zero": _zero(row),
        "recompute": row["recompute"].partition(" ")[0] or "none",
        "dtype": _dtype(row["precision"]),
        "engine": _engine(row),
        "sequence_parallel": row["seq_par"] != "no",
    }
    if options["engine"] == "megatron@2.4":
        options["zero"] = 0
    if options["engine"].startswith("deepspeed"):
        options["sequence_parallel"] = False
    return RunCase(
        row=row, network=network, options=options, assumed=_assumed(row, name), adapters=_adapters(row),
        measured=_measured(row),
    )  # fmt: skip


def _completed(row: Row) -> Row:
    """The row with what its source says elsewhere, or leaves to be derived."""
    found = dict(row)
    if not row["hidden"] and row["model"] in SIZES:
        layers, hidden, heads = SIZES[row["model"]]
        found |= {"layers": str(layers), "hidden": str(hidden), "heads": str(heads), "vocab": str(SIZES_VOCAB)}
        found["fields_not_read"] = "; ".join((row["fields_not_read"], "layers", "hidden", "heads", "vocab"))
    if row["framework"] == "DeepSpeed ZeRO-3" and not row["global_batch"] and row["micro_batch"]:
        found["global_batch"] = str(int(row["micro_batch"]) * int(row["n_gpus"]))
    seconds = row["step_time_s"] or row["step_time_derived_s"]
    if not seconds and row["tflops_kind"] == FORMULA and found["global_batch"]:
        rate = float(row["tflops_per_gpu"]) * 1e12 * int(row["n_gpus"])
        found["step_time_derived_s"] = str(_formula_flops(found) / rate)
    return found


def _formula_flops(row: Row) -> float:
    batch, seq, layers, hidden, vocab = (
        float(row[name]) for name in ("global_batch", "seq_len", "layers", "hidden", "vocab")
    )
    return 96 * batch * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))


def _adapters(row: Row) -> tuple[int, float, int] | None:
    found = re.match(r"(\d+)x .*?(\d+) Gb/s", row["inter_link"])
    return (int(found[1]), float(found[2]) * 1e9 / 8, _count(row, "gpus_per_node", 0)) if found else None


def _check(row: Row) -> None:
    if row["source"].startswith(OTHER_TABLES):
        raise Unfit("compared in a table of its own, or not a whole step")
    if row["source"].startswith(FITTED):
        raise Unfit("the host's launch time was fitted to these")
    if row["confidence"] != "read":
        raise Unfit("recalled, not read")
    if not row["good_for"].startswith("timing") or row["outcome"].startswith("OOM"):
        raise Unfit(f"no step time ({row['good_for']})")
    if row["framework"] not in ENGINES:
        raise Unfit(f"no engine for {row['framework']}")
    about = f"{row['model']}; {row['features']}".casefold()
    for mark, why in NOT_SIMULATED.items():
        if re.search(mark, about):
            raise Unfit(why)
    if not row["tp"] and not row["pp"]:
        raise Unfit("plan not given")
    schedule = row["schedule"].casefold()
    if schedule not in SCHEDULES:
        raise Unfit(f"schedule {row['schedule']} is not simulated")
    degrees = [_count(row, name, 1) for name in ("tp", "pp", "dp")]
    if row["model"] in SIZES and degrees[0] * degrees[1] * degrees[2] != _count(row, "n_gpus"):
        raise Unfit("its degrees do not multiply to its chips")
    if "interleaved" in schedule and _count(row, "vp", 1) == 1:
        raise Unfit("interleaved, and the virtual pipeline size not given")


def _assumed(row: Row, known: str | None) -> tuple[str, ...]:
    named = [part.strip() for part in row["fields_not_read"].split(";")]
    named = [part for part in named if part and not part.startswith(HARMLESS)]
    if known:
        named = [part for part in named if part not in DIMS]
    named = ["seq_len" if part.startswith(DEFAULT_LENGTH) else part for part in named]
    missing = [name for name in ("micro_batch", "recompute") if not row[name]]
    by_operator = row["framework"] == "TorchTitan" and row["recompute"] == "selective (op)"
    if "(" in row["recompute"] and not by_operator:  # every second layer: another choice than the engine's
        missing.append("recompute")
    features = (part.strip() for part in row["features"].split(";"))
    named += [part for part in features if part.casefold() not in PLAIN_FEATURES and "local batch" not in part]
    capped = ["power limit"] if "power limited" in row["gpu"] else []
    return tuple(dict.fromkeys([*named, *missing, *capped]))


def _shapes(row: Row) -> dict[str, Any]:
    if row["moe"] or row["arch"] not in ("gpt", "llama"):
        raise Unfit(f"network not in the catalog and not plain ({row['arch'] or 'no architecture given'})")
    hidden, heads, gated = _count(row, "hidden"), _count(row, "heads"), row["arch"] == "llama"
    mixer = {"kind": "attention", "heads": heads, "kv_heads": _count(row, "kv_heads", heads)}
    ffn = {"kind": "dense", "inner": _count(row, "ffn", 4 * hidden), "gated": gated}
    # GPT's positions are learned or biases of scores: nothing is turned.
    mixer |= {"head_dim": hidden // heads} | ({} if gated else {"rotary_dim": 0})
    block = {"count": _count(row, "layers"), "mixer": mixer, "ffn": ffn}
    seen = {"hidden": hidden, "vocab": _count(row, "vocab"), "max_context": _count(row, "seq_len")}
    return {"schema": SCHEMA, "tied_embeddings": not gated, "norm_bias": not gated, "blocks": [block]} | seen


def _chip(name: str) -> str:
    try:
        return chip(CHIPS.get(name, name)).name
    except InputError:
        raise Unfit(f"card not in the catalog: {name or 'not given'}") from None


def _engine(row: Row) -> str:
    if row["framework"] == "Megatron-LM" and row["gpu"] in OLD:
        return "megatron@2.4"
    if row["source"].startswith(BRIDGE_LIKE):
        return "megatron@bridge"
    if row["source"].startswith("vTrain"):
        return "deepspeed@0.9"
    if row["framework"] == "TorchTitan" and "torch.compile" not in row["features"] and "fp8" not in row["precision"]:
        return "torchtitan@2024-eager"
    return ENGINES[row["framework"]]


def _zero(row: Row) -> int:
    """NeMo's and Megatron-Bridge's recipes always have the distributed optimizer."""
    stage = row["zero_stage"]
    if "offload" in stage:
        raise Unfit("optimizer states in host memory")
    if not (stage.startswith("FSDP") or stage[:1] in "0123"):
        raise Unfit("no zero_stage")
    least = int(ENGINES[row["framework"]] == "megatron@bridge")
    return 2 if stage.startswith("FSDP") else max(least, int(stage[:1] or 0))


def _dtype(precision: str) -> str:
    """The format of the GEMMs; raises `Unfit` for one that is not simulated."""
    name = precision.casefold()
    if GATHERED in name:
        raise Unfit(f"training in {precision} gathers weights in fp8, which is not simulated")
    found = next((dtype for part, dtype in FORMATS.items() if part in name), "")
    if not found:
        raise Unfit(f"training in {precision} is not simulated" if name else "precision not given")
    return found


def _measured(row: Row) -> dict[str, float]:
    seconds = next((name for name in ("step_time_s", "step_time_derived_s") if row[name]), None)
    found = {"step time": positive(row, seconds)} if seconds else {}
    kind = row["mem_kind"]
    if row["mem_gb"] and kind.startswith(("peak", *ON_DEVICE)):
        what = "device memory" if kind.startswith(ON_DEVICE) else "peak memory"
        found[what] = positive(row, "mem_gb") * (GIB if "GiB" in kind else GB)
    if not found:
        raise Unfit("neither a step time nor tokens per second, nor memory")
    return found


def _count(row: Row, name: str, usual: int | None = None) -> int:
    try:
        return round(float(row[name]))
    except (ValueError, OverflowError):
        if usual is not None and not row[name]:
            return usual
        raise Unfit(f"no {name}") from None
