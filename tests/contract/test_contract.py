"""What other people's scripts rely on: keys, types and units of every command's JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.contract.shapes import PLAN, SCORE, TIMES, TRAINING_PLAN, check, estimate, number, positive, share

import gnomon
from gnomon.cli.run import run

GIB = 1024**3
LOAD = ["--rate", "4", "--input", "512", "--output", "64"]


class Cli:
    """Runs a command line in this process and gives back its JSON."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> dict[str, Any]:
        self._capsys.readouterr()
        code = run([*words, "--json"])
        out, err = self._capsys.readouterr()
        assert code == 0, err
        answer: dict[str, Any] = json.loads(out)
        return answer

    def text(self, *words: str) -> str:
        self._capsys.readouterr()
        assert run(list(words)) == 0, self._capsys.readouterr().err
        return str(self._capsys.readouterr().out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def planned(cli: Cli) -> dict[str, Any]:
    words = ["plan", "serve", "llama-3.1-8b", "--fleet", "H100:2", *LOAD, "--requests", "200"]
    return cli(*words, "--slo", "ttft_p90=1s,tpot_p90=50ms")


def test_chips(cli: Cli) -> None:
    answer = cli("chips")
    assert answer["schema"] == "gnomon.chips/1"
    check(answer, {"chips": [{"name": str, "memory_bytes": positive, "rates_flops": dict, "price_usd_h": positive}]})
    assert 75 * GIB < next(c for c in answer["chips"] if c["name"].startswith("H100"))["memory_bytes"] < 80 * GIB
    shown = cli("chips", "show", "h100")
    assert [chip["name"] for chip in shown["chips"]] == ["H100-SXM-80GB"]
    assert shown == cli("chips", "--json", "show", "H100-SXM-80GB")
    assert gnomon.chips().to_dict() == answer


def test_models(cli: Cli) -> None:
    answer = cli("models")
    assert answer["schema"] == "gnomon.models/1"
    check(answer, {"models": [{"name": str, "parameters": int, "active_parameters": int, "max_context": int}]})
    by_name = {model["name"]: model for model in answer["models"]}
    assert by_name["llama-3.1-8b"]["parameters"] == 8_030_261_248
    sizes = {"kind": str, "kv_bytes_per_token_bf16": number, "weights_bytes": dict, "priced": bool}
    check(answer, {"models": [sizes | {"layers": int, "hub_id": str, "source": str, "towers": dict}]})
    (shown,) = cli("models", "show", "llama-3.1-8b")["models"]
    check(shown["shapes"], {"schema": str, "hidden": int, "blocks": [{"count": int, "mixer": dict, "ffn": dict}]})
    assert {key: value for key, value in shown.items() if key != "shapes"} == by_name["llama-3.1-8b"]
    assert gnomon.models().to_dict() == answer


def test_models_can_be_narrowed(cli: Cli) -> None:
    mixtures = cli("models", "--kind", "moe", "--find", "qwen3")["models"]
    assert {"qwen3-30b-a3b", "qwen3-235b-a22b"} <= {model["name"] for model in mixtures}
    assert all(model["moe"] for model in mixtures)
    assert cli("models", "--find", "no such name")["models"] == []


@pytest.mark.heavy
def test_papers(cli: Cli) -> None:
    answer = cli("papers")
    assert answer["schema"] == "gnomon.papers/1"
    said = [{"what": str, "value": str, "against": str, "setting": str}]
    entry = {"slug": str, "title": str, "status": str, "technique": str, "why": str, "topics": [str], "claims": said}
    check(answer, {"papers": [entry]})
    assert len(answer["papers"]) >= 184
    assert json.loads(json.dumps(gnomon.papers().to_dict())) == answer
    found = cli("papers", "search", "offload", "optimizer")
    check(found, {"papers": [entry | {"score": positive}]})
    assert json.loads(json.dumps(gnomon.papers.search("offload optimizer").to_dict())) == found
    shown = cli("papers", "show", "zero-offload")
    assert shown == cli("papers", "--json", "show", "zero-offload")
    check(shown, {"paper": entry})


def test_papers_apply(cli: Cli) -> None:
    cli("plan", "train", "llama-3.2-1b", "--cluster", "H100:2", "--seq", "512", "--global-batch", "16")
    answer = cli("papers", "apply", "last")
    check(answer, {"techniques": [{"name": str}], "pairs": list, "best": list})
    assert {"value", "low", "high"} <= answer["techniques"][0]["gain"].keys()


PREDICTION = {
    "time_s": estimate,
    "memory_bytes": estimate,
    "energy_j": estimate,
    "cost_usd": estimate,
    "bound": str,
    "breakdown": [{"op": str, "time_s": estimate, "bound": str}],
}


@pytest.mark.parametrize(
    "words",
    [
        ["--phase", "decode", "--batch", "32", "--context", "1024"],
        ["--phase", "prefill", "--batch", "1", "--tokens", "2048"],
        ["--phase", "prefill", "--batch", "2", "--tokens", "512", "--context", "512", "--dtype", "fp8", "--tp", "1"],
    ],
)
def test_predict(cli: Cli, words: list[str]) -> None:
    answer = cli("predict", "llama-3.1-8b", "--on", "H100", "--engine", "vllm", *words)
    assert answer["schema"] == "gnomon.predict/1"
    check(answer, PREDICTION)
    assert 1e-3 < answer["time_s"]["value"] < 1.0
    assert 7 * GIB < answer["memory_bytes"]["value"] < 80 * GIB
    assert 0.1 < answer["energy_j"]["value"] < 1000
    assert 1e-7 < answer["cost_usd"]["value"] < 1e-2
    parts = sum(row["time_s"]["value"] for row in answer["breakdown"])
    assert parts == pytest.approx(answer["time_s"]["value"], rel=0.02)


def test_predict_in_python(cli: Cli) -> None:
    answer = cli("predict", "llama-3.1-8b", "--on", "H100", "--phase", "decode", "--batch", "8", "--context", "512")
    same = gnomon.predict("llama-3.1-8b", on="H100", phase="decode", batch=8, context=512)
    assert json.loads(json.dumps(same.to_dict())) == answer


def test_predict_on_several_chips(cli: Cli) -> None:
    answer = cli("predict", "llama-3.1-70b", "--on", "H100:4", "--tp", "4", "--phase", "decode", "--batch", "8")
    check(answer, PREDICTION)
    joined = [row for row in answer["breakdown"] if row["kind"] == "all_reduce"]
    assert joined and all(row["bound"] == "network" for row in joined)
    large = ("predict", "llama-3.1-70b", "--phase", "prefill", "--tokens", "8192", "--on")
    wide, alone = ({row["kind"]: row["bound"] for row in cli(*large, on)["breakdown"]} for on in ("H100:4", "H100:1"))
    assert wide["all_reduce"] == "network"
    assert "all_reduce" not in alone


def test_import(cli: Cli) -> None:
    words = ["import", "vllm serve llama-3.1-8b --port 80 -tp 2 --max-model-len 8k", "--on", "H100:4"]
    answer = cli(*words)
    assert answer["schema"] == "gnomon.import/1"
    check(answer, {"plan": dict, "ignored": [{"option": str, "why": str, "affects": bool}], "variables": dict})
    assert (answer["plan"]["replicas"], answer["plan"]["strategy"]["tp"]) == (2, 2)
    assert json.loads(json.dumps(gnomon.import_plan(words[1], on="H100:4").to_dict())) == answer


def test_fit(cli: Cli) -> None:
    answer = cli("fit", "llama-3.1-8b", "--on", "H100")
    assert answer["schema"] == "gnomon.fit/1"
    shape = {"fits": bool, "usable_bytes": positive, "parts": dict, "max_context": int, "max_batch": int}
    check(answer, shape | {"changes": [{"what": str, "kv_tokens": int}]})
    assert answer["fits"]
    assert all(isinstance(size, number) for size in answer["parts"].values())
    assert json.loads(json.dumps(gnomon.fit("llama-3.1-8b", on="H100").to_dict())) == answer


def test_fit_says_what_would_fit(cli: Cli) -> None:
    answer = cli("fit", "llama-3.1-70b", "--on", "H100")
    assert not answer["fits"]
    assert answer["changes"]
    for change in answer["changes"]:
        assert change["kv_tokens"] > 0


def test_ops(cli: Cli, tmp_path: Path) -> None:
    table = tmp_path / "ops.csv"
    table.write_text("op,dtype,m,n,k\ngemm,bf16,32,4096,4096\ngemm,bf16,4096,4096,4096\n")
    rows = list(csv.DictReader(io.StringIO(cli.text("ops", str(table), "--on", "H100"))))
    assert list(rows[0])[-4:] == ["time_us", "low_us", "high_us", "provenance"]
    assert [row["m"] for row in rows] == ["32", "4096"]
    for row in rows:
        assert 0 < float(row["low_us"]) <= float(row["time_us"]) <= float(row["high_us"])
    cli.text("ops", str(table), "--on", "H100", "--out", str(tmp_path / "out.csv"))
    assert list(csv.DictReader((tmp_path / "out.csv").open())) == rows


SERVED = {
    "requests": int,
    "makespan_s": positive,
    "ttft_s": TIMES,
    "tpot_s": TIMES,
    "e2e_s": TIMES,
    "output_tokens_per_s": positive,
    "energy_j": positive,
    "cost_usd": positive,
}


@pytest.mark.heavy
def test_simulate_serve(cli: Cli, tmp_path: Path) -> None:
    requests, steps = tmp_path / "requests.csv", tmp_path / "steps.json"
    words = ["simulate", "serve", "llama-3.1-8b", "--on", "H100", *LOAD, "--requests", "50", "--seed", "1"]
    answer = cli(*words, "--requests-out", str(requests), "--trace-out", str(steps), "--set", "max_num_seqs=64")
    assert answer["schema"] == "gnomon.simulate.serve/1"
    check(answer, SERVED)
    assert answer["requests"] == 50
    rows = list(csv.DictReader(requests.open()))
    assert list(rows[0])[:5] == ["arrival_s", "input_tokens", "output_tokens", "first_token_s", "finish_s"]
    assert len(rows) == 50
    for row in rows:
        assert float(row["arrival_s"]) < float(row["first_token_s"]) <= float(row["finish_s"])
    events = json.loads(steps.read_text())["traceEvents"]
    assert any(event["ph"] == "X" and event["dur"] > 0 for event in events)
    plain = cli(*words, "--set", "max_num_seqs=64")
    assert plain["tpot_s"] == pytest.approx(answer["tpot_s"], rel=1e-9), "recording changes nothing but the rounding"


def test_simulate_a_trace(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "load.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n0.5,200,1\n1.0,300,30\n")
    answer = cli("simulate", "serve", "llama-3.1-8b", "--on", "H100", "--dtype", "bf16", "--trace", str(trace))
    check(answer, SERVED)
    assert answer["requests"] == 3


@pytest.mark.heavy
def test_plan_serve(planned: dict[str, Any]) -> None:
    assert planned["schema"] == "gnomon.plan.serve/1"
    shape = {"plans_considered": int, "plans_fit": int, "plans_simulated": int, "best": SCORE, "pareto": [SCORE]}
    check(planned, shape | {"binding": str, "runner_up": {"why": str}, "next_cheaper": {"why": str}, "router": str})
    assert planned["plans_considered"] >= planned["plans_fit"] >= 1
    assert planned["best"]["feasible"]


@pytest.mark.heavy
@pytest.mark.battery(8)
@pytest.mark.parametrize("objective", ["cost", "throughput", "latency", "energy"])
def test_plan_objectives(cli: Cli, objective: str) -> None:
    words = ["plan", "serve", "llama-3.1-8b", "--fleet", "H100:1", *LOAD, "--requests", "100", "--dtype", "bf16"]
    answer = cli(*words, "--slo", "tpot_p90=100ms", "--objective", objective)
    check(answer["best"], SCORE)


TRAINED = {
    "step_time_s": estimate,
    "mfu": share,
    "hfu": share,
    "tokens_per_s_per_gpu": positive,
    "peak_memory_bytes": estimate,
    "ranks": [{"rank": int, "peak_memory_bytes": positive}],
    "bubble_fraction": number,
    "exposed_communication_s": number,
    "plan": TRAINING_PLAN,
}
JOB = ["--seq", "2048", "--global-batch", "32"]
CUT = [
    "--micro-batch",
    "1",
    "--tp",
    "2",
    "--pp",
    "2",
    "--vp",
    "2",
    "--cp",
    "1",
    "--ep",
    "1",
    "--dp",
    "2",
    "--zero",
    "1",
]
RECIPE = ["--schedule", "interleaved", "--recompute", "selective", "--optimizer", "adamw-bf16", "--engine", "megatron"]


def test_simulate_train(cli: Cli, tmp_path: Path) -> None:
    trace, memory = tmp_path / "step.json", tmp_path / "memory.csv"
    words = ["simulate", "train", "llama-3.1-8b", "--on", "H100:8", *JOB, *CUT, *RECIPE, "--dtype", "bf16"]
    answer = cli(*words, "--tokens", "1e9", "--trace-out", str(trace), "--memory-out", str(memory))
    assert answer["schema"] == "gnomon.simulate.train/1"
    check(answer, TRAINED | {"run": {"days": positive, "cost_usd": positive, "energy_kwh": positive}})
    assert [rank["rank"] for rank in answer["ranks"]] == list(range(8))
    assert answer["peak_memory_bytes"]["value"] == max(rank["peak_memory_bytes"] for rank in answer["ranks"])
    same = gnomon.simulate_training(
        "llama-3.1-8b", on="H100:8", seq=2048, global_batch=32, tp=2, pp=2, vp=2, dp=2, zero=1,
        schedule="interleaved", recompute="selective", optimizer="adamw-bf16", dtype="bf16", tokens=1e9,
    )  # fmt: skip
    assert json.loads(json.dumps(same.to_dict())) == answer
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(1e6 * answer["step_time_s"]["value"])
    rows = list(csv.DictReader(memory.open()))
    assert list(rows[0]) == ["rank", "time_s", "bytes", "what"]
    by_stage = {rank["pipeline_rank"]: rank["peak_memory_bytes"] for rank in answer["ranks"]}
    for stage, peak in by_stage.items():
        assert max(float(row["bytes"]) for row in rows if row["rank"] == str(stage)) == pytest.approx(peak, rel=1e-6)


def test_all_states_in_bf16_need_less(cli: Cli) -> None:
    words = ["simulate", "train", "llama-3.1-8b", "--on", "H100:8", *JOB, "--optimizer"]
    wide, narrow = (cli(*words, optimizer)["memory_parts"][0] for optimizer in ("adamw", "adamw-bf16"))
    for name, factor in (("weights", 1), ("gradients", 2), ("optimizer", 3)):
        assert wide[name] == factor * narrow[name]


@pytest.fixture
def trained(cli: Cli) -> dict[str, Any]:
    return cli("plan", "train", "llama-3.1-8b", "--cluster", "H100:16", *JOB, "--tokens", "300B")


def test_a_run_with_failures(cli: Cli) -> None:
    words = ["simulate", "train", "llama-3.1-8b", "--on", "H100:64", *JOB, "--tp", "2", "--tokens", "300B"]
    words += ["--failures", "default"]
    answer = cli(*words, "--checkpoint-to", "shared:10GB/s", "--spares", "1", "--repair-time", "6h", "--grid", "FR")
    failures = {"name": str, "per_gpu_hour": positive, "hardware_share": share, "mtbf_s": positive, "count": positive}
    lost = dict.fromkeys(("checkpoint_stalls", "lost_work", "detection", "restarts", "loading", "repairs"), share)
    saved = {"bytes": positive, "mode": str, "to": str, "every_steps": int, "best_every_steps": int} | dict.fromkeys(
        ("stall_s", "write_s", "load_s", "interval_s", "best_interval_s", "young_interval_s"), positive
    )
    told = {"goodput": estimate, "days": estimate, "days_without_failures": positive, "spares": int}
    check(answer["reliability"], told | {"failures": failures, "lost": lost, "checkpoints": saved})
    check(answer["run"], dict.fromkeys(("steps", "days", "cost_usd", "energy_kwh", "co2_kg"), positive))
    same = gnomon.simulate_training(
        "llama-3.1-8b", on="H100:64", seq=2048, global_batch=32, tp=2, tokens=300e9, failures="default",
        checkpoint_to="shared:10GB/s", spares=1, repair_time_s=6 * 3600, grid="FR",
    )  # fmt: skip
    assert json.loads(json.dumps(same.to_dict()))["reliability"] == answer["reliability"]


def test_plan_train(trained: dict[str, Any]) -> None:
    assert trained["schema"] == "gnomon.plan.train/1"
    check(trained, {"plans_considered": int, "plans_fit": int, "best": TRAINED, "bound_s": positive, "rejected": dict})
    assert trained["best"]["fits"]
    assert trained["best"]["run"]["days"] > 0
    assert sum(trained["rejected"].values()) == trained["plans_considered"] - 1
    assert trained["bound_s"] <= trained["best"]["step_time_s"]["value"]
    again = gnomon.plan_training("llama-3.1-8b", cluster="H100:16", seq=2048, global_batch=32, tokens=300e9)
    same = json.loads(json.dumps(again.to_dict()))
    assert same == trained


@pytest.mark.parametrize("target", ["megatron", "torchrun"])
def test_export_of_a_training_plan(cli: Cli, trained: dict[str, Any], target: str, tmp_path: Path) -> None:
    answer = cli("export", "last", "--to", target, "--out", str(tmp_path / "train"))
    check(answer, {"files": dict, "command": str, "engine": str, "version": str, "not_expressed": [str]})
    assert set(answer["files"]) == {"run.sh", "slurm.sh", "plan.yaml"}
    assert cli("export", str(tmp_path / "train" / "plan.yaml"), "--to", target) == answer
    assert target in trained["best"]["targets"]


def test_verify_of_a_training_plan(cli: Cli, trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of the history is what runs; what it took stands beside what was predicted."""
    ran = []

    def run_steps(job: Any, plan_text: str, tell: Any) -> dict[str, Any]:
        ran.append(job)
        measured = {"step_s": [2.0, 1.0, 3.0], "peak_memory_bytes": [30e9, 40e9], "sm_clock_mhz": {}}
        return measured | {"date": "2026-11-15T00:00", "versions": {"torch": "2.11"}, "device": "NVIDIA H100"}

    monkeypatch.setattr("gnomon.engines.torch.runner.run", run_steps)
    answer = cli("verify", "last")
    assert [job.strategy.ranks for job in ran] == [16]
    check(answer, {"parts": [{"what": str, "measured": positive, "predicted": positive, "error": number}]})
    assert {part["what"]: part["measured"] for part in answer["parts"]} == {"step time": 2.0, "peak memory": 40e9}
    assert cli.text("verify", trained_id(cli)).count("step time") == 1


def trained_id(cli: Cli) -> str:
    runs = cli("history")["runs"]
    return next(str(run["id"]) for run in runs if run["kind"] == "plan.train")


def test_explain_opens_training_answers(cli: Cli, trained: dict[str, Any]) -> None:
    planned = cli("explain", "last")
    assert planned["of"] == "plan.train"
    assert planned["nodes"][0]["shown"] == trained["label"]
    cli("simulate", "train", "llama-3.1-8b", "--on", "H100:8", *JOB, "--pp", "4")
    stepped = cli("explain", "last")
    assert stepped["of"] == "simulate.train"
    memory = next(node for node in stepped["nodes"] if node["name"] == "memory")
    assert [part["name"] for part in memory["parts"]] == [f"pipeline rank {rank}" for rank in range(4)]


@pytest.mark.heavy
@pytest.mark.battery(2)
@pytest.mark.parametrize("target", ["vllm", "kubernetes"])
def test_export(cli: Cli, planned: dict[str, Any], target: str, tmp_path: Path) -> None:
    answer = cli("export", "last", "--to", target, "--out", str(tmp_path / "deploy"))
    assert answer["schema"] == "gnomon.export/1"
    check(answer, {"files": dict, "command": str, "engine": str, "version": str, "not_expressed": [str]})
    for name, text in answer["files"].items():
        assert (tmp_path / "deploy" / name).read_text() == text
    again = cli("export", str(tmp_path / "deploy" / "plan.yaml"), "--to", target)
    assert again == answer
    check(planned["best"]["plan"], PLAN)
    assert json.loads(json.dumps(gnomon.export("last", to=target).to_dict())) == answer


@pytest.mark.heavy
def test_launch(cli: Cli, planned: dict[str, Any]) -> None:
    answer = cli("launch", "last", "--dry-run")
    assert answer["schema"] == "gnomon.launch/1"
    check(answer, {"commands": [str], "started": bool, "why_not": str, "not_expressed": [str]})
    assert not answer["started"]
    assert all("vllm serve" in command for command in answer["commands"])


def test_explain(cli: Cli) -> None:
    cli("predict", "llama-3.1-8b", "--on", "H100", "--phase", "decode", "--batch", "32", "--context", "1024")
    answer = cli("explain", "last")
    assert answer["schema"] == "gnomon.explain/1"
    node = {"name": str, "level": str, "shown": str, "formula": str, "provenance": str, "source": str, "parts": list}
    check(answer, {"title": str, "of": str, "id": str, "nodes": [node], "ops": [str]})
    levels = _levels(answer["nodes"])
    assert {"metric", "phase", "operator", "part"} <= levels
    one = cli("explain", answer["id"], "--op", answer["ops"][0])
    assert [item["name"] for item in one["nodes"]] == [answer["ops"][0]]


def _levels(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["level"] for node in nodes} | {level for node in nodes for level in _levels(node["parts"])}


@pytest.mark.heavy
def test_explain_opens_every_kind_of_answer(cli: Cli, planned: dict[str, Any]) -> None:
    assert cli("explain", "last")["of"] == "plan.serve"
    cli("simulate", "serve", "llama-3.1-8b", "--on", "H100", *LOAD, "--requests", "50")
    served = cli("explain", "last")
    assert served["of"] == "simulate.serve"
    assert served["ops"], "a served token can be followed down to its operators"
    cli("fit", "llama-3.1-8b", "--on", "H100")
    assert cli("explain", "last")["of"] == "fit"


def test_history(cli: Cli) -> None:
    assert cli("history") == {"schema": "gnomon.history/1", "runs": []}
    cli("fit", "llama-3.1-8b", "--on", "H100")
    answer = cli("history", "--limit", "5")
    check(answer, {"runs": [{"id": str, "kind": str, "saved_s": positive, "title": str}]})
    assert answer["runs"][0]["kind"] == "fit"


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "llama-3.1-8b", "--on", "H1000", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["message"] == "unknown chip 'H1000'"
    check(json.loads(out), {"error": {"message": str, "where": str, "hint": str}})
    assert err.count("\n") == 1


def test_same_question_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "serve", "llama-3.1-8b", "--on", "H100", *LOAD, "--requests", "40", "--json"]
    answers = []
    for _ in range(2):
        assert run(words) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_shares_are_shares(cli: Cli) -> None:
    answer = cli("simulate", "serve", "llama-3.1-8b", "--on", "H100", *LOAD, "--requests", "40")
    share(answer["busy_fraction"], "busy_fraction")
