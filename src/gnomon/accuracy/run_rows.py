"""Rows of published training runs as options of `simulate_training`, or why they cannot be compared."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.accuracy.deployment_rows import Row, Unfit, whole
from gnomon.accuracy.run_columns import completed
from gnomon.accuracy.run_figures import RunFigures, figures_of
from gnomon.accuracy.run_networks import known, network_of
from gnomon.errors import InputError
from gnomon.load import chip

NEEDED = (
    "id", "source", "confidence", "framework", "model", "arch", "layers", "hidden", "heads", "kv_heads", "ffn",
    "vocab", "seq_len", "moe", "gpu", "n_gpus", "gpus_per_node", "inter_link", "tp", "seq_par", "pp", "vp", "cp",
    "ep", "dp", "zero_stage", "schedule", "micro_batch", "global_batch", "precision", "recompute", "features",
    "step_time_s", "step_time_derived_s", "tflops_per_gpu", "tflops_kind", "mfu_pct", "tokens_s_gpu",
    "mem_gb", "mem_kind", "outcome", "good_for", "fields_not_read", "notes",
)  # fmt: skip
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
    "DeepSpeed ZeRO-3 Offload": "deepspeed@0.5",
    "DeepSpeed Ulysses + ZeRO-3": "deepspeed",
    "PyTorch DDP": "torch",
}
CLOSEST = {
    "Meta internal": "torchtitan@2024",
    "HAI-LLM": "megatron@bridge",
    "GPT-NeoX": "deepspeed@0.5",
    "metaseq FSDP+Megatron TP": "deepspeed@0.5",
    "T5X/Pathways": "megatron",
}
"""Frameworks that Gnomon has no engine of, by the engine that runs most alike."""
EXPERTS = "megatron@bridge"
"""Of TorchTitan's mixtures of experts: under its own engine dense networks are priced."""
OLD = ("A100-SXM 80GB", "A100-SXM 40GB", "V100-SXM2 32GB", "V100-SXM3 32GB")
"""Megatron-LM's rows of these cards are from 2020 to 2022."""
RECOMPUTING = "Korthikanti"
"""Whose paper brought sequence parallelism and selective recomputation, which came with Megatron-LM 3.0."""
BRIDGE_LIKE = "Megatron-LM examples/llama"
"""Whose scripts reduce gradients in 16 bits and keep weights in fp8, as Megatron-Bridge's do."""
OF_2025 = ("TorchTitan AsyncTP 2025-06", "TorchTitan H200", "TorchTitan MXFP8")
"""TorchTitan's rows of June and August 2025."""
FITTED = {
    "vTrain measured single-node": "host's launch time of Megatron-LM 3.0",
    "MosaicML": "kernels of PyTorch 2.0",
}
"""What was fitted to the rows of a source: of MosaicML's to every second one (`kept_out`)."""
HALVES = {"MosaicML": "", "Megatron-Bridge": "kernels around experts of Megatron-LM"}
"""What was fitted to every second row of a source (`kept_out`), of Megatron-Bridge's to mixtures of experts alone;
empty where `FITTED` says it."""
NOT_REPEATABLE = "BigScience GPT-2"
"""Whose page (experiments/gpt2.md) has 129, 217, 125 and 225 s for one plan on four days, calls its figures right
within 40%, and lays that to the traffic on its network."""
HARMLESS = ("link", "mfu_pct", "hfu_pct", "gpu memory", "vp (from")
"""Beginnings of what a prediction does not ask of the table."""
MTP = re.compile(r"(?<!w/o )\bmtp\b")
"""Of features: a layer that predicts the token after the next is trained."""
EXPERTS_OVERLAPPED = re.compile(r"\bep overlap on\b")
"""Of features: sends to experts beside another micro-batch's layers."""
DROPPED = re.compile(r"\btokendrop\b")
"""Of features: experts take as many tokens as even shares are, and their matrices are padded to that."""
REPLAYED = re.compile(r"\bcuda graphs\b")
"""Of features: kernels are replayed from CUDA graphs."""
OVERLAPPED = re.compile(r"\basynctp\b|\btp-comm-overlap\b")
"""Of features: tensor-parallel collectives in pieces beside GEMMs."""
OVERLAPPING = "megatron@bridge"
"""The engine whose recipes of dense networks have it too (`CommOverlapConfig(tp_comm_overlap=...)`, and before them
`ub_tp_comm_overlap` of NeMo's)."""
ADAPTERS = re.compile(r"\blora\b")
LORA = {"NeMo/Megatron": "lora:rank=32,targets=attention", "Megatron-Bridge": "lora:rank=32"}
"""Adapters as the framework's own recipes have them: of attention's matrices, later of all."""
PLAIN_FEATURES = (
    "", "2d", "dropless", "eager", "force-balanced", "fsdp2", "fsdp2+tp", "fsdp shards over dp*cp", "vanilla tp",
    "w/o mtp", "w/ mtp", "ep overlap off", "hybridep", "deepep", "torch.compile", "tokendrop", "asynctp", "2d+asynctp",
    "fsdp2+tp+asynctp", "baseline",
    "ep overlap on", "cuda graphs", "grouped gemm",
)  # fmt: skip
"""Features that the plan's columns and other options say, or that are so in a prediction."""
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
CHUNKS = {"TorchTitan": 2}
"""Chunks of a rank under an interleaved schedule whose source does not give them: as many as TorchTitan takes where it
is not told. DualPipe, which no engine of mixtures of experts runs, is taken as 1F1B."""
MORE = ("layers_per_stage", "cp_comm", "optimizer")
"""Options of a plan that are no columns of the table: sources say them (`gnomon.accuracy.run_columns`)."""
GATHERED = "all-gather"
"""Of a precision whose weights are gathered in the format of its GEMMs."""
DIMS = ("dims", "model dims")
DEFAULT_LENGTH = "seq_len where not in table"


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
    figures: RunFigures
    """What was measured."""
    fitted: str
    """What of Gnomon was fitted to it; nothing for most."""


def run_case_of(row: Row) -> RunCase:
    """The row as a case to compare; raises `Unfit`."""
    given, row = row, completed(row)
    _check(row)
    network, engine = network_of(row), _engine(row)
    options: dict[str, Any] = {
        "on": f"{_chip(row['gpu'])}:{whole(row, 'n_gpus')}",
        "seq": whole(row, "seq_len"),
        "global_batch": whole(row, "global_batch"),
        "micro_batch": whole(row, "micro_batch", 1),
        **{degree: whole(row, degree, 1) for degree in ("tp", "pp", "vp", "cp", "ep")},
        "zero": _zero(row, engine),
        "recompute": _recompute(row),
        "dtype": _dtype(row["precision"]),
        "fp8_param_gather": GATHERED in row["precision"],
        "engine": engine,
        "sequence_parallel": _sequence_parallel(row, engine),
        **_beside(row),
        **_experts(row),
        **_overlap(row, engine),
        "techniques": _techniques(row),
    }
    return RunCase(
        row=row, network=network, options=options, assumed=_assumed(row, given), adapters=_adapters(row),
        figures=figures_of(row), fitted=_fitted(row),
    )  # fmt: skip


def kept_out(row_id: str) -> bool:
    """Whether a row is in the half that no fit may see (`tools/training_software.py`)."""
    return bool(zlib.crc32(row_id.encode()) % 2)


def _fitted(row: Row) -> str:
    what = next((what for begin, what in FITTED.items() if row["source"].startswith(begin)), "")
    halved = next((begin for begin in HALVES if row["source"].startswith(begin)), "")
    if halved and kept_out(row["id"]):
        return ""
    return HALVES[halved] if halved and row["moe"] and not what else what


def _adapters(row: Row) -> tuple[int, float, int] | None:
    found = re.match(r"(\d+)x .*?(\d+) Gb/s", row["inter_link"])
    return (int(found[1]), float(found[2]) * 1e9 / 8, whole(row, "gpus_per_node", 0)) if found else None


def _check(row: Row) -> None:
    if row["framework"] not in ENGINES | CLOSEST:
        raise Unfit(f"no engine for {row['framework']}")
    if not row["tp"] and not row["pp"]:
        raise Unfit("plan not given")


def _beside(row: Row) -> dict[str, Any]:
    """Chunks, and what the source says beside the table."""
    chunks = CHUNKS.get(row["framework"])
    found: dict[str, Any] = {"vp": chunks} if _chunked(row) and chunks else {}
    return found | {name: row[name] for name in MORE if name in row}


def _overlap(row: Row, engine: str) -> dict[str, bool]:
    """Where tensor-parallel ranks cut sequences, which it needs."""
    asked = OVERLAPPED.search(row["features"].casefold()) or (engine == OVERLAPPING and not row["moe"])
    able = whole(row, "tp", 1) > 1 and _sequence_parallel(row, engine)
    return {"tp_overlap": True} if asked and able else {}


def _techniques(row: Row) -> tuple[str, ...]:
    about = f"{row['model']}; {row['features']}".casefold()
    adapters = (LORA[row["framework"]],) if ADAPTERS.search(about) else ()
    return (*adapters, *_offloaded(row["zero_stage"]), *row.get("techniques", "").split())


def _offloaded(stage: str) -> tuple[str, ...]:
    """What a ZeRO stage keeps on the host: "3 + CPU offload" the optimizer, and parameters where it names them."""
    if "offload" not in stage:
        return ()
    return ("offload-optimizer", "offload-parameters") if "params" in stage else ("offload-optimizer",)


def _sequence_parallel(row: Row, engine: str) -> bool:
    """Where nothing says that it is off, the engine had it by then, and sequences can be cut so."""
    asked = row["seq_par"] != "no" and not engine.startswith(("deepspeed", "megatron@2.4"))
    return asked and whole(row, "seq_len") % whole(row, "tp", 1) == 0


def _chunked(row: Row) -> bool:
    """Whether ranks hold several chunks, and the row does not say how many."""
    return "interleaved" in row["schedule"].casefold() and not row["vp"]


RECOMPUTED = {"op": "op", "layer": "every=2", "RMSNorm, MLA up-proj": "modules=layernorm+mla_up_proj"}
"""What a source calls its selective recomputation: TorchTitan's by operator or of every second layer, DeepSeek's."""


def _recompute(row: Row) -> str:
    """In the words of a plan: modules are Megatron-LM's."""
    way, _, detail = row["recompute"].partition(" ")
    named = detail.strip("()")
    if way != "selective" or not named:
        return way or "none"
    if not row["moe"]:  # the norms of a dense network are part of Transformer Engine's GEMMs: nothing is recomputed
        named = "+".join(part for part in named.split("+") if part != "layernorm")
    return RECOMPUTED.get(named, f"modules={named}")


def _experts(row: Row) -> dict[str, Any]:
    """What trains mixtures of experts: Megatron-Bridge's recipes never cut an expert over tensor-parallel ranks."""
    if "moe" not in row["arch"] and not row["moe"] and not row["ep"]:
        return {}
    features, found = row["features"].casefold(), dict[str, Any](expert_tp=1)
    found |= {"mtp_layers": 1} if MTP.search(features) else {}
    found |= {"ep_overlap": True} if EXPERTS_OVERLAPPED.search(features) else {}
    found |= {"cuda_graphs": True} if REPLAYED.search(features) else {}
    return found | ({"capacity_factor": 1.0, "pad_to_capacity": True} if DROPPED.search(features) else {})


def _assumed(row: Row, given: Row) -> tuple[str, ...]:
    named = [part.strip() for part in row["fields_not_read"].split(";")]
    named = [part for part in named if part and not part.startswith(HARMLESS)]
    if known(row):
        named = [part for part in named if part not in DIMS]
    named = ["seq_len" if part.startswith(DEFAULT_LENGTH) else part for part in named]
    missing = [name for name in ("micro_batch", "recompute", "precision") if not row[name]]
    missing += ["tp"] if row["tp"] != given["tp"] else []
    missing += ["vp"] if _chunked(row) else []
    features = (part.strip() for part in row["features"].split(";"))
    named += [part for part in features if part.casefold() not in PLAIN_FEATURES and "local batch" not in part]
    said = ["power limit"] if "power limited" in row["gpu"] else []
    said += [f"{row['framework']} as {_engine(row)}"] if _is_closest(row) else []
    said += ["ran out of memory"] if row["outcome"].startswith("OOM") else []
    return tuple(dict.fromkeys([*named, *missing, *said]))


def _chip(name: str) -> str:
    try:
        return chip(CHIPS.get(name, name)).name
    except InputError:
        raise Unfit(f"card not in the catalog: {name or 'not given'}") from None


def _is_closest(row: Row) -> bool:
    return row["framework"] in CLOSEST or (row["framework"] == "TorchTitan" and bool(row["moe"]))


def _engine(row: Row) -> str:
    if row["framework"] == "TorchTitan" and row["moe"]:
        return EXPERTS
    if row["framework"] == "Megatron-LM" and row["gpu"] in OLD:
        return "megatron@3.0" if row["source"].startswith(RECOMPUTING) else "megatron@2.4"
    if row["source"].startswith(BRIDGE_LIKE):
        return "megatron@bridge"
    if row["source"].startswith("vTrain"):
        return "deepspeed@0.9"
    if row["source"].startswith("Megatron-LM SC21") and row["framework"].startswith("DeepSpeed"):
        return "deepspeed@0.3"
    if row["framework"] == "TorchTitan" and row["source"].startswith(OF_2025):
        return "torchtitan@2025"
    if row["framework"] == "TorchTitan" and "torch.compile" not in row["features"] and "fp8" not in row["precision"]:
        return "torchtitan@2024-eager"
    return (ENGINES | CLOSEST)[row["framework"]]


def _zero(row: Row, engine: str) -> int:
    """NeMo's and Megatron-Bridge's recipes always have the distributed optimizer; Megatron-LM had none before 3.0."""
    stage = row["zero_stage"]
    if engine == "megatron@2.4":
        return 0
    if stage.startswith("FSDP"):
        return 2
    return max(int(engine == "megatron@bridge"), int(stage[:1]) if stage[:1] in tuple("0123") else 0)


def _dtype(precision: str) -> str:
    """The format of the GEMMs, bf16 where the row has none; raises `Unfit` for one that is not simulated."""
    name = precision.casefold() or "bf16"
    found = next((dtype for part, dtype in FORMATS.items() if part in name), "")
    if not found:
        raise Unfit(f"training in {precision} is not simulated")
    return found
