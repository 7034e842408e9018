"""Plans of sequences that differ in length as files of every engine, and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.errors import InputError
from gnomon.load.training import job_of
from gnomon.spec.answers import TrainingReport
from gnomon.spec.training import TrainingLoad

SPREAD = "lognormal:mean=300,cv=1"
TRL = "trl sft --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --bf16 --output_dir out"


def simulated(**given: Any) -> TrainingReport:
    job: dict[str, Any] = {"on": "H100:8", "seq": 2048, "global_batch": 32, "lengths": SPREAD}
    return gnomon.simulate_training("llama-3.2-1b", **job | given)


def written(report: TrainingReport, to: str) -> tuple[dict[str, str], list[str]]:
    found = gnomon.export(report.plan, to=to)
    return dict(found.files), list(found.not_expressed)


def test_the_trainer_gets_the_documents_of_its_sequences(tmp_path: Path) -> None:
    report = simulated(engine="transformers", packing="bfd", seed=3)
    files, missing = written(report, "transformers")
    rows = [json.loads(line) for line in files["sequences.jsonl"].splitlines()]
    assert max(map(sum, rows)) <= 2048
    assert sum(map(len, rows)) / len(rows) > 3
    assert sum(map(sum, rows)) / len(rows) == pytest.approx(report.lengths["tokens_per_step"] / 32, rel=1e-6)
    training = yaml.safe_load(files["training.yaml"])
    assert {name: training[name] for name in ("packing", "lengths", "lengths_seed", "sequences")} == {
        "packing": "bfd", "lengths": SPREAD, "lengths_seed": 3, "sequences": "sequences.jsonl",
    }  # fmt: skip
    compile(files["train.py"], "train.py", "exec")
    assert not any("packing" in one for one in missing)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    again = gnomon.import_plan(tmp_path / "run.sh").plan
    assert isinstance(again.load, TrainingLoad)
    assert again.load.sequences is not None
    assert again.load.sequences.described == report.step.job.load.sequences.described


@pytest.mark.parametrize("packing", [None, "none", "max-length", "bfd", "padding-free"])
def test_a_run_has_as_many_steps_when_it_is_read_back(packing: str | None, tmp_path: Path) -> None:
    """A step of short sequences has fewer tokens than one of full ones."""
    report = simulated(engine="transformers", packing=packing, tokens=1e9)
    files, _ = written(report, "transformers")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    again = gnomon.import_plan(tmp_path / "run.sh").plan
    assert job_of(again).load.steps == report.step.job.load.steps


def test_samplers_are_named_where_there_are_some() -> None:
    grouped, _ = written(simulated(engine="transformers", sampling="group-by-length"), "transformers")
    assert yaml.safe_load(grouped["training.yaml"])["train_sampling_strategy"] == "group_by_length"
    balanced, missing = written(simulated(engine="transformers", sampling="balanced"), "transformers")
    assert yaml.safe_load(balanced["training.yaml"])["train_sampling_strategy"] == "random"
    assert any(one.startswith("balanced sampling: a sampler of your own") for one in missing)


def test_plans_are_for_engines_that_have_their_packing() -> None:
    assert simulated(engine="transformers", packing="padding-free").targets == ("transformers",)
    with pytest.raises(InputError, match=r"Megatron-LM 2026\.08 has no packing padding-free"):
        written(simulated(engine="transformers", packing="padding-free"), "megatron")


def test_equal_sequences_are_written_as_before() -> None:
    files, missing = written(simulated(engine="transformers", lengths=None), "transformers")
    assert "sequences.jsonl" not in files
    assert "train_sampling_strategy" not in yaml.safe_load(files["training.yaml"])
    assert not any("lognormal" in one for one in missing)


@pytest.mark.parametrize(
    ("given", "there", "absent", "said"),
    [
        ({"packing": "bfd"}, ("--sft", "SFTTokenizer", "DATA_PATH"), ("--mock-data",), "packed before"),
        ({"packing": "max-length"}, ("--sft",), ("--mock-data",), "one sequence"),
        ({"packing": "wrapped", "document_masking": True}, ("--dataloader-inter-document-masking", "--mock-data"),
         ("--sft ",), "with document masking: mock data have their own"),
        ({"packing": "wrapped"}, ("--mock-data",), ("--sft ", "--dataloader-inter"), "one after the other: mock data"),
    ],
    ids=str,
)  # fmt: skip
def test_megatron_is_told_what_its_sequences_are(
    given: dict[str, Any], there: tuple[str, ...], absent: tuple[str, ...], said: str
) -> None:
    files, missing = written(simulated(**given), "megatron")
    script = files["run.sh"].partition("set -euo")[2]
    assert all(word in script for word in there)
    assert not any(word in script for word in absent)
    assert any(said in one for one in missing)
    assert any(one.startswith(f"sequences of {SPREAD} tokens") for one in missing)


@pytest.mark.parametrize("engine", ["torchtitan", "deepspeed", "torch"])
def test_what_data_decide_is_listed(engine: str) -> None:
    zero = 3 if engine == "torchtitan" else 0
    _, missing = written(simulated(engine=engine, zero=zero, seed=2), "torchrun" if engine == "torch" else engine)
    assert f"sequences of {SPREAD} tokens, drawn with seed 2: your own data decide it" in missing
    assert any("wrapped packing" in one for one in missing) == (engine != "torchtitan")


IMPORTED: dict[str, dict[str, Any]] = {
    "--packing": {"packing": "bfd", "document_masking": True, "sampling": "random"},
    "--packing true --packing_strategy wrapped": {
        "packing": "wrapped", "document_masking": False, "sampling": "random",
    },
    "--padding_free": {"packing": "padding-free", "sampling": "random"},
    "--group_by_length": {"packing": "none", "sampling": "group-by-length"},
    "--train_sampling_strategy group_by_length --padding_free true": {
        "packing": "padding-free", "sampling": "group-by-length",
    },
    "": {"packing": "none", "sampling": "random"},
}  # fmt: skip


@pytest.mark.parametrize("words", IMPORTED)
def test_commands_say_how_batches_are_made(words: str) -> None:
    found = gnomon.import_plan(f"{TRL} {words}", on="H100:8", lengths=SPREAD)
    assert isinstance(found.plan.load, TrainingLoad)
    assert found.plan.load.sequences is not None
    from gnomon.load.training import job_of

    settled = job_of(found.plan).load.sequences
    assert settled is not None
    assert settled.described == {"lengths": SPREAD} | IMPORTED[words]


def test_lengths_that_a_command_does_not_say_are_noted() -> None:
    found = gnomon.import_plan(f"{TRL} --packing", on="H100:8")
    assert isinstance(found.plan.load, TrainingLoad)
    assert found.plan.load.sequences is None
    (noted,) = [one for one in found.ignored if "packing" in one.option]
    assert noted.affects
    assert "--lengths says how long they are" in noted.why
    rebalanced = gnomon.import_plan(f"{TRL} --train_sampling_strategy batch_rebalance", on="H100:8", lengths=SPREAD)
    assert any("as many sequences in every micro-batch" in one.why for one in rebalanced.ignored)


def test_a_server_has_no_lengths_to_train_on() -> None:
    with pytest.raises(InputError, match="--lengths: only commands that train"):
        gnomon.import_plan("vllm serve meta-llama/Llama-3.1-8B-Instruct", on="H100", lengths=SPREAD)


def test_megatrons_masking_is_read_back() -> None:
    files, _ = written(simulated(packing="wrapped", document_masking=True), "megatron")
    script = files["run.sh"]
    found = gnomon.import_plan(script, lengths=SPREAD)
    assert isinstance(found.plan.load, TrainingLoad)
    assert found.plan.load.sequences is not None
    assert found.plan.load.sequences.document_masking
    assert found.plan.load.sequences.packing == "wrapped"
