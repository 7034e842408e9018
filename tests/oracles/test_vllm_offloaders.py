"""What vLLM's own offloaders take of small modules, run from its source without a GPU, beside ours.

The classes want an accelerator: they run here with CPU tensors that claim to be on one, and with streams and events
that do nothing. Weights are views of one number, so that layers of any size take no memory.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gnomon.engines.vllm.weight_offload import Layers, device_bytes, offloaded, parameters
from gnomon.engines.vllm.weights import stages
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Strategy

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.oracle

UVA_BYTES = (0.001, 0.4, 1.0, 2.5, 3.999, 8.0, 14.9, 60.0)
GROUPS = ((4, 1, 1), (8, 3, 2), (24, 1, 1), (1, 1, 4), (5, 5, 3))
MODELS = ("qwen2.5-7b", "qwen2.5-0.5b", "llama-3.1-8b", "mixtral-8x7b", "qwen3-30b-a3b")


class Accelerator:
    """`torch` as the offloaders see it: no tensor is on the host, and copies are done when they are asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        stream = SimpleNamespace(
            wait_event=lambda event: None, wait_stream=lambda other: None, record_event=lambda event: None
        )
        self.cuda = SimpleNamespace(
            Stream=lambda: stream,
            Event=lambda: SimpleNamespace(record=lambda stream: None),
            current_stream=lambda: stream,
            is_current_stream_capturing=lambda: False,
            stream=lambda stream: _Nothing(),
        )
        note = self.calls.append
        self.ops = SimpleNamespace(
            vllm=SimpleNamespace(
                wait_prefetch=lambda tensor, layer: note(("wait", layer)),
                start_prefetch=lambda tensor, layer: note(("start", layer)),
            )
        )

    def device(self, name: str) -> str:
        return f"not {name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def source(name: str) -> Path:
    found = importlib.util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("vLLM is not installed")
    return Path(found.submodule_search_locations[0], "model_executor", name)


def classes(name: str, accelerator: Accelerator) -> dict[str, Any]:
    """All classes of a file of the offloader, with what they import from the rest of vLLM replaced."""
    tree = ast.parse(source(f"offloader/{name}.py").read_text())
    tree.body = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    from abc import ABC, abstractmethod
    from collections.abc import Generator
    from dataclasses import dataclass

    quiet = SimpleNamespace(info=lambda *a: None, debug=lambda *a: None, info_once=lambda *a: None)
    found: dict[str, Any] = {
        "torch": accelerator, "nn": torch.nn, "logger": quiet, "ABC": ABC, "abstractmethod": abstractmethod,
        "Generator": Generator, "dataclass": dataclass, "Any": Any, "BaseOffloader": object, "format_gib": str,
        "should_pin_memory": lambda: False, "is_uva_available": lambda: True,
        "envs": SimpleNamespace(VLLM_WEIGHT_OFFLOADING_DISABLE_UVA=False),
        "get_accelerator_view_from_cpu_tensor": lambda tensor: tensor,
        "get_dtype_size": lambda dtype: dtype.itemsize,
    }  # fmt: skip
    code = compile("from __future__ import annotations\n" + ast.unparse(tree), name, "exec")
    exec(code, found)
    return found


class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A layer with parameters of these names and bytes, in 16 bits; of all values, or views of one."""

    def __init__(self, wanted: list[tuple[str, float]], *, held: bool = False) -> None:
        super().__init__()
        for name, size in wanted:
            at = self
            *path, last = name.split(".")
            for part in path:
                if not hasattr(at, part):
                    at.add_module(part, torch.nn.Module())
                at = getattr(at, part)
            values = torch.empty(int(size / 2) if held else 1, dtype=torch.bfloat16).expand(int(size / 2))
            at.register_parameter(last, torch.nn.Parameter(values, requires_grad=False))

    def forward(self, hidden: Any) -> Any:
        return hidden


def ours(name: str, settings: dict[str, Any]) -> tuple[Layers, float, list[list[tuple[str, float]]]]:
    """What we take of a network, the bytes that its chip has less, and all parameters of each layer."""
    _, deployment = deploy(
        load_model(name), parse_pool("H200:1"), strategy=Strategy(), dtype="bf16", kv_dtype="bf16", settings=settings
    )
    (stage,) = stages(deployment.model, 1)
    every = [parameters(layer, deployment.model, deployment.strategy) for layer in stage.layers]
    named = [[(one.name, one.bytes) for one in layer] for layer in every]
    return offloaded(deployment, stage), device_bytes(deployment, stage), named


@pytest.mark.parametrize("name", MODELS)
def test_the_same_parameters_are_read_over_the_link(name: str) -> None:
    for gib in UVA_BYTES:
        layers, moved, named = ours(name, {"cpu_offload_gb": gib})
        theirs = classes("uva", Accelerator())["UVAOffloader"](int(gib * 1024**3))
        modules = theirs.wrap_modules(Layer(layer) for layer in named)
        taken = [
            {key for key, value in module.named_parameters() if getattr(value, "_vllm_is_uva_offloaded", False)}
            for module in modules
        ]
        assert [{one.name for one in layers.get(place, ())} for place in range(len(named))] == taken
        assert moved == theirs.cpu_offload_bytes


@pytest.mark.parametrize("name", MODELS[:3])
@pytest.mark.parametrize("group", GROUPS)
def test_the_same_layers_are_copied_in_the_same_order(name: str, group: tuple[int, int, int]) -> None:
    size, of_group, ahead = group
    sizes = {"offload_group_size": size, "offload_num_in_group": of_group, "offload_prefetch_step": ahead}
    layers, moved, named = ours(name, sizes)
    accelerator = Accelerator()
    found = classes("prefetch", accelerator)
    # Storage that layers are copied to is as large as they are: numbers of bytes alone count here.
    small = [[(key, 2 * max(round(bytes_ / 2e6), 1)) for key, bytes_ in layer] for layer in named]
    theirs = found["PrefetchOffloader"](size, of_group, ahead)
    modules = theirs.wrap_modules(Layer(layer, held=True) for layer in small)
    theirs.post_init()
    hooked = [place for place, one in enumerate(modules) if "_hook_module_forward" in one.forward.__qualname__]
    assert list(layers) == hooked
    bytes_of = {place: sum(size for _, size in small[place]) for place in hooked}
    assert theirs.total_offloaded_bytes == sum(bytes_of.values())
    assert theirs.buffer_pool.total_bytes == ahead * max(bytes_of.values())
    whole = {place: sum(size for _, size in named[place]) for place in hooked}
    assert moved == sum(whole.values()) - ahead * max(whole.values())
    for module in modules:
        module.forward(torch.zeros(1))
    count = len(hooked)
    assert accelerator.calls == [call for i in range(count) for call in (("wait", i), ("start", (i + ahead) % count))]


def test_weights_that_are_quantized_at_load_cannot_be_moved() -> None:
    """They have no values yet where layers are made."""
    made = source("layers/quantization/online/fp8.py").read_text()
    assert 'device="meta"' in made
    theirs = classes("uva", Accelerator())["UVAOffloader"](10**9)
    module = torch.nn.Linear(8, 8, device="meta")
    with pytest.raises(NotImplementedError, match="meta"):
        theirs.wrap_modules(iter([module]))


@pytest.mark.parametrize(
    ("file", "layer", "attention"),
    [
        ("llama", "LlamaDecoderLayer", "LlamaAttention"),
        ("qwen2", "Qwen2DecoderLayer", "Qwen2Attention"),
        ("qwen3_moe", "Qwen3MoeDecoderLayer", "Qwen3MoeAttention"),
    ],
)
def test_modules_of_a_layer_come_in_the_order_taken(file: str, layer: str, attention: str) -> None:
    tree = ast.parse(source(f"models/{file}.py").read_text())
    assert _made(tree, layer, ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm"))
    assert _made(tree, attention, ("qkv_proj", "o_proj"))


def _made(tree: ast.Module, name: str, modules: tuple[str, ...]) -> bool:
    """Whether a class sets these attributes first in this order."""
    (found,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
    lines = {
        target.attr: -node.lineno
        for node in ast.walk(found)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr in modules
    }
    return sorted(lines, key=lambda one: -lines[one]) == list(modules)


def test_only_the_first_model_runner_installs_an_offloader() -> None:
    folder = source("").parent / "v1" / "worker"
    assert "set_offloader(" in (folder / "gpu_model_runner.py").read_text()
    assert "set_offloader(" not in (folder / "gpu" / "model_runner.py").read_text()
