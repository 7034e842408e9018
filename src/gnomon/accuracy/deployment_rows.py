"""Rows of published serving benchmarks as options of a deployment, or why they cannot be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any
from zlib import crc32

from gnomon.accuracy.scores import summaries
from gnomon.accuracy.scripts import script_of
from gnomon.catalog import model_entry
from gnomon.errors import InputError
from gnomon.load import chip as find_chip
from gnomon.load import model as load_model

Row = Mapping[str, str]

NEEDED = (
    "row_id", "source", "model", "weight_precision", "kv_precision", "gpu", "n_gpus", "tp", "pp", "ep", "dp", "mode",
    "plan_detail", "engine_family", "engine_version", "workload", "isl", "osl", "concurrency", "batch", "ttft_ms",
    "tpot_ms", "output_tok_s", "quality", "tier", "source_detail",
)  # fmt: skip
SAME_SHAPES = {
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2",
    "Qwen/Qwen2-7B": "qwen2.5-7b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-30b-a3b",
    "deepseek-ai/DeepSeek-V3.1": "deepseek-v3",
    "google/gemma-1.1-7b-it": "gemma-7b",
}
"""Later releases of a network in the catalog, or its other sizes' namesakes, with the same shapes."""
ENDINGS = ("-FP8", "-Instruct-2507", "-Thinking-2507")
"""Parts of a name that say nothing of shapes."""
STORED_FP8 = ("minimax-m2", "deepseek-r1", "deepseek-v3")
"""Published in blocks of fp8: no format has to be asked for."""
STORED_FP4 = ("gpt-oss-120b", "gpt-oss-20b")
RECENT = "vLLM of 2025-26"
ASSUMED = "vLLM of 2025, inputs assumed"
OLD = "vLLM of 2023-24"
GROUPS = {"inferencex": RECENT, "ml_energy": ASSUMED, "llm_inference_bench": OLD, "splitwise": OLD}
"""What rows of a source can show: an engine of two years ago is another engine."""
THEN = {"llm_inference_bench": "vllm@0.5", "splitwise": "vllm@0.2"}
"""The version that a source's year had; what is not here is predicted under the measured one."""
FITTED_CHIP = "A100"
"""On whose rows of these sources the host's work of those versions is fitted (`tools/vllm_early.py`)."""
CONTINUOUS, STATIC, STEADY = "clients", "batch", "steady"
ASSUMED_INPUT = 256
"""ML.ENERGY does not publish input lengths; chats and exam questions are about so long."""
TEXT = ("lm-arena-chat", "gpqa")
SLICES = ("chip", "precision")
"""By what the half that is kept out of every fit is shown apart."""
SCATTER, MANY_MORE = 0.1, 4
"""By how much TPOT may fall where clients become more: the same plan measured twice differs by 2% at the median. With
many times the clients, and most of them waiting, it is the server that runs fewer at once than the row says."""
ROOM_TOKENS, LEAST_SEQUENCES = 256, 256
"""What benchmarks leave above their lengths, and vLLM's default of max_num_seqs."""
LEAST = {"inferencex": 0.8}
"""Lengths are even between this share of the nominal one and it."""


class Unfit(Exception):
    """Why a row cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentCase:
    """A deployment, its load, and what was measured: seconds, or tokens per second."""

    row: Row
    group: str
    model: str
    options: Mapping[str, Any]
    load: str
    clients: int
    input_tokens: int
    output_tokens: int
    least: float
    measured: Mapping[str, float]
    engine: str = "vllm"

    @property
    def plan(self) -> tuple[Any, ...]:
        """What rows that differ in their clients alone have in common."""
        options = (self.options[name] for name in ("on", "dtype", "tp", "ep"))
        return self.row["source"], self.model, *options, self.input_tokens, self.output_tokens

    @property
    def waits(self) -> bool:
        """Whether a request waited longer than it was served."""
        return self.measured.get("TTFT", 0.0) > self.measured.get("TPOT", inf) * self.output_tokens

    @property
    def kept_out(self) -> bool:
        """Whether no fit may use the row: half of the plans, always the same ones."""
        return bool(crc32(repr(self.plan).encode()) % 2)


def case_of(row: Row) -> DeploymentCase:
    """The row as a case to compare; raises `Unfit`."""
    found = any_case_of(row)
    if row["source"] in THEN and row["gpu"].startswith(FITTED_CHIP):
        raise Unfit("the host's work under vLLM of the time is fitted to these")
    return found


def any_case_of(row: Row) -> DeploymentCase:
    """The same, also where something was fitted to it."""
    _check(row)
    model, load = _model(row["model"]), _load(row)
    clients = round(_number(row, "batch") if load != CONTINUOUS else _number(row, "concurrency"))
    given = ASSUMED_INPUT if load == STEADY else round(_number(row, "isl"))
    made = round(_number(row, "osl"))
    measured = _measured(row, load)
    if not measured:
        raise Unfit("no figure that is predicted")
    options = {
        "on": f"{row['gpu']}:{_degree(row, 'n_gpus')}",
        "dtype": _dtype(row["weight_precision"], model, row["gpu"]),
        "kv_dtype": _kv_dtype(row["kv_precision"]),
        "tp": _degree(row, "tp"),
        "ep": _degree(row, "ep"),
        "settings": {"max_model_len": _longest(model, given + made), "max_num_seqs": max(LEAST_SEQUENCES, clients)},
    }
    if row["source"] == "inferencex":
        options = _started(row, model, clients, given, options)
    return DeploymentCase(
        row=row,
        group=GROUPS[row["source"]],
        model=model,
        options=options,
        load=load,
        clients=max(clients, 1),
        input_tokens=given,
        output_tokens=made,
        least=LEAST.get(row["source"], 1.0),
        measured=measured,
        engine=THEN.get(row["source"], "vllm"),
    )


def kept_out(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Errors on the half of the recent rows that no fit uses: in all, by chip and by number format."""
    half = [row for row in rows if row["group"] == RECENT and row["kept_out"]]
    return {"totals": summaries(half)} | {name: summaries(half, (name, "what")) for name in SLICES}


def consistent(cases: Sequence[DeploymentCase]) -> list[DeploymentCase]:
    """The rows less those that others of the same plan contradict: more clients take no less time per token, and those
    of many more who wait longer than they are served, more. Of two that disagree, the one that disagrees with more
    others goes, or the one that waits."""
    plans = defaultdict[tuple[Any, ...], list[DeploymentCase]](list)
    for case in cases:
        if case.load == CONTINUOUS and "TPOT" in case.measured:
            plans[case.plan].append(case)
    gone = set[str]()
    for found in plans.values():
        gone |= {case.row["row_id"] for case in _contradicted(found)}
    return [case for case in cases if case.row["row_id"] not in gone]


def _contradicted(cases: list[DeploymentCase]) -> list[DeploymentCase]:
    def disagree(one: DeploymentCase, other: DeploymentCase) -> bool:
        few, many = sorted((one, other), key=lambda case: case.clients)
        capped = many.waits and many.clients >= MANY_MORE * few.clients
        least = (1 + SCATTER if capped else 1 - SCATTER) * few.measured["TPOT"]
        return few.clients < many.clients and many.measured["TPOT"] < least

    left, gone = sorted(cases, key=lambda case: not case.waits), list[DeploymentCase]()
    while True:
        against = [sum(disagree(one, other) for other in left) for one in left]
        if not any(against):
            return gone
        gone.append(left.pop(against.index(max(against))))


def _started(row: Row, model: str, clients: int, given: int, options: dict[str, Any]) -> dict[str, Any]:
    """The options as the row's script has them."""
    script = script_of(model, row["gpu"], row["weight_precision"], row["engine_version"])
    if script is None:
        return options
    named = {name: clients if value is None else value for name, value in script.settings.items()}
    settings = options["settings"] | named
    if script.by_input:
        settings["max_num_batched_tokens"] = max(round(script.by_input * given), settings["max_num_seqs"])
    ep = options["tp"] if script.expert_parallel else options["ep"]
    return options | {"settings": settings, "ep": ep, "kv_dtype": options["kv_dtype"] or script.kv_dtype}


def _check(row: Row) -> None:
    if row["engine_family"] != "vLLM":
        raise Unfit(f"no engine for {row['engine_family']}")
    if row["mode"] == "disagg":
        raise Unfit("prefill and decode disaggregated")
    if row["mode"] not in ("agg", "static"):
        raise Unfit("lengths and plan not published (MLPerf)")
    if _degree(row, "pp") > 1:
        raise Unfit("pipeline, which is not simulated")
    if _degree(row, "dp") > 1:
        raise Unfit("data-parallel attention, which is not simulated")
    if _degree(row, "tp") != _degree(row, "n_gpus"):
        raise Unfit("plan unclear: tensor-parallel degree and GPUs differ")
    if row["plan_detail"] == "power-capped":
        raise Unfit("power limit lowered by the experiment")
    if row["source"] == "ml_energy":
        if not any(task in row["workload"] for task in TEXT):
            raise Unfit("images, videos or code completion of unknown length")
    elif row["tier"] != "A" or row["source"] not in GROUPS:
        raise Unfit(f"conditions not recorded (tier B): {row['quality'].partition(';')[0] or 'engine settings'}")
    if row["plan_detail"]:
        raise Unfit(f"unknown plan detail: {row['plan_detail']}")


def _longest(model: str, tokens: int) -> int:
    most = _max_context(model)
    if tokens > most:
        raise Unfit("longer than the maximum context of the model")
    return min(tokens + ROOM_TOKENS, most)


@cache
def _max_context(model: str) -> int:
    return load_model(model).max_context


def _load(row: Row) -> str:
    if row["source"] == "ml_energy":
        return STEADY
    return STATIC if row["mode"] == "static" else CONTINUOUS


def _measured(row: Row, load: str) -> dict[str, float]:
    found = {}
    if row["tpot_ms"]:
        found["TPOT"] = positive(row, "tpot_ms") / 1e3
    if row["ttft_ms"] and load != STEADY:
        found["TTFT"] = positive(row, "ttft_ms") / 1e3
    if row["output_tok_s"] and load == STATIC:
        found["tokens/s"] = positive(row, "output_tok_s")
    return found


def _model(name: str) -> str:
    if name in SAME_SHAPES:
        return SAME_SHAPES[name]
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    try:
        return model_entry(name).name
    except InputError:
        raise Unfit("model not in the catalog") from None


def _dtype(precision: str, model: str, gpu: str) -> str | None:
    """The format to ask for; None is that of the checkpoint."""
    if precision in ("fp8", "int8"):
        return None if model in STORED_FP8 else precision
    if "fp4" in precision:
        if model in STORED_FP4:
            return None
        if "nvfp4" not in precision or find_chip(gpu).vendor != "NVIDIA":
            raise Unfit(f"format '{precision}' of a network that is not published in it")
        return "nvfp4"
    if precision in ("fp16/bf16", "fp16", "bfloat16"):
        return "fp16" if precision == "fp16" else "bf16"
    raise Unfit(f"format '{precision or 'not recorded'}'")


def _kv_dtype(precision: str) -> str | None:
    """The format of the KV cache; None is that of the network."""
    if precision in ("", "auto", "fp16", "bf16", "bfloat16", "fp16/bf16"):
        return None
    if precision != "fp8":
        raise Unfit(f"cache in '{precision}'")
    return precision


def _degree(row: Row, name: str) -> int:
    return round(_number(row, name)) if row[name] else 1


def _number(row: Row, name: str) -> float:
    try:
        found = float(row[name])
    except ValueError:
        found = inf
    if not 0 <= found < inf:
        raise Unfit(f"no {name}")
    return found


def whole(row: Row, name: str, usual: int | None = None) -> int:
    """A count; `usual` where the row has none."""
    try:
        return round(float(row[name]))
    except (ValueError, OverflowError):
        if usual is not None and not row[name]:
            return usual
        raise Unfit(f"no {name}") from None


def positive(row: Row, name: str) -> float:
    """A measured figure."""
    found = _number(row, name)
    if not found:
        raise Unfit(f"{name} is 0")
    return found
