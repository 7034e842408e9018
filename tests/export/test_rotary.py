"""The rotary embedding of a network in the files of every training engine that writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.export.training import a_training_plan

from gnomon.export import target
from gnomon.load import config_of
from gnomon.spec import EngineChoice

OTHER = {"intermediate_size": 14080, "rope_theta": None, "rope_scaling": None}
"""A Llama of sizes that no registry has."""
WRITTEN = {
    "deepspeed": r"--rotary-position-embeddings-theta (\S+)",
    "megatron": r"--rotary-base (\S+)",
    "torchtitan": r"theta=([\d.]+)",
}
PARAMETERS: dict[str, tuple[dict[str, Any], float, dict[str, str]]] = {
    "transformers 5": ({"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}, 500000, {}),
    "transformers 4": ({"rope_theta": 500000.0}, 500000, {}),
    "scaled": (
        {"rope_parameters": {"rope_theta": 70000, "rope_type": "llama3", "factor": 8.0}},
        70000,
        {"deepspeed": "rotary embeddings of type 'llama3'"},
    ),
    "a type that none has": (
        {"rope_theta": 70000, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        70000,
        dict.fromkeys(WRITTEN, "rotary embeddings of type 'yarn'"),
    ),
    "by kind of layer": (
        {"rope_theta": 70000, "rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}}},
        70000,
        dict.fromkeys(WRITTEN, "rotary embeddings of type 'several, by kind of layer'"),
    ),
}


@pytest.mark.parametrize("case", PARAMETERS)
@pytest.mark.parametrize("engine", WRITTEN)
def test_the_base_is_written_and_scaling_is_told(engine: str, case: str, tmp_path: Path) -> None:
    fields, base, told = PARAMETERS[case]
    (tmp_path / "config.json").write_text(json.dumps({**config_of("llama-3.1-8b"), **OTHER, **fields}))
    plan = a_training_plan(model=str(tmp_path), engine=EngineChoice(name=engine))
    found = target(engine).render(plan)
    written = re.search(WRITTEN[engine], "\n".join(found.files.values()))
    assert written
    assert float(written[1]) == base
    assert [line for line in found.not_expressed if "rotary" in line] == ([told[engine]] if engine in told else [])
