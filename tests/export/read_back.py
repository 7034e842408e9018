"""Deployments read back from what an export starts: from the words of its processes alone, never from plan.yaml."""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.export.strict_kubernetes import check_documents

import gnomon
from gnomon.load import model as load_model
from gnomon.spec.answers import Fit, Prediction

VARIABLES = {"CUDA_VISIBLE_DEVICES": "NVIDIA", "HIP_VISIBLE_DEVICES": "AMD", "ZE_AFFINITY_MASK": "Intel"}
RESOURCES = {"nvidia.com/gpu": "NVIDIA", "amd.com/gpu": "AMD"}
IMAGES = {"vllm/vllm-openai": "NVIDIA", "vllm/vllm-openai-rocm": "AMD"}
SETTINGS = (
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size",
    "decode_context_parallel_size", "async_scheduling", "enforce_eager", "enable_prefix_caching",
    "max_cudagraph_capture_size",
)  # fmt: skip
Parse = Callable[[Sequence[str]], Any]
"""From the words behind `vllm serve` to a namespace with vLLM's names; what it does not know ends it."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """What a stand-in for a program was called with on one node."""

    words: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def vendor(self) -> str:
        return next(VARIABLES[name] for name in VARIABLES if name in self.environment)

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(int(at) for at in self.environment[_variable(self.environment)].split(","))


def _variable(environment: Mapping[str, str]) -> str:
    (found,) = (name for name in VARIABLES if name in environment)
    return found


STAND_IN = """#!/bin/bash
mkdir "$SEEN/$$"
printf '%s\\0' "$@" > "$SEEN/$$/words"
env -0 > "$SEEN/$$/environment"
[ "$PPID" = "$CALLER" ] || sleep 0.7
"""
"""Notes its words and its environment. One of several, which end together, stays until the others have done so too."""


def run_script(script: str, folder: Path, program: str, *arguments: str, **environment: str) -> list[Process]:
    """Run a script with a stand-in for the program it starts; one process a call of it."""
    seen = folder / "seen"
    seen.mkdir(parents=True)
    stand_in = folder / program
    stand_in.write_text(STAND_IN)
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    (folder / "script.sh").write_text(script)
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    kept |= {"PATH": f"{folder}:{os.environ['PATH']}", "SEEN": str(seen), "CALLER": str(os.getpid())}
    words = ["bash", str(folder / "script.sh"), *arguments]
    done = subprocess.run(
        words, env=kept | environment, capture_output=True, text=True, timeout=60, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return [_process(place) for place in sorted(seen.iterdir(), key=lambda place: int(place.name))]


def _process(place: Path) -> Process:
    words, variables = ((place / name).read_text().split("\0")[:-1] for name in ("words", "environment"))
    return Process(words=tuple(words), environment=dict(line.split("=", 1) for line in variables))


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """One replica as its launch command says it."""

    model: str
    chips: int
    words: Mapping[str, Any]
    """What `predict` and `fit` take beside the model and the chips."""

    def fit(self, chip: str) -> Fit:
        return gnomon.fit(self.model, on=f"{chip}:{self.chips}", **self.words)

    def predict(self, chip: str) -> Prediction:
        phase = "prefill" if load_model(self.model).kind == "encoder" else "decode"
        step = {"tokens": 64} if phase == "prefill" else {"context": 512}
        return gnomon.predict(
            self.model, on=f"{chip}:{self.chips}", phase=phase, batch=2 * self.words["dp"], **step, **self.words
        )


def deployed(read: Any, chips: int) -> Deployed:
    """A replica from the namespace that vLLM's parser, or ours, made of its words."""
    model = load_model(read.model_tag)
    wide = {"bfloat16": "bf16", "float16": "fp16"}
    settings = {name: getattr(read, name) for name in SETTINGS if getattr(read, name, None) is not None}
    if read.enforce_eager:
        settings.pop("max_cudagraph_capture_size", None)
    tp, dp = read.tensor_parallel_size, read.data_parallel_size
    words = {
        "dtype": read.quantization or wide.get(read.dtype) or model.dtype,
        "kv_dtype": read.kv_cache_dtype if read.kv_cache_dtype != "auto" else None,
        "engine": "vllm",
        "tp": tp,
        "pp": read.pipeline_parallel_size,
        "dp": dp,
        "ep": tp * dp if read.enable_expert_parallel else 1,
        "settings": settings,
    }
    return Deployed(model=read.model_tag, chips=chips, words=words)


def our_parser() -> Parse:
    """A small reader of `vllm serve`: only the options that may be written, each with a value of its kind."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    parser.add_argument("model_tag")
    whole = (
        "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--nnodes", "--port",
        "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--block-size", "--node-rank",
        "--decode-context-parallel-size", "--max-cudagraph-capture-size",
    )  # fmt: skip
    ones = {"--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--nnodes"}
    for flag in whole:
        parser.add_argument(flag, type=int, default=1 if flag in ones else None)
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--quantization", choices=["fp8"])
    parser.add_argument("--kv-cache-dtype", choices=["auto", "fp8"], default="auto")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float16"], default="auto")
    parser.add_argument("--master-addr")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--enable-expert-parallel", action="store_true")
    for flag in ("--async-scheduling", "--enable-prefix-caching", "--enforce-eager"):
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=False if "eager" in flag else None)
    return parser.parse_args


def read_kubernetes(text: str, parse: Parse) -> tuple[Deployed, int, str, str]:
    """The replica of a manifest, how many there are, the vendor of its chips, and what the node selector asks for."""
    documents = list(yaml.safe_load_all(text))
    check_documents(documents)
    deployment = next(document for document in documents if document["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ((resource, chips),) = container["resources"]["limits"].items()
    image, _, tag = container["image"].partition(":")
    assert tag == "v0.24.0"
    assert RESOURCES[resource] == IMAGES[image]
    assert container["command"] == ["vllm", "serve"]
    words = [word.replace("$$(", "$(") for word in container["args"]]
    selector = pod.get("nodeSelector", {}).get("nvidia.com/gpu.product", "")
    return deployed(parse(words), chips), deployment["spec"]["replicas"], IMAGES[image], selector
