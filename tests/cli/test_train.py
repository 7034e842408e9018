"""The training commands: flags reach the functions, files are checked before the work, wrong words are one line."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.cli.fakes import Calls, install
from tests.words import replaced

from gnomon.cli.run import run

STEP = "simulate train m --on H100:64 --seq 4k --global-batch 1,024"
PLAN = "plan train m --cluster H100:64 --seq 4k --global-batch 1,024"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    install(monkeypatch, calls)
    return calls


RUN = (
    " --failures 2e-5/gpu-hour --checkpoint-to shared:100GB/s --checkpoint-every 30min --checkpoint-mode lazy"
    " --spares 4 --detection-time 2min --restart-time 90s --repair-time 2d --grid FR"
    " --lengths lognormal:mean=700,cv=1.2 --packing bfd --sampling balanced --document-masking --seed 3"
)
RUN_FIELDS = {
    "failures": "2e-5/gpu-hour",
    "checkpoint_to": "shared:100GB/s",
    "checkpoint_every": "30min",
    "checkpoint_mode": "lazy",
    "spares": "4",
    "detection_time_s": 120.0,
    "restart_time_s": 90.0,
    "repair_time_s": 172800.0,
    "grid": "FR",
    "lengths": "lognormal:mean=700,cv=1.2",
    "packing": "bfd",
    "sampling": "balanced",
    "document_masking": True,
    "seed": 3,
}


def test_simulate_train_passes_every_flag(calls: Calls) -> None:
    words = f"{STEP} --micro-batch 2 --tp 4 --pp 2 --vp 3 --cp 1 --ep 1 --dp 8 --zero 2 --schedule interleaved"
    words += " --cp-comm a2a --expert-tp 1 --layers-per-stage 1,2,3 --dp-shard 4 --tp-overlap --cp-a2a 2 --hpz 8"
    words += " --fp8-param-gather --bf16-layers 1,1"
    words += " --dispatch deepep --capacity-factor 1.5 --pad-to-capacity --imbalance 1.2 --ep-overlap"
    words += " --cuda-graphs"
    words += " --with checkpoints --with vocabulary-parallel:barriers=2"
    words += " --images 2 --image 640x480 --source 7 --freeze vision --mtp-layers 1"
    words += (
        " --recompute full --optimizer adamw-bf16 --engine megatron@3.0 --dtype bf16 --tokens 300B --power-limit 0.4kW"
    )
    assert run([*f"{words}{RUN}".split(), "--no-sequence-parallel"]) == 0
    ((name, (question,), _),) = calls.made
    assert name == "simulate_training"
    degrees = {"tp": 4, "pp": 2, "vp": 3, "cp": 1, "ep": 1, "dp": 8}
    assert asdict(question) == degrees | RUN_FIELDS | {
        "model": "m",
        "on": "H100:64",
        "seq": 4000,
        "global_batch": 1024,
        "micro_batch": 2,
        "zero": 2,
        "schedule": "interleaved",
        "recompute": "full",
        "optimizer": "adamw-bf16",
        "sequence_parallel": False,
        "cp_comm": "a2a",
        "expert_tp": 1,
        "layers_per_stage": "1,2,3",
        "dp_shard": 4,
        "tp_overlap": True,
        "cp_a2a": 2,
        "hpz": 8,
        "fp8_param_gather": True,
        "bf16_layers": "1,1",
        "dispatch": "deepep",
        "capacity_factor": 1.5,
        "pad_to_capacity": True,
        "imbalance": 1.2,
        "ep_overlap": True,
        "cuda_graphs": True,
        "dtype": "bf16",
        "engine": "megatron@3.0",
        "tokens": 300e9,
        "techniques": ("checkpoints", "vocabulary-parallel:barriers=2"),
        "power_limit_w": 400.0,
        "images": 2,
        "image": "640x480",
        "source": 7,
        "freeze": "vision",
        "mtp_layers": 1,
    }


def test_defaults_of_simulate_train(calls: Calls) -> None:
    assert run(STEP.split()) == 0
    named = asdict(calls.made[0][1][0])
    assert (named["tp"], named["dp"], named["zero"], named["schedule"]) == (1, None, 0, None)
    assert (named["recompute"], named["optimizer"], named["engine"]) == (None, "adamw", "megatron")
    assert named["sequence_parallel"] is True
    assert named["tokens"] is None


def test_plan_train_passes_every_flag(calls: Calls) -> None:
    words = f"{PLAN} --tokens 1.5T --optimizer adamw-bf16 --dtype bf16 --engine torch --with auto --power-limit 400W"
    words += " --images 2 --image 640x480 --source 7 --freeze vision --mtp-layers 1"
    words += " --objective longest-context --longest-context --deadline 30d --budget 1.5M$"
    words += " --fp8-param-gather --bf16-layers 1,1"
    assert run(f"{words}{RUN}".split()) == 0
    ((name, (question,), _),) = calls.made
    assert name == "plan_training"
    assert asdict(question) == RUN_FIELDS | {
        "model": "m",
        "cluster": "H100:64",
        "seq": 4000,
        "global_batch": 1024,
        "tokens": 1.5e12,
        "optimizer": "adamw-bf16",
        "dtype": "bf16",
        "fp8_param_gather": True,
        "bf16_layers": "1,1",
        "engine": "torch",
        "techniques": ("auto",),
        "power_limit_w": 400.0,
        "images": 2,
        "image": "640x480",
        "source": 7,
        "freeze": "vision",
        "mtp_layers": 1,
        "objective": "longest-context",
        "deadline_s": 30 * 86400.0,
        "budget_usd": 1.5e6,
        "fewest_gpus": False,
        "longest_context": True,
    }


USAGE = [
    ("simulate train", "missing argument 'MODEL'"),
    ("simulate train m", "missing option '--on'"),
    ("simulate train m --on H100:8 --global-batch 8", "missing option '--seq'"),
    ("simulate train m --on H100:8 --seq 8", "missing option '--global-batch'"),
    (f"{STEP} --zero 4", "--zero: '4' is more than 3"),
    (f"{STEP} --zero -1", "--zero: '-1'"),
    (f"{STEP} --schedule 1fib", "--schedule: unknown schedule '1fib'. Near: 1f1b."),
    (f"{STEP} --recompute some", "--recompute: unknown recomputation 'some'. Near: none."),
    (f"{STEP} --optimizer sgdm", "--optimizer: unknown optimizer 'sgdm'. Near: sgd"),
    (
        f"{STEP} --engine vllm",
        "--engine: vllm does not train. Engines that do: megatron, torch, torchtitan, deepspeed, transformers.",
    ),
    (f"{STEP} --engine megatorn", "--engine: unknown engine 'megatorn'. Near: megatron"),
    (f"{STEP} --engine megatron@1", "--engine: unknown version of megatron '1'"),
    (f"{STEP} --dtype fp7", "--dtype: unknown number format 'fp7'"),
    (f"{STEP} --tokens 0", "--tokens: '0' is not above zero"),
    (f"{STEP} --tokens -5", "--tokens: '-5'"),
    (f"{STEP} --tokens lots", "--tokens: 'lots' is not a count such as 300e9"),
    (f"{STEP} --spares 2", "--spares: does nothing without --failures"),
    (f"{STEP} --failures default", "--failures: does nothing without --tokens"),
    (f"{STEP} --checkpoint-mode lasy", "--checkpoint-mode: unknown checkpoint mode 'lasy'. Near: lazy"),
    (f"{STEP} --repair-time 3", "--repair-time: '3' has no unit"),
    (f"{STEP} --seq 0", "--seq: '0' is not a positive whole number"),
    (f"{STEP} --global-batch 1.5", "--global-batch: '1.5' is not a positive whole number"),
    (f"{STEP} --micro-batch 1e99", "--micro-batch: '1e99'"),
    (f"{STEP} --tp two", "--tp: 'two'"),
    (f"{STEP} --rate 4", "no such option: --rate"),
    (f"{STEP} --kv-dtype fp8", "no such option: --kv-dtype"),
    (f"{STEP} --memory-out x.txt", "--memory-out: 'x.txt' does not end in .csv, .svg or .png"),
    (f"{STEP} --memory-out none/x.csv", "--memory-out: 'none/x.csv' cannot be written"),
    (f"{STEP} --trace-out none/x.json", "--trace-out: 'none/x.json' cannot be written"),
    (f"{STEP} --trace-out x.csv --memory-out ./x.csv", "--memory-out: './x.csv' is also the file of --trace-out"),
    ("plan train m --seq 8 --global-batch 8", "missing option '--cluster'"),
    (f"{PLAN} --engine vllm", "--engine: vllm does not train"),
    (f"{PLAN} --optimizer adam", "--optimizer: unknown optimizer 'adam'. Near: adamw"),
    (f"{PLAN} --tokens nan", "--tokens: 'nan'"),
    (f"{PLAN} --tp 8", "no such option: --tp"),
    (f"{PLAN} --slo ttft_p90=1s", "no such option: --slo"),
]


@pytest.mark.parametrize(("words", "expected"), USAGE)
def test_wrong_words(words: str, expected: str, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(replaced(words).split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert expected in err
    assert calls.made == []


@pytest.mark.parametrize("words", [STEP, PLAN])
@pytest.mark.parametrize("flag", ["--dtype", "--engine", "--optimizer"])
def test_empty_words(words: str, flag: str, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words.split(), flag, " "]) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag}: is empty")
    assert calls.made == []


@pytest.mark.parametrize("kind", ["svg", "png", "PNG"])
def test_drawing_needs_its_extra_before_the_work(
    kind: str, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run([*STEP.split(), "--memory-out", str(tmp_path / f"m.{kind}")]) == 2
    assert "pip install 'gnomon[plot]'" in capsys.readouterr().err
    assert calls.made == []


def test_help_lists_every_name() -> None:
    from gnomon.spec.questions.training import NAMES, SimulateTrainingQuestion

    flags = SimulateTrainingQuestion.flags()
    for field, (_, names) in NAMES.items():
        assert all(name in flags[field].help for name in names)


@pytest.mark.parametrize("words", ["simulate train --help", "plan train --help"])
def test_help_of_the_training_commands(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--global-batch B" in text
    assert "megatron, torch, torchtitan, deepspeed or transformers" in text


def test_export_chooses_the_target_of_the_plans_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from dataclasses import replace

    from tests.report.answers import a_training_plan

    from gnomon.load.plan import write_plan
    from gnomon.spec import EngineChoice, Strategy

    plan = replace(a_training_plan(), model="llama-2-13b", dtype="bf16", strategy=Strategy(tp=8, pp=2, vp=2, dp=2))
    torch = EngineChoice(name="torch", settings={"micro_batch": 1})
    small = replace(plan, model="llama-3.2-1b", strategy=Strategy(dp=8), engine=torch)
    for file, chosen, expected in (("a.yaml", plan, "pretrain_gpt.py"), ("b.yaml", small, "gnomon.engines.torch")):
        write_plan(chosen, tmp_path / file)
        assert run(["export", str(tmp_path / file)]) == 0
        assert expected in capsys.readouterr().out
