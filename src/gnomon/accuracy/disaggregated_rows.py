"""Published rows with prefill and decode replicas apart, as pools, or why they cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.accuracy.deployment_rows import LEAST, Row, Unfit, positive
from gnomon.accuracy.disaggregated_scripts import OFF, ON, decode_script
from gnomon.accuracy.scripts import BLACKWELL
from gnomon.accuracy.trtllm_rows import count, known_model, weight_dtype
from gnomon.load import model as load_model

MODE = "disagg"
KNOWN = "disaggregated, MTP off"
UNRECORDED = "disaggregated, MTP not recorded"
NO_CLIENTS = "disaggregated, clients not recorded"
GROUPS = (KNOWN, UNRECORDED, NO_CLIENTS)
"""Only the first has all its conditions. The second is predicted without MTP, which some of its rows may have had; the
third with as many clients as fill its decode batches."""
ENGINES = {"TensorRT-LLM": "trtllm", "vLLM": "vllm"}
PoolSettings = tuple[dict[str, Any], dict[str, Any], str | None]
ROOM = 256
"""Tokens above prompt and output that a sequence has room for, as in the recipes."""
PREFILL_TOKENS = 16384
"""Tokens of a prefill step with short prompts in the recipes; with long ones, one prompt."""
STREAM = 20
"""Tokens that a client gets at once: 20 in recipes of B200, up to 100 in others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedPool:
    """Replicas of one role: how many, and what is alike for all."""

    role: str
    replicas: int
    tp: int
    dp: int
    """Ranks of data-parallel attention inside a replica."""
    ep: int
    settings: Mapping[str, Any]

    @property
    def ranks(self) -> int:
        return self.tp * self.dp

    def written(self, chip: str) -> str:
        """As `gnomon simulate serve --pool` takes it."""
        parts = [f"{self.role}={chip}:{self.replicas * self.ranks}", f"tp={self.tp}"]
        parts += [f"dp={self.dp}"] if self.dp > 1 else []
        parts += [f"ep={self.ep}"] if self.ep > 1 else []
        parts += [f"replicas={self.replicas}", *(f"{name}={value}" for name, value in self.settings.items())]
        return ",".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedCase:
    """Pools, the clients of a closed loop, and what was measured: seconds, or tokens per second and chip."""

    row: Row
    group: str
    model: str
    engine: str
    chip: str
    dtype: str | None
    kv_dtype: str | None
    prefill: DisaggregatedPool
    decode: DisaggregatedPool
    most: int
    """Requests that a decode replica runs at once, or one rank of its attention."""
    clients: int
    input_tokens: int
    output_tokens: int
    least: float
    measured: Mapping[str, float]

    @property
    def running(self) -> int:
        """Requests of one decode replica: its share of the clients, or as many as it runs."""
        return max(min(-(-self.clients // self.decode.replicas), self.most * self.decode.dp), 1)

    @property
    def chips(self) -> int:
        return sum(pool.replicas * pool.ranks for pool in (self.prefill, self.decode))


def case_of(row: Row) -> DisaggregatedCase:
    """The row as a case to compare; raises `Unfit`."""
    if row["engine_family"] not in ENGINES:
        raise Unfit(f"no engine for {row['engine_family']}")
    model, plan = known_model(row["model"]), _plan(row)
    given, made = count(row, "isl"), count(row, "osl")
    shape = plan["decode_num_workers"], plan["decode_tp_size"] * plan["decode_attention_dp_size"]
    clients = count(row, "concurrency") if row["concurrency"] else 0
    group, most = NO_CLIENTS, plan["decode_batch_size"]
    if clients:
        group, most = _script(row, (given, made), clients, shape)
    clients = clients or most * shape[0] * plan["decode_attention_dp_size"]
    engine = ENGINES[row["engine_family"]]
    least = LEAST.get(row["source"], 1.0)
    blackwell = row["gpu"].startswith(BLACKWELL)
    cut = (blackwell and plan["prefill_tp_size"] > 1, blackwell and plan["decode_tp_size"] > 1)
    prefill, decode, kv_dtype = LIMITS[engine](given, made, most, cut)
    case = DisaggregatedCase(
        row=row,
        group=group,
        model=model,
        engine=engine,
        chip=row["gpu"],
        dtype=None if load_model(model).dtype == row["weight_precision"] else weight_dtype(_precision(row), model),
        kv_dtype=kv_dtype,
        prefill=_pool(plan, "prefill", prefill),
        decode=_pool(plan, "decode", decode),
        most=most,
        clients=clients,
        input_tokens=given,
        output_tokens=made,
        least=least,
        measured=_measured(row, clients, made * (1 + least) / 2),
    )
    if case.chips != count(row, "n_gpus"):
        raise Unfit("plan unclear: its replicas do not take its GPUs")
    return case


def per_chip(clients: int, output_tokens: float, ttft_s: float, tpot_s: float, chips: int) -> float:
    """Output tokens per second and chip of a closed loop: every client always has one request under way."""
    return clients * output_tokens / (ttft_s + tpot_s * (output_tokens - 1)) / chips


def _plan(row: Row) -> dict[str, int]:
    try:
        plan = {name: int(value) for name, value in json.loads(row["plan_detail"]).items()}
    except (ValueError, AttributeError):
        raise Unfit("plan not recorded") from None
    if plan.get("prefill_pp_size", 1) > 1 or plan.get("decode_pp_size", 1) > 1:
        raise Unfit("pipeline, which is not simulated")
    needed = [f"{role}_{name}" for role in ("prefill", "decode")
              for name in ("num_workers", "tp_size", "attention_dp_size", "batch_size")]  # fmt: skip
    if any(plan.get(name, 0) < 1 for name in needed):
        raise Unfit("plan not recorded")
    return plan


def _script(row: Row, lengths: tuple[int, int], clients: int, shape: tuple[int, int]) -> tuple[str, int]:
    """The group, and the most requests that a decode replica (or one rank of its attention) runs."""
    found = decode_script(row["gpu"], row["weight_precision"], lengths, clients, shape, row["engine_version"])
    if found is None:
        raise Unfit("not a point of InferenceX's configurations that were read: MTP and decode limits unknown")
    if found.mtp == ON:
        raise Unfit("speculative decoding (MTP) on, its acceptance not published")
    return KNOWN if found.mtp == OFF else UNRECORDED, found.most


def _trtllm_limits(given: int, made: int, most: int, cut: tuple[bool, bool]) -> PoolSettings:
    """As the recipes set them; the cache of either pool is in fp8. On Blackwell, replicas with attention cut over their
    ranks run TensorRT-LLM's own experts, those with data-parallel attention DeepGEMM's where weights are in fp8."""
    shared = {"enable_block_reuse": False, "max_seq_len": given + made + ROOM}
    experts = [{"moe_config_backend": "TRTLLM"} if own else {} for own in cut]
    prefill = {
        "max_num_tokens": PREFILL_TOKENS if given < PREFILL_TOKENS // 4 else given + ROOM,
        "disable_overlap_scheduler": True,
    }
    decode = {
        "max_batch_size": most,
        "max_num_tokens": given + ROOM,
        "cuda_graph_enable_padding": True,
        "cuda_graph_max_batch_size": most,
        "stream_interval": STREAM,
    }
    return shared | prefill | experts[0], shared | decode | experts[1], "fp8"


def _vllm_limits(given: int, made: int, most: int, cut: tuple[bool, bool]) -> PoolSettings:
    shared = {"max_model_len": given + made + ROOM}
    return shared, shared | {"max_num_seqs": most}, None


LIMITS: Mapping[str, Callable[[int, int, int, tuple[bool, bool]], PoolSettings]] = {
    "trtllm": _trtllm_limits,
    "vllm": _vllm_limits,
}
"""By engine: settings of a prefill and of a decode replica from prompt, output and the most requests of the latter, and
whether each cuts attention over ranks on Blackwell."""


def _pool(plan: Mapping[str, int], role: str, settings: Mapping[str, Any]) -> DisaggregatedPool:
    tp, dp, ep = (plan[f"{role}_{name}"] for name in ("tp_size", "attention_dp_size", "moe_ep_size"))
    if ep > 1 and plan[f"{role}_moe_tp_size"] > 1:
        raise Unfit("experts spread over some of the ranks and cut over the others")
    return DisaggregatedPool(
        role=role, replicas=plan[f"{role}_num_workers"], tp=tp, dp=dp, ep=max(ep, 1), settings=settings
    )


def _precision(row: Row) -> str:
    return "nvfp4" if "fp4" in row["weight_precision"] else row["weight_precision"]


def _measured(row: Row, clients: int, made: float) -> dict[str, float]:
    """Neither source publishes throughput: it follows from the clients and what each of their requests takes."""
    ttft, tpot = (positive(row, f"{name}_ms") / 1e3 for name in ("ttft", "tpot"))
    chips = count(row, "n_gpus")
    return {"TPOT": tpot, "TTFT": ttft, "tokens/s per chip": per_chip(clients, made, ttft, tpot, chips)}
