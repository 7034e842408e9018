"""Pools of replicas: simulated, searched, and beside the answers of AIConfigurator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.errors import InputError, NoPlanError
from gnomon.load.deployments import deploy
from gnomon.load.fleet import parse_pool
from gnomon.load.hf import model
from gnomon.load.pools import written_pool
from gnomon.load.serving import plan_of
from gnomon.planning.serving.disaggregated import PoolsEvaluator, disaggregated_space
from gnomon.planning.serving.kv_transfer import kv_transfer
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.space import plan_space
from gnomon.search import Candidate, Level, PlanFamily, Score, search
from gnomon.search.rate import FULL_TOLERANCE, TOLERANCE
from gnomon.spec import Strategy
from gnomon.spec.answers import ServingReport
from gnomon.spec.questions.serving import PlanServingQuestion

COUNTS = {Level.SEARCH: 500, Level.VERDICT: 500, Level.TO_THE_END: 900, Level.FULL: 900, Level.SURE: 900}
FIXED = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
SPLIT = ("prefill=H100:4,tp=2", "decode=H100:4,tp=4")
LOAD: dict[str, Any] = {"dtype": "fp8", "input": 4000, "output": 1000}


def simulated(pools: tuple[str, ...], **load: Any) -> ServingReport:
    return gnomon.simulate_serving("llama-3.1-70b", pools=pools, **LOAD, **load)


class TestSimulated:
    @pytest.mark.heavy
    def test_pools_add_up(self) -> None:
        found = simulated(SPLIT, rate=2.0, requests=300)
        ahead, behind = found.pools
        assert (ahead["role"], behind["role"]) == ("prefill", "decode")
        assert (ahead["chips"], ahead["replicas"], behind["chips"], behind["replicas"]) == (4, 2, 4, 1)
        assert ahead["requests"] == behind["requests"] == 300
        for name, total in (("energy_j", found.energy_j), ("power_w", found.power_w), ("cost_usd", found.cost_usd)):
            assert ahead[name] + behind[name] == pytest.approx(total)
        assert found.saturation_rps == pytest.approx(min(ahead["saturation_rps"], behind["saturation_rps"]))
        assert any(one.option == "KV blocks in transfer" for one in found.not_modelled)
        assert len(found.run.ttft_s) == 300

    def test_one_pool_of_one_replica_is_the_replica(self) -> None:
        given: dict[str, Any] = {"input": 800, "output": 60, "rate": 8, "requests": 200}
        one = gnomon.simulate_serving("llama-3.1-8b", on="H100", **given)
        pool = gnomon.simulate_serving("llama-3.1-8b", pools=["H100:1"], **given)
        for name in ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "energy_j", "cost_usd", "saturation_rps"):
            assert getattr(pool, name) == pytest.approx(getattr(one, name)), name

    @pytest.mark.heavy
    @pytest.mark.parametrize(
        ("degrees", "engine"),
        [
            ({"dp": 2, "ep": 2}, "vllm"),
            ({"pp": 2}, "vllm"),
            ({"tp": 2, "dp": 2, "ep": 4}, "vllm"),
            ({"dp": 2}, "sglang"),
        ],
    )
    def test_one_pool_has_the_degrees_of_a_replica(self, degrees: dict[str, int], engine: str) -> None:
        given: dict[str, Any] = {"input": 300, "output": 20, "rate": 30, "requests": 80, "engine": engine}
        text = ",".join(f"{name}={degree}" for name, degree in degrees.items())
        chips = 4 if "tp" in degrees else 2
        one = gnomon.simulate_serving("qwen3-30b-a3b", on=f"H100:{chips}", **degrees, **given)
        pool = gnomon.simulate_serving("qwen3-30b-a3b", pools=[f"H100:{chips},{text}"], **given)
        for name in ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "energy_j", "cost_usd", "saturation_rps"):
            assert getattr(pool, name) == pytest.approx(getattr(one, name)), name

    @pytest.mark.heavy
    def test_layers_that_are_sent_as_they_come_are_no_later(self) -> None:
        whole, layers = (simulated(SPLIT, rate=1.0, requests=150, kv_transfer=how) for how in ("whole", "layerwise"))
        assert layers.ttft_s["p50"] < whole.ttft_s["p50"]

    @pytest.mark.heavy
    def test_unlike_replicas_get_requests_by_their_weights(self) -> None:
        pools = ("H100:1,weight=3", "L40S:1,weight=1")
        found = gnomon.simulate_serving(
            "llama-3.1-8b", pools=pools, input=500, output=50, rate=10, requests=800, router="weighted"
        )
        assert found.pools[0]["requests"] / 800 == pytest.approx(0.75, abs=0.05)

    def test_an_answer_holds_its_plan(self) -> None:
        from gnomon.store.answered import plan_of as plan_in

        found = simulated(SPLIT, rate=1.0, requests=100)
        plan = plan_in("simulate.serve", found.to_dict(), "answer")
        assert plan is not None and [(pool.role, pool.replicas) for pool in plan.pools] == [
            ("prefill", 2),
            ("decode", 1),
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("prefil=H100:4", "unknown role"),
            ("prefill=H100:4,tp=3", "do not take 4 chips"),
            ("prefill=H100:2,tp=2,replicas=2", "do not take 2 chips"),
            ("prefill=H100:4,tp", "is not NAME=VALUE"),
            ("prefill=H100:1,weight=-1", "not a number above zero"),
            ("prefill=H100:1,weight=1e308", "below 1,000,000,000"),
            ("prefill=H100:4,cp=2", "context-parallel degree are not simulated"),
            ("prefill=H100:4,kv_dtype=fp8", "--kv-dtype says"),
            ("prefill=H100:4,dp=3", "do not take 4 chips"),
            ("prefill=H100:4,dp=0", "not a positive whole number"),
            ("prefill=H100:20000,tp=1", "20,001 replicas are more than the 4,096"),
        ],
    )
    def test_what_is_no_pool_is_refused(self, text: str, words: str) -> None:
        with pytest.raises(InputError, match=words):
            simulated((text, "decode=H100:4"), rate=1.0)

    def test_flags_of_one_replica_do_not_go_with_pools(self) -> None:
        for more in ({"on": "H100"}, {"tp": 2}, {"dp": 2}):
            with pytest.raises(InputError):
                simulated(SPLIT, rate=1.0, **more)
        with pytest.raises(InputError, match="one replica gets all requests"):
            gnomon.simulate_serving("llama-3.1-8b", on="H100", input=10, output=10, rate=1, router="least-kv")

    def test_settings_stand_behind_the_chips(self) -> None:
        found = written_pool("decode=H100:4,tp=4,max_num_seqs=64,dtype=fp8")
        assert found.role == "decode" and found.settings == {"max_num_seqs": 64}
        assert found.own == {"tp": "4", "dtype": "fp8"}


class TestTransfer:
    def deployed(self, chip: str, tp: int) -> Any:
        return deploy(model("llama-3.1-70b"), parse_pool(f"{chip}:{tp}"), strategy=Strategy(tp=tp), dtype="fp8")

    def test_bytes_are_those_of_every_layer(self) -> None:
        engine, one = self.deployed("H100", 2)
        _, other = self.deployed("H100", 4)
        way = kv_transfer(engine, one, other, 8)
        assert way.bytes_of(4000) == 4000 * 80 * 2 * 8 * 128 * 2

    def test_links_inside_a_node_and_across(self) -> None:
        engine, one = self.deployed("H100", 4)
        _, other = self.deployed("H100", 4)
        near, far = (kv_transfer(engine, one, other, chips) for chips in (8, 16))
        assert near.inside and not far.inside
        assert near.into.name == "NVLink4" and far.into.name == "InfiniBand NDR"
        # 328 MB per rank at 450 and at 50 GB/s, by what sends reach of them
        assert 0.0007 < near.full_s(4000) < 0.0015
        assert 0.0065 < far.full_s(4000) < 0.012
        _, slower = self.deployed("A100", 4)
        assert kv_transfer(engine, one, slower, 8).full_s(4000) > far.full_s(4000) * 0.99


def space_of(objective: str, fleet: str, **load: Any) -> tuple[Any, list[PlanFamily], PoolsEvaluator]:
    question = PlanServingQuestion(
        model="llama-3.2-1b", fleet=fleet, slo="ttft_p90=200ms,tpot_p90=8ms", objective=objective, settings=FIXED,
        dtypes=["bf16"], pools="disaggregated", **load,
    )  # fmt: skip
    task = plan_of(question)
    plain = plan_space(task.setup, task.fleet, ("bf16",))
    replicas = Replicas(task.setup, plain, task.arrivals.longest)
    evaluator = PoolsEvaluator(replicas, task.arrivals, task.goals, COUNTS, how=task.kv_transfer)
    return task, [*plain, *disaggregated_space(task.setup, task.fleet, plain)], evaluator


class TestSearched:
    @pytest.mark.parametrize(("fleet", "rate"), [("H100:3", 30.0), ("L40S:4", 20.0), ("H100:2,L40S:2", 24.0)])
    def test_the_cheapest_is_that_of_running_all(self, fleet: str, rate: float) -> None:
        task, space, evaluator = space_of("cost", fleet, rate=rate, input=2000, output=40)
        found = search(space, evaluator, task.objective, task.job)
        every = [Candidate(family=family, replicas=n) for family in space for n in range(1, family.most + 1)]
        scores = [evaluator.evaluate(plan, rate, Level.SURE) for plan in every if evaluator.fits(plan.family)]
        met = [score for score in scores if score.surely_meets(task.goals)]
        assert found.considered == len(every)
        assert (found.best is None) == (not met)
        if found.best is not None:
            assert found.best.plan.usd_h == pytest.approx(min(score.plan.usd_h for score in met))

    @pytest.mark.slow
    def test_the_highest_rate_is_that_of_running_all(self) -> None:
        task, space, evaluator = space_of("throughput", "H100:3", input=2000, output=40)
        found = search(space, evaluator, task.objective, task.job)
        assert found.best is not None
        more = found.best.rate_per_s * (1 + TOLERANCE + FULL_TOLERANCE)
        for family in space:
            if evaluator.fits(family):
                plan = Candidate(family=family, replicas=family.most)
                assert not evaluator.evaluate(plan, more, Level.FULL).surely_meets(task.goals), family

    def test_bounds_are_below_every_run(self) -> None:
        task, space, evaluator = space_of("cost", "H100:2,L40S:2", rate=10.0, input=2000, output=40)
        for family in space:
            if family.prefill is None or not evaluator.fits(family):
                continue
            plan, bounds = Candidate(family=family, replicas=family.most), evaluator.bounds(family)
            score = evaluator.evaluate(plan, 0.3 * plan.most_per_s(bounds), Level.TO_THE_END)
            for goal in task.goals:
                assert bounds.floors_s[goal.name] <= score.values_s[goal.name]
            assert bounds.e2e_s <= score.e2e_s

    @pytest.mark.heavy
    def test_prompts_that_are_late_alone_are_late_with_their_answers(self) -> None:
        """A plan that is given up after its prefill stage misses the same goal in full."""
        task, space, evaluator = space_of("cost", "H100:2", rate=1.0, input=2000, output=40)
        family = next(family for family in space if family.prefill is not None)
        plan = Candidate(family=family, replicas=1)
        most = plan.most_per_s(evaluator.bounds(family))
        lost: list[Score] = [evaluator.evaluate(plan, share * most, Level.SEARCH) for share in (0.5, 0.8, 0.9, 0.97)]
        assert any(score.missed for score in lost)
        for score in lost:
            if score.missed:
                full = evaluator.evaluate(plan, score.rate_per_s, Level.TO_THE_END)
                assert score.values_s["ttft_p90"] <= full.values_s["ttft_p90"] * 1.02
                assert not full.meets(task.goals)

    def test_stages_are_shared_only_where_they_are_the_same(self) -> None:
        """Scores do not depend on what was run before them."""
        _, space, evaluator = space_of("cost", "H100:3", rate=20.0, input=2000, output=40)
        apart = [family for family in space if family.prefill is not None]
        plans = [Candidate(family=family, replicas=n) for family in apart for n in range(1, family.most + 1)]
        before = [evaluator.evaluate(plan, 20.0, Level.TO_THE_END) for plan in plans]
        for plan, score in list(zip(plans, before, strict=True))[:: max(1, len(plans) // 6)]:
            _, _, fresh = space_of("cost", "H100:3", rate=20.0, input=2000, output=40)
            assert fresh.evaluate(plan, 20.0, Level.TO_THE_END).values_s == score.values_s

    def test_routers_that_look_run_both_stages_together(self) -> None:
        _, space, evaluator = space_of("cost", "H100:3", rate=20.0, input=2000, output=40, router="least-requests")
        family = next(family for family in space if family.prefill is not None and family.most == 2)
        score = evaluator.evaluate(Candidate(family=family, replicas=2), 20.0, Level.TO_THE_END)
        assert score.settled and score.values_s["ttft_p90"] > 0


class TestPlans:
    @pytest.mark.heavy
    def test_a_disaggregated_plan_is_written_and_simulated(self) -> None:
        found = gnomon.plan_serving(
            "llama-3.2-1b", fleet="H100:2", rate=10, input=2000, output=40, slo="ttft_p90=500ms", dtypes=["bf16"],
            settings=FIXED, pools="disaggregated",
        )  # fmt: skip
        plan = found.best.plan
        assert [pool.role for pool in plan.pools] == ["prefill", "decode"] and plan.chips == 2
        assert found.best.label.startswith("prefill 1 x (H100")
        again = gnomon.simulate_serving(
            "llama-3.2-1b", pools=["prefill=H100:1", "decode=H100:1"], rate=10, input=2000, output=40, requests=3000,
            settings=FIXED, dtype="bf16",
        )  # fmt: skip
        assert again.ttft_s["p90"] == pytest.approx(found.best.ttft_s["p90"], rel=0.1)
        assert again.power_w == pytest.approx(found.best.power_w, rel=0.1)

    @pytest.mark.heavy
    def test_aggregated_is_the_default(self) -> None:
        given: dict[str, Any] = {
            "fleet": "H100:2", "rate": 20, "input": 500, "output": 40, "slo": "ttft_p90=500ms", "settings": FIXED,
        }  # fmt: skip
        plain, named = (gnomon.plan_serving("llama-3.2-1b", **given, **more) for more in ({}, {"pools": "aggregated"}))
        assert plain.to_dict() == named.to_dict()

    @pytest.mark.slow
    def test_a_mixture_is_no_dearer_than_one_kind_of_chip(self) -> None:
        given: dict[str, Any] = {
            "fleet": "H100:2,L40S:2", "rate": 34, "input": 1000, "output": 100, "slo": "ttft_p90=500ms,tpot_p90=30ms",
            "settings": FIXED, "dtypes": ["fp8"],
        }  # fmt: skip
        mixed = gnomon.plan_serving("llama-3.1-8b", pools="mixed", **given)
        assert mixed.plans_considered == (1 + 3) * (1 + 3) - 1
        assert mixed.best.max_rate_per_s is not None and mixed.best.max_rate_per_s >= 34 * 0.999
        try:
            alone = gnomon.plan_serving("llama-3.1-8b", **given)
        except NoPlanError:
            return
        assert mixed.best.usd_h <= alone.best.usd_h * 1.0001

    def test_mixtures_refuse_what_they_do_not_plan(self) -> None:
        given: dict[str, Any] = {"fleet": "H100:1,L40S:1", "rate": 1, "input": 100, "output": 10, "pools": "mixed"}
        for more in ({"objective": "energy"}, {"router": "least-kv"}):
            with pytest.raises(InputError):
                gnomon.plan_serving("llama-3.2-1b", **given, **more)


class TestBesideAiconfigurator:
    """Llama-3.1-70B in fp8 on 8 H100, 4,000 tokens in and 1,000 out: what AIConfigurator 0.12 answers for vLLM 0.24,
    simulated with as many clients as its batches hold. It gives tokens per second and GPU, TTFT and TPOT of a full
    batch, without the waiting of requests for each other; its batch of 248 only fits with the KV cache in fp8."""

    @pytest.mark.heavy
    def test_aggregated(self) -> None:
        found = simulated(("both=H100:8,tp=4,max_num_seqs=96",), concurrency=192, requests=1500, kv_dtype="fp8")
        assert found.output_tokens_per_s / 8 == pytest.approx(624, rel=0.2)
        assert found.tpot_s["mean"] == pytest.approx(0.0376, rel=0.2)

    @pytest.mark.heavy
    def test_disaggregated(self) -> None:
        pools = ("prefill=H100:4,tp=2", "decode=H100:4,tp=4,max_num_seqs=248")
        found = simulated(pools, concurrency=248, requests=1500, kv_dtype="fp8")
        assert found.output_tokens_per_s / 8 == pytest.approx(596, rel=0.2)
        assert found.ttft_s["mean"] > 1.0  # the prefill replicas are busy nearly all the time, and prompts wait


def test_windows_give_the_least_of_a_statistic() -> None:
    from gnomon.search.judge import least_of_windows, steady_part

    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1.0, 4000))
    values = rng.exponential(1.0, 4000)
    for life in (10.0, 100.0, 600.0):
        part = steady_part(arrival, arrival + life)
        own = float(np.quantile(values[part], 0.9))
        assert least_of_windows(values, arrival, "p90", 5.0) <= own * 1.02


def test_pools_of_a_plan_keep_their_degrees_and_are_not_too_many() -> None:
    from gnomon.load.plan import SCHEMA, plan_from_dict
    from gnomon.load.pools import planned_pools

    def pools_in(replicas: int) -> Any:
        shape = {"tp": 1, "pp": 1, "ep": 2, "cp": 1, "dp": 2}
        pool = {"role": "both", "chip": "H100", "replicas": replicas, "strategy": shape, "dtype": "bf16"}
        engine = {"name": "vllm", "version": "0.24.0"}
        pools = [{**pool, "engine": engine}, {**pool, "engine": engine, "chip": "H200"}]
        return plan_from_dict({"schema": SCHEMA, "model": "qwen3-30b-a3b", "pools": pools})

    strategies = [pool.replica.deploy().strategy for pool in planned_pools(pools_in(1))]
    assert [(one.dp, one.ep, one.ranks) for one in strategies] == [(2, 2, 2), (2, 2, 2)]
    with pytest.raises(InputError, match="10,000 replicas are more than the 4,096"):
        planned_pools(pools_in(5000))
