"""`simulate serve` and `plan serve`: a load on one replica, and the best way to serve one on a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.spec.questions.base import COUNTS, Question, argument, flag
from gnomon.spec.questions.parts import (
    ENGINE_HELP,
    MODEL_HELP,
    ON_HELP,
    ServedQuestion,
    degree,
    power_limit,
    settings,
    techniques,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Cluster, Pool
    from gnomon.spec.model import Model
    from gnomon.spec.plan import EngineChoice
    from gnomon.spec.workload import Goal

    Goals = str | Sequence[Goal] | Mapping[str, str]

FLEET_HELP = "The chips one may use, one kind for all replicas of a plan; or a cluster's YAML file."
SLO_HELP = (
    "Limits on times, such as ttft_p90=1s,tpot_p90=40ms. "
    "Metrics: ttft, tpot, e2e. Statistics: mean, p50, p90, p95, p99. May be repeated."
)
TRACE_HELP = (
    "A trace of requests: CSV or JSONL with arrival_s,input_tokens,output_tokens, an Azure, BurstGPT, Mooncake or "
    "ShareGPT trace, or the results of vllm bench serve, AIPerf or GuideLLM; also packed (.gz)."
)
LENGTH_HELP = "length, or lognormal:mean=1024,cv=1, lognormal:p50=700,p99=8000, uniform:low=100,high=500, file:FILE."
ARRIVALS_HELP = (
    "How requests arrive at --rate: poisson (the default), constant, gamma:cv=3, markov:ratio=10,high=1m,low=5m or "
    "diurnal:ratio=4,period=1d."
)
PREFIX_HELP = "Texts that prompts begin with, before --input, such as groups=8,tokens=2048,zipf=1."
TURNS_HELP = "Turns of a session, each with --input new tokens; prompts contain the turns before."
THINK_HELP = "From an answer to the next turn of its session, such as 30s."
ADAPTERS_HELP = "LoRA adapters that requests ask for, such as 32 or 32,zipf=1."
PRIORITIES_HELP = "Shares of requests by priority, lower ones first: 0=0.9,1=0.1."
IMAGES_HELP = "Images of every request, before its text, and their pixels: 2 or 2,1280x720. For vision-language models."
GOODPUT_HELP = f"{SLO_HELP} Says whether they are met, and the goodput: requests within all limits."
SERIES_HELP = "Also give series over time (batch, queue, KV cache, tokens, power) and distributions."
BY_RATE_HELP = "Also give latency against rate of the best plan."
SENSITIVITY_HELP = "Also say how far each input may be off before the best plan is another, and which."
CONCURRENCY_HELP = "Clients that each send their next request when they have the last answer; instead of --rate."
ROUTER_HELP = (
    "How requests reach replicas: random (as in a Kubernetes Service), round-robin, least-requests, least-kv, "
    "prefix-aware or weighted."
)
POOL_HELP = (
    "In place of --on, a pool of replicas; may be repeated. Roles: prefill and decode, or both. CHIP:N are all its "
    "chips; tp, ep, dp, pp, replicas, dtype, weight and engine settings may follow, as in decode=H100:4,tp=4,dtype=fp8."
)
KV_TRANSFER_HELP = (
    "KV cache from prefill to decode pools: whole (after the prompt, as vLLM's NixlConnector does) or layerwise."
)
POOLS_HELP = (
    "Which plans: aggregated (equal replicas), disaggregated (prefill and decode replicas), mixed (several kinds of "
    "chip behind one router) or auto (all of them)."
)
DTYPES_HELP = "Number formats to choose from, the preferred one first: the checkpoint's, or bf16,fp8 of a wide one."


def length(name: str, what: str) -> Any:
    return flag(f"--{name}", "size", "TOKENS", f"Mean {what} length. {COUNTS}", default=None)


def drawn_length(name: str, what: str) -> Any:
    return flag(f"--{name}", "length", "TOKENS", f"{what} {LENGTH_HELP} {COUNTS}", default=None)


def seed() -> Any:
    return flag("--seed", "size", "S", "Seed of the draw.", default=0, least=0)


@dataclass(frozen=True, kw_only=True)
class LoadQuestion(Question):
    """Requests: a trace, or lengths and a rate to draw them at."""

    trace: str | Path | None = flag("--trace", "trace", "FILE", "A trace of requests.", default=None)
    rate: float | str | None = flag("--rate", "rate", "R", "Requests a second to draw.", default=None)
    input: int | None = length("input", "prompt")
    output: int | None = length("output", "answer")
    requests: int | None = flag(
        "--requests", "size", "N", "How many requests; a trace is cut or repeated.", default=None
    )
    seed: int | None = seed()


@dataclass(frozen=True, kw_only=True)
class DrawnLoadQuestion(LoadQuestion):
    """Requests: a trace, or a description to draw them from."""

    trace: str | Path | None = flag("--trace", "trace", "FILE", TRACE_HELP, default=None)
    input: int | str | None = drawn_length("input", "Prompt")  # type: ignore[assignment]
    output: int | str | None = drawn_length("output", "Answer")  # type: ignore[assignment]
    arrivals: str | None = flag("--arrivals", "text", "HOW", ARRIVALS_HELP, default=None)
    prefix: str | None = flag("--prefix", "text", "groups=G,tokens=T", PREFIX_HELP, default=None)
    turns: int | None = flag("--turns", "size", "N", TURNS_HELP, default=None)
    think: float | str | None = flag("--think", "duration", "TIME", THINK_HELP, default=None)
    adapters: int | str | None = flag("--adapters", "text", "N", ADAPTERS_HELP, default=None)
    priorities: str | None = flag("--priorities", "text", "P=SHARE,…", PRIORITIES_HELP, default=None)
    images: int | str | None = flag("--images", "text", "N[,WxH]", IMAGES_HELP, default=None)


@dataclass(frozen=True, kw_only=True)
class SimulateServingQuestion(DrawnLoadQuestion, ServedQuestion):
    """TTFT, TPOT, throughput, energy and cost of a served load."""

    engine: str = flag("--engine", "engine", "NAME[@VERSION]", ENGINE_HELP, default="vllm")
    dp: int = degree("dp", "Data", " Ranks with sequences of their own.")
    seed: int = seed()
    on: str | Pool | None = flag("--on", "chips", "CHIP[:N]", ON_HELP, default=None)  # type: ignore[assignment]
    pools: Sequence[str] = flag("--pool", "pools", "ROLE=CHIP:N[,tp=T]", POOL_HELP, default=())
    router: str = flag("--router", "router", "HOW", ROUTER_HELP, default="random")
    kv_transfer: str = flag("--kv-transfer", "kv_transfer", "HOW", KV_TRANSFER_HELP, default="whole")
    concurrency: int | None = flag("--concurrency", "size", "N", CONCURRENCY_HELP, default=None)
    power_limit_w: float | None = power_limit()
    slo: Goals | None = flag("--slo", "goals", "GOALS", GOODPUT_HELP, default="")
    series: bool = flag("--series", "switch", "", SERIES_HELP, default=False)


@dataclass(frozen=True, kw_only=True)
class PlanServingQuestion(DrawnLoadQuestion):
    """The best deployment for a load and its goals, and why it won."""

    model: str | Path | Model = argument("model", "MODEL", MODEL_HELP)
    fleet: str | Cluster = flag("--fleet", "chips", "CHIP:N[,CHIP:N]", FLEET_HELP)
    requests: int | None = flag(
        "--requests", "size", "N", "Requests the best plan is judged on, at least.", default=None
    )
    slo: Goals | None = flag("--slo", "goals", "GOALS", SLO_HELP, default="")
    objective: str | None = flag(
        "--objective", "objective", "WHAT", "cost (the default), throughput, latency or energy.", default=None
    )
    router: str = flag("--router", "router", "HOW", ROUTER_HELP, default="random")
    pools: str = flag("--pools", "pool_kinds", "KIND", POOLS_HELP, default="aggregated")
    kv_transfer: str = flag("--kv-transfer", "kv_transfer", "HOW", KV_TRANSFER_HELP, default="whole")
    seed: int = seed()
    dtypes: str | Sequence[str] | None = flag("--dtype", "dtypes", "D[,D]", DTYPES_HELP, default=None)
    kv_dtype: str = flag("--kv-dtype", "kv_dtype", "D", "Number format of the KV cache.", default="bf16")
    engine: str | EngineChoice = flag("--engine", "engine", "NAME[@VERSION]", ENGINE_HELP, default="vllm")
    settings: Mapping[str, Any] | None = settings()
    techniques: Sequence[str] = techniques()
    power_limit_w: float | None = power_limit()
    by_rate: bool = flag("--by-rate", "switch", "", BY_RATE_HELP, default=False)
    sensitivity: bool = flag("--sensitivity", "switch", "", SENSITIVITY_HELP, default=False)
