"""`simulate serve` and `plan serve`: a load on one replica, and the best way to serve one on a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.spec.questions.base import COUNTS, Question, argument, flag
from gnomon.spec.questions.parts import (
    ENGINE_HELP,
    MODEL_HELP,
    ServedQuestion,
    degree,
    power_limit,
    settings,
    techniques,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Cluster
    from gnomon.spec.model import Model
    from gnomon.spec.plan import EngineChoice
    from gnomon.spec.workload import Goal

    Goals = str | Sequence[Goal] | Mapping[str, str]

FLEET_HELP = "The chips one may use, one kind for all replicas of a plan; or a cluster's YAML file."
SLO_HELP = (
    "Limits on times, such as ttft_p90=1s,tpot_p90=40ms. "
    "Metrics: ttft, tpot, e2e. Statistics: mean, p50, p90, p95, p99. May be repeated."
)
ROUTER_HELP = "How requests reach replicas: random (as in a Kubernetes Service), round-robin or least-requests."
DTYPES_HELP = "Number formats to choose from, the preferred one first: the checkpoint's, or bf16,fp8 of a wide one."


def length(name: str, what: str) -> Any:
    return flag(f"--{name}", "size", "TOKENS", f"Mean {what} length. {COUNTS}", default=None)


def seed() -> Any:
    return flag("--seed", "size", "S", "Seed of the draw.", default=0, least=0)


@dataclass(frozen=True, kw_only=True)
class LoadQuestion(Question):
    """Requests: a trace, or lengths and a rate to draw them at."""

    trace: str | Path | None = flag("--trace", "trace", "FILE.csv", "A trace of requests.", default=None)
    rate: float | str | None = flag("--rate", "rate", "R", "Requests a second to draw.", default=None)
    input: int | None = length("input", "prompt")
    output: int | None = length("output", "answer")
    requests: int | None = flag(
        "--requests", "size", "N", "How many requests; a trace is cut or repeated.", default=None
    )
    seed: int | None = seed()


@dataclass(frozen=True, kw_only=True)
class SimulateServingQuestion(LoadQuestion, ServedQuestion):
    """TTFT, TPOT, throughput, energy and cost of a served load."""

    engine: str = flag("--engine", "engine", "NAME[@VERSION]", ENGINE_HELP, default="vllm")
    dp: int = degree("dp", "Data", " Ranks with sequences of their own.")
    seed: int = seed()
    power_limit_w: float | None = power_limit()


@dataclass(frozen=True, kw_only=True)
class PlanServingQuestion(LoadQuestion):
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
    seed: int = seed()
    dtypes: str | Sequence[str] | None = flag("--dtype", "dtypes", "D[,D]", DTYPES_HELP, default=None)
    kv_dtype: str = flag("--kv-dtype", "kv_dtype", "D", "Number format of the KV cache.", default="bf16")
    engine: str | EngineChoice = flag("--engine", "engine", "NAME[@VERSION]", ENGINE_HELP, default="vllm")
    settings: Mapping[str, Any] | None = settings()
    techniques: Sequence[str] = techniques()
    power_limit_w: float | None = power_limit()
