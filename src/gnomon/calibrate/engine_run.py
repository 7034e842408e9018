"""An engine started with dummy weights on this machine, and its own share of a step measured."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gnomon.calibrate.collect import torch_module
from gnomon.calibrate.engine import measure
from gnomon.calibrate.engine_fit import overheads, overheads_file
from gnomon.calibrate.readers.engine_steps import SCHEMA as ROWS
from gnomon.engines.own import check_figures
from gnomon.engines.torch.eager.lower import OWN
from gnomon.errors import CalibrationError, InputError, MissingExtraError
from gnomon.load import config_of
from gnomon.load.chips import chip as find_chip

CONTEXT = 16384
BATCHES = (1, 8)
STEPS, CACHED = 40, 128
HOST_BOUND = 1.15
"""Steps this much longer than their kernels wait for the host."""
Tell = Callable[[str], None]


def host() -> str:
    """The machine that runs the engine's Python."""
    return f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, Python {platform.python_version()}"


def config(model: str) -> dict[str, Any]:
    found = config_of(model)
    if not found:
        hint = "Give a folder with the config.json of such a network."
        raise InputError("holds shapes only, and an engine needs a config.json", where="--model", hint=hint)
    return found


def vllm(model: str, tell: Tell) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measured steps of vLLM, and the overheads fitted to them."""
    from gnomon.engines.vllm.runner import VllmRunner, versions

    shapes, torch = config(model), torch_module()
    context = min(CONTEXT, int(shapes.get("max_position_embeddings") or CONTEXT))
    tell("starting vllm with dummy weights")
    with VllmRunner(shapes, {"max_model_len": context}) as runner:
        tell("measuring prompts, decodes and both together")
        rows = measure(runner, model)
    data = {
        "schema": ROWS,
        "engine": "vllm",
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(),
        "host": host(),
        "max_model_len": context,
        "models": {model: shapes},
        "rows": rows,
    }
    tell("fitting")
    return data, overheads(data, find_chip(str(torch.cuda.get_device_name(0))))


def transformers(model: str, tell: Tell) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decode steps of the published code, launched kernel by kernel and as one graph, and what a launch costs."""
    try:
        import transformers as library
    except ImportError:
        raise MissingExtraError("transformers", "torch", "measuring it") from None
    shapes, torch = config(model), torch_module()
    tell("making the model with random weights")
    with torch.no_grad():
        network = network_of(torch, library, shapes)
        rows = [_steps(torch, library, network, batch, tell) for batch in BATCHES]
    data = {
        "schema": ROWS,
        "engine": "transformers",
        "date": time.strftime("%Y-%m-%d"),
        "versions": {"transformers": str(library.__version__), "torch": str(torch.__version__)},
        "host": host(),
        "models": {model: shapes},
        "rows": rows,
    }
    return data, launches(data)


def launches(data: Mapping[str, Any], where: str = "the measured steps") -> dict[str, Any]:
    """Host seconds of a kernel from steps that waited for the host, and of starting a graph."""
    bound = [row for row in data["rows"] if row["step_s"] > HOST_BOUND * row["device_s"]]
    if not bound:
        message = "no step waited for the host, so nothing is known of its launches"
        raise CalibrationError(message, where=where, hint="Choose a smaller --model.")
    each = [row["step_s"] / row["kernels"] for row in bound]
    graphs = [row["graph_launch_s"] for row in data["rows"] if row.get("graph_launch_s")]
    figures = {"call_us": round(float(np.median(each)) * 1e6, 2)}
    if graphs:
        figures["graph_us"] = round(float(np.median(graphs)) * 1e6, 2)
    return overheads_file(data, {"eager": check_figures(figures, "eager", OWN, where, optional=("graph_us",))})


def _steps(torch: Any, library: Any, network: Any, batch: int, tell: Tell) -> dict[str, Any]:
    """One batch: seconds from step to step, seconds of its kernels alone, and how many there are."""
    tell(f"measuring steps of {batch} sequences")
    step = step_of(torch, library, network, batch)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    taken = (time.perf_counter() - start) / STEPS
    kernels, busy = _kernels(torch, step)
    row = {"kind": "decode", "sequences": batch, "context": CACHED, "step_s": taken, "kernels": kernels}
    return row | {"device_s": busy} | _graph(torch, step)


def network_of(torch: Any, library: Any, shapes: Mapping[str, Any]) -> Any:
    """The published code of a model on the GPU, with random weights."""
    settings = library.AutoConfig.for_model(**shapes)
    return library.AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16).to(device="cuda").eval()


def step_of(torch: Any, library: Any, network: Any, batch: int) -> Callable[[], Any]:
    """One new token of every sequence over a cache of fixed size, always at the same place."""
    cache = library.StaticCache(config=network.config, max_cache_len=2 * CACHED, max_batch_size=batch)
    words = torch.zeros(batch, CACHED, dtype=torch.long, device="cuda")
    places = torch.arange(CACHED, device="cuda")
    network(words, past_key_values=cache, cache_position=places, use_cache=True)
    last, place = words[:, :1].clone(), torch.full((1,), CACHED, device="cuda", dtype=torch.long)
    return lambda: network(last, past_key_values=cache, cache_position=place, use_cache=True)


def _kernels(torch: Any, step: Callable[[], Any]) -> tuple[int, float]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    ran = [event for event in seen.events() if str(event.device_type).endswith("CUDA")]
    return max(1, len(ran)), sum(float(event.device_time) for event in ran) * 1e-6


def _graph(torch: Any, step: Callable[[], Any]) -> dict[str, Any]:
    """The step captured: seconds of a replay, and of the host to start it. Not every network can be captured."""
    try:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as reason:
        torch.cuda.synchronize()
        return {"graph": str(reason).splitlines()[0][:160]}
    starts, whole = [], []
    for _ in range(STEPS):
        start = time.perf_counter()
        graph.replay()
        starts.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        whole.append(time.perf_counter() - start)
    return {"graph_s": float(np.median(whole)), "graph_launch_s": float(np.median(starts))}


ENGINES = {"vllm": vllm, "transformers": transformers}
