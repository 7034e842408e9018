"""Training plans for the export tests, and what their scripts really start."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.spec import EngineChoice, Plan, Recipe, Strategy, TrainingLoad


def a_training_plan(recipe: Recipe = Recipe(), **changes: Any) -> Plan:  # noqa: B008 - frozen
    base: dict[str, Any] = {
        "id": "plan-1",
        "model": "llama-3.1-8b",
        "chip": "H200-SXM-141GB",
        "replicas": 1,
        "strategy": Strategy(tp=2, dp=4),
        "dtype": "bf16",
        "engine": EngineChoice(name="megatron"),
        "load": TrainingLoad(seq=4096, global_batch=64),
    }
    plan = Plan(**base | changes)
    return replace(plan, engine=replace(plan.engine, settings=recipe.settings))


DATA_ALONE = ("transformers",)
"""Targets that train with data parallelism alone."""


def plan_for(name: str, chips: int = 8, **changes: Any) -> Plan:
    """A plan that a target takes, on so many chips."""
    strategy = Strategy(dp=chips) if name in DATA_ALONE else Strategy(tp=2, dp=chips // 2)
    small = {"recompute": "full", "optimizer": "adamw-bf16"} if name in DATA_ALONE else {}
    recipe = Recipe(sequence_parallel=name != "deepspeed", **small)
    return a_training_plan(recipe, **{"strategy": strategy} | changes)


def own_arguments(script: str) -> set[str]:
    """Arguments of an exported train.py beside the Trainer's."""
    return {
        node.target.id
        for cls in ast.walk(ast.parse(script))
        if isinstance(cls, ast.ClassDef) and cls.name == "RunArguments"
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def started(script: str, folder: Path, *extra: str, **environment: str) -> dict[str, Any]:
    """The words and variables a stand-in for a launcher is called with by a script; nothing else is on its way."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = "{'words': sys.argv[1:], 'queues': os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS')}"
    for name in ("torchrun", "accelerate"):
        program = folder / name
        program.write_text(f"#!/usr/bin/env python3\nimport json, os, sys\nprint(json.dumps({seen}))\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "run.sh").write_text(script)
    kept = {
        name: value for name, value in os.environ.items() if name not in ("MASTER_ADDR", "NODE_RANK", "MASTER_PORT")
    }
    variables = kept | {"PATH": f"{folder}:{os.environ['PATH']}", "DATA_PATH": "tokens"} | environment
    words = ["bash", str(folder / "run.sh"), *extra]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=20, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
