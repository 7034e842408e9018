"""Training plans for the export tests, and what their scripts really start."""

from __future__ import annotations

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


def started(script: str, folder: Path, *extra: str, **environment: str) -> dict[str, Any]:
    """The words and variables a stand-in for torchrun is called with by a script; nothing else is on its way."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "torchrun"
    seen = "{'words': sys.argv[1:], 'queues': os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS')}"
    program.write_text(f"#!/usr/bin/env python3\nimport json, os, sys\nprint(json.dumps({seen}))\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "run.sh").write_text(script)
    kept = {
        name: value for name, value in os.environ.items() if name not in ("MASTER_ADDR", "NODE_RANK", "MASTER_PORT")
    }
    variables = kept | {"PATH": f"{folder}:{os.environ['PATH']}"} | environment
    words = ["bash", str(folder / "run.sh"), *extra]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=20, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
