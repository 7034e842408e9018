"""An engine made of three numbers a chip: rate, bandwidth, memory. Quick, and right enough to plan with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.sim.costs import Unmetered

from gnomon.cost.step import Curve
from gnomon.engines.base import Capacity, Deployment, MemoryUse, ServingCase
from gnomon.engines.vllm import limits
from gnomon.errors import DoesNotFitError, InputError
from gnomon.load.profiles import profile_for
from gnomon.planning.steps.energy import PowerUse
from gnomon.spec import Chip, Model, NotModelled, Plan, Pool, ServingLimits, Strategy

BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5}
HOST_S = 2e-3
DEFAULTS = {"max_num_seqs": 256, "max_num_batched_tokens": 8192, "max_model_len": None, "block_size": 16}


class RooflineCost(Unmetered):
    def __init__(self, deployment: Deployment, slower: float = 1.0) -> None:
        chip, tp, model = deployment.pool.chip, deployment.strategy.tp, deployment.model
        self.weights_s = model.parameters * BYTES[deployment.dtype] / tp / chip.memory_bandwidth_bytes_s
        self.token_s = 2 * model.parameters / tp / (0.6 * chip.rate(deployment.dtype))
        self.cache_s = model.kv_bytes_per_token(2.0, tp) / chip.memory_bandwidth_bytes_s
        self.join_s = HOST_S + 2e-5 * model.layers * (tp > 1)
        self.slower = slower

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        context = np.array([0, 100_000])
        return Curve(context, self.slower * (self._body(sequences) + self.cache_s * sequences * context))

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        tokens = decodes + sum(new for new, _ in chunks)
        cached = decode_context + sum(new + cached for new, cached in chunks)
        return self.slower * (self._body(tokens) + self.cache_s * cached)

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return HOST_S

    def _body(self, tokens: int) -> float:
        return self.join_s + max(self.weights_s, self.token_s * tokens)


class FakeOperations:
    def command(self, plan: Plan) -> list[str]:
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in plan.engine.settings.items()]
        return ["vllm", "serve", plan.model, f"--tensor-parallel-size={plan.strategy.tp}", *settings]

    def own_checkpoint(self, model: Model, dtype: str) -> str:
        return ""

    def file_options(self, plan: Plan) -> list[str]:
        return []

    def not_expressed(self, plan: Plan) -> list[str]:
        return []


class FakeEngine:
    name, version, title = "vllm", "0.24.0", "vLLM"
    cost_ranges = ("max_num_seqs", "max_num_batched_tokens")
    knobs, operations, networks = limits.KNOBS, FakeOperations(), None

    def __init__(self) -> None:
        self.costs_made = 0

    def settings(self, given: Mapping[str, Any], model: Model, pool: Pool) -> dict[str, Any]:
        return DEFAULTS | {"max_model_len": model.max_context} | dict(given)

    def not_modelled(
        self, given: Mapping[str, Any], deployment: Deployment, idle: Sequence[str] = (), *, under_load: bool = False
    ) -> tuple[NotModelled, ...]:
        return ()

    def check_simulated(self, deployment: Deployment) -> None:
        if deployment.strategy.dp * deployment.strategy.pp > 1:
            raise InputError("the made-up engine has one scheduler")

    def arranged(self, strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        return strategy, dict(settings)

    def check_memory(self, deployment: Deployment) -> None:
        pass

    def goes_together(self, turned: Mapping[str, int]) -> bool:
        return limits.goes_together(turned)

    def capacity(self, settings: Mapping[str, Any]) -> Capacity:
        return limits.capacity(settings)

    def settings_for(
        self, *, context: int | None = None, sequences: int | None = None, step_tokens: int | None = None
    ) -> dict[str, int]:
        return limits.settings_for(context, sequences, step_tokens)

    def runs_not_on(self, chip: Chip) -> str:
        return ""

    def memory(self, deployment: Deployment) -> MemoryUse:
        model, tp = deployment.model, deployment.strategy.tp
        usable = 0.9 * deployment.pool.chip.memory_bytes - 2e9
        weights = model.parameters * BYTES[deployment.dtype] / tp
        per_token = model.kv_bytes_per_token(2.0, tp)
        kv = max(0.0, usable - weights)
        parts = {"weights": weights, "activations": 0.0, "runtime": 2e9, "kv": kv}
        return MemoryUse(
            total_bytes=deployment.pool.chip.memory_bytes,
            usable_bytes=usable,
            parts=parts,
            kv_blocks=int(kv / per_token / 16),
            kv_bytes_per_token=per_token,
        )

    def limits(self, deployment: Deployment) -> ServingLimits:
        blocks, context = self.memory(deployment).kv_blocks, int(deployment.settings["max_model_len"])
        if blocks * 16 < context:
            raise DoesNotFitError("the cache does not hold one sequence")
        return ServingLimits(
            kv_blocks=blocks,
            max_sequences=deployment.settings["max_num_seqs"],
            max_step_tokens=deployment.settings["max_num_batched_tokens"],
            max_context=context,
        )

    def step_cost(self, deployment: Deployment, longest: int | None = None) -> RooflineCost:
        self.costs_made += 1
        return RooflineCost(deployment)

    def drawn(
        self, deployment: Deployment, draws: int, longest: int | None = None
    ) -> Iterator[tuple[RooflineCost, ServingLimits]]:
        limits = self.limits(deployment)
        for draw in range(1 + draws):
            yield RooflineCost(deployment, 1.0 if draw == 0 else 1 + 0.2 * (draw / draws - 0.5)), limits

    def cost_key(self, deployment: Deployment) -> str:
        return ""


ENGINE = FakeEngine()


@dataclass(frozen=True)
class FakeBinding:
    pool: Pool
    engine: FakeEngine = ENGINE

    def deploy(self, draft: ServingCase, *, priced: bool = True) -> Deployment:
        return Deployment(
            model=draft.model,
            pool=draft.pool,
            strategy=draft.strategy,
            dtype=draft.dtype or draft.model.dtype,
            kv_dtype=draft.kv_dtype or draft.model.dtype,
            settings=ENGINE.settings(draft.settings, draft.model, draft.pool),
            profile=profile_for(draft.pool.chip),
        )


def bind_each(pools: Sequence[Pool], engine: str, limit: str = "") -> list[FakeBinding]:
    return [FakeBinding(pool) for pool in pools]


def deploy(
    model: Model, pool: Pool, *, strategy: Strategy, dtype: str, kv_dtype: str, settings: Mapping[str, Any]
) -> tuple[FakeEngine, Deployment]:
    draft = ServingCase(model=model, pool=pool, strategy=strategy, dtype=dtype, kv_dtype=kv_dtype, settings=settings)
    return ENGINE, FakeBinding(pool).deploy(draft)


def power_use(deployment: Deployment, run: Any) -> PowerUse:
    chip, ranks = deployment.pool.chip, deployment.strategy.ranks
    return PowerUse(busy_j=ranks * chip.tdp_w * run.busy_s, busy_s=run.busy_s, waiting_w=ranks * chip.idle_w)
