"""Export, then import, gives the same training plan: from run.sh, from the Slurm job, under every target."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.export.training import plan_for
from tests.export.training_battery import MODELS, canonical, imported, plans_of

import gnomon
from gnomon.engines import training_targets
from gnomon.errors import InputError
from gnomon.export import target
from gnomon.spec.imported import UNMODELLED

PLANS = 30
CASES = [(name, model) for name, models in MODELS.items() for model in models]


def test_every_target_is_in_the_battery() -> None:
    assert set(MODELS) == set(training_targets())
    assert all(len(models) == 10 for models in MODELS.values())


@pytest.mark.heavy
@pytest.mark.battery(20)
@pytest.mark.parametrize(("name", "model"), CASES)
def test_files_come_back_as_their_plan(name: str, model: str, tmp_path: Path) -> None:
    for place, plan in enumerate(plans_of(name, model, 2026, PLANS)):
        found = imported(plan, name, tmp_path / str(place))
        assert canonical(found.plan) == canonical(plan)
        assert not [one for one in found.ignored if one.affects and "known here" in one.why]


@pytest.mark.parametrize("name", training_targets())
def test_the_slurm_job_and_another_chip(name: str, tmp_path: Path) -> None:
    plan = plan_for(name, chips=16)
    first = imported(plan, name, tmp_path)
    assert imported(plan, name, tmp_path, "slurm.sh").plan == first.plan
    if name == "torchrun":  # which is given its plan as a file
        return
    other = gnomon.import_plan(tmp_path / "run.sh", on="A100-SXM-80GB:16")
    assert (other.plan.chip, other.plan.chips) == ("A100-SXM-80GB", 16)
    with pytest.raises(InputError, match="8 chips are not the 16 that it starts on"):
        gnomon.import_plan(tmp_path / "run.sh", on="A100-SXM-80GB:8")


@pytest.mark.parametrize("name", training_targets())
def test_what_is_imported_is_exported_alike(name: str, tmp_path: Path) -> None:
    """The files of a plan that was read from files are those files, but for the plan's own name."""
    plan = plan_for(name)
    found = imported(plan, name, tmp_path)
    again, before = (target(name).render(each).files for each in (found.plan, plan))
    for file in before:
        if file != "plan.yaml" and file != "slurm.sh":
            assert again[file].replace("Gnomon plan:", "Gnomon plan plan-1:") == before[file], file
    assert found.command == shlex.join(target(name).words(plan))


def test_a_script_that_starts_nothing_says_what_could_be_read(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo hello\n")
    with pytest.raises(InputError, match=r"starts no server of vLLM .* and no training under Megatron-LM or PyTorch"):
        gnomon.import_plan(tmp_path / "run.sh")


@pytest.mark.parametrize("name", ["megatron", "deepspeed"])
def test_a_shape_names_its_model(name: str, tmp_path: Path) -> None:
    """Without the line that names the plan, the model is found by its sizes, and the chips have to be said."""
    imported(plan_for(name), name, tmp_path)
    script = tmp_path / "run.sh"
    script.write_text("\n".join(line for line in script.read_text().splitlines() if "Gnomon plan" not in line))
    with pytest.raises(InputError, match="nothing says which chips"):
        gnomon.import_plan(script)
    found = gnomon.import_plan(script, on="H200")
    assert found.plan.model == "llama-3.1-8b"
    assert any(one.option == "the shape of llama-3.1-8b" and "llama-3-8b" in one.why for one in found.ignored)
    with pytest.raises(InputError, match=r"with layers 32, and llama-3.1-70b has 80"):
        gnomon.import_plan(script, on="H200", model="llama-3.1-70b")


def test_what_is_not_priced_is_said(tmp_path: Path) -> None:
    found = imported(plan_for("deepspeed"), "deepspeed", tmp_path)
    assert not [one for one in found.ignored if one.affects]
    script = tmp_path / "run.sh"
    script.write_text(script.read_text().replace("--no-pipeline-parallel", "--sequence-parallel"))
    (noted,) = [one for one in gnomon.import_plan(script).ignored if one.affects]
    assert noted.option == "engine.settings.sequence_parallel"
    assert noted.why.startswith(UNMODELLED)
