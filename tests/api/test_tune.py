"""What to change in a deployment: single changes that are simulated, and the best plan on the same chips."""

from __future__ import annotations

import json
from typing import Any

import pytest

import gnomon
from gnomon.cli.run import run
from gnomon.errors import InputError
from gnomon.planning.side_by_side import NOT_COMPARED, differing
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.spec.tuned import TunedPlan

COMMAND = "vllm serve llama-3.1-8b --max-num-seqs 64 --enforce-eager --max-model-len 8k --kv-transfer-config '{}'"
LOAD: dict[str, Any] = {"rate": 4, "input": 512, "output": 128, "requests": 400}
GOALS = "ttft_p90=1s,tpot_p90=40ms"


@pytest.fixture(scope="module")
def found() -> TunedPlan:
    return gnomon.tune(COMMAND, on="H100:2", slo=GOALS, **LOAD)


@pytest.mark.heavy
def test_the_running_plan_is_measured(found: TunedPlan) -> None:
    plan = found.now.plan
    assert (plan.replicas, plan.engine.settings["enforce_eager"]) == (2, True)
    assert found.now.feasible and found.now.max_rate_per_s and found.now.max_rate_per_s > 4
    assert [one.option for one in found.not_modelled] == ["--kv-transfer-config {}"]


def test_every_change_helps_and_is_one_change(found: TunedPlan) -> None:
    assert found.changes
    assert len(found.changes) + found.no_benefit + found.refused + found.unfit == found.tried
    for change in found.changes:
        cheaper = change.score.usd_h < found.now.usd_h
        assert change.score.feasible and (cheaper or (change.rate or 0) > 1.02)
        assert change.price == pytest.approx(change.score.usd_h / found.now.usd_h)
        plain = [
            {key: value for key, value in plan_to_dict(one).items() if key not in NOT_COMPARED}
            for one in (found.now.plan, change.score.plan)
        ]
        plain = [{key: one[key] for key in one if key != "pools"} for one in plain]  # which repeat the fields beside
        assert len(list(differing(plain))) <= 2, change.what  # TP on the same chips changes the replicas too
    prices = [change.score.usd_h for change in found.changes]
    assert prices == sorted(prices)


def test_what_is_slow_is_named_with_its_flag(found: TunedPlan) -> None:
    (eager,) = (change for change in found.changes if change.what.startswith("enforce_eager"))
    assert (eager.flags, eager.dropped) == ((), ("--enforce-eager",))
    assert eager.rate is not None and eager.rate > 1.5
    sequences = next(change for change in found.changes if change.what.endswith("sequences"))
    assert sequences.flags[0].startswith("--max-num-seqs ")


@pytest.mark.slow
def test_a_change_has_the_figures_that_its_plan_has(found: TunedPlan) -> None:
    """What is proposed, asked about by itself, is measured the same."""
    change = found.changes[0]
    again = gnomon.tune(change.score.plan)
    assert again.now.ttft_s == change.score.ttft_s
    assert again.now.max_rate_per_s == change.score.max_rate_per_s


def test_the_best_plan_is_no_dearer_than_any_single_change(found: TunedPlan) -> None:
    assert found.best is not None and found.best.feasible
    assert found.best.usd_h <= min([found.now.usd_h, *(change.score.usd_h for change in found.changes)])
    assert (
        "enforce_eager" not in found.best.plan.engine.settings or not found.best.plan.engine.settings["enforce_eager"]
    )


@pytest.mark.slow
def test_the_best_plan_is_that_of_a_search(found: TunedPlan) -> None:
    """With its figures and intervals, though nothing is run to compare it with."""
    kept = {"max_model_len": found.now.plan.engine.settings["max_model_len"]}
    asked = {**LOAD, "requests": None}
    searched = gnomon.plan_serving("llama-3.1-8b", fleet="H100:2", slo=GOALS, settings=kept, **asked).best
    assert found.best is not None
    assert (found.best.label, found.best.max_rate_per_s) == (searched.label, searched.max_rate_per_s)
    ours, theirs = (one.predicted["ttft_s"]["p90"] for one in (found.best, searched))
    assert (ours.value, ours.low, ours.high) == (theirs.value, theirs.low, theirs.high)


@pytest.mark.slow
def test_changes_and_search_say_how_far_they_are() -> None:
    told: list[tuple[int, int]] = []
    gnomon.tune(COMMAND, on="H100:1", slo=GOALS, progress=lambda done, total: told.append((done, total)), **LOAD)
    assert len({total for _, total in told}) == 2  # changes, then plans
    assert all(0 <= done <= total for done, total in told)


@pytest.mark.heavy
def test_goals_that_are_missed() -> None:
    found = gnomon.tune("vllm serve llama-3.1-8b --max-num-seqs 4", on="L40S", slo="ttft_p90=300ms", **LOAD)
    assert not found.now.feasible
    assert all(change.score.feasible or (change.score.max_rate_per_s or 0) > 0 for change in found.changes)
    assert found.best is not None or found.why_no_best


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ({"plan": "vllm serve deepseek-v2-lite -tp 2 -dcp 2", "on": "H100", **LOAD}, "strategy.cp"),
        ({"plan": "vllm serve llama-3.1-8b", "on": "H100"}, "the plan"),
        ({"plan": "vllm serve llama-3.1-8b", "on": "H100", "input": 5, "output": 5}, "--rate"),
        ({"plan": "vllm serve llama-3.1-8b", **LOAD}, "the command"),
        ({"plan": "examples/plan.yaml", "on": "H100", **LOAD}, "--on"),
    ],
)
def test_refused(words: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        gnomon.tune(**words)
    assert where in caught.value.where


@pytest.mark.heavy
def test_the_command_prints_and_keeps_its_best_plan(found: TunedPlan, capsys: pytest.CaptureFixture[str]) -> None:
    load = [word for name, value in LOAD.items() for word in (f"--{name}", str(value))]
    assert run(["tune", COMMAND, "--on", "H100:2", "--slo", GOALS, *load]) == 0
    text = capsys.readouterr().out
    assert "single changes that help" in text and "no --enforce-eager" in text
    assert "not modelled: --kv-transfer-config {}: a cache that is sent to other servers" in text
    assert run(["export", "last"]) == 0
    assert "vllm serve" in capsys.readouterr().out
    answer = json.loads(json.dumps(found.to_dict()))
    assert answer["schema"] == "gnomon.tune/1"
    assert answer["changes"][0]["score"]["plan"]["schema"] == "gnomon.plan/1"


@pytest.mark.heavy
def test_commands_are_compared_with_plans() -> None:
    found = gnomon.compare("vllm serve llama-3.1-8b", "vllm serve llama-3.1-8b -q fp8", on="H100", **LOAD)
    assert [row["field"] for row in found.differs] == ["dtype"]
    assert found.names[0] == "vllm serve llama-3.1-8b"
    with pytest.raises(InputError, match="chips of its own"):
        gnomon.compare("examples/plan.yaml", "examples/plan.yaml", on="H100")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        pytest.param(
            "python -m sglang.launch_server --model-path llama-3.1-8b --max-running-requests 16",
            "--max-running-requests ",
            marks=pytest.mark.slow,
        ),
        (
            "echo 'cuda_graph_config: null' > a.yaml; trtllm-serve llama-3.1-8b --config a.yaml",
            "kv_cache_config.dtype: ",
        ),
    ],
)
def test_commands_of_other_engines(command: str, wanted: str) -> None:
    found = gnomon.tune(command, on="H100", slo=GOALS, **LOAD)
    assert len(found.changes) + found.no_benefit + found.refused + found.unfit == found.tried
    texts = [*(flag for one in found.changes for flag in one.flags)]
    texts += [f"no {name}" for one in found.changes for name in one.dropped]
    assert any(text.startswith(wanted) for text in texts), texts
    assert found.best is not None and found.best.plan.engine.name == found.now.plan.engine.name


@pytest.mark.heavy
def test_engines_side_by_side() -> None:
    commands = ("vllm serve llama-3.1-8b", "sglang serve llama-3.1-8b", "trtllm-serve llama-3.1-8b")
    found = gnomon.compare(*commands, on="H100", **LOAD)
    (row,) = (one for one in found.differs if one["field"] == "engine.name")
    assert list(row["values"]) == ["vllm", "sglang", "trtllm"]
