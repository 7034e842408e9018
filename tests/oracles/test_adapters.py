"""Fine-tuning with adapters beside PyTorch itself on a CPU: the FLOPs it counts and the bytes it keeps, of adapters
written here in plain PyTorch as the built-in runner and PEFT have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from tests.oracles.test_torch_layers import MODELS, MODES, TOKENS, Running, _place, counter, flops
from torch import nn
from torch.nn import functional as F

import gnomon
from gnomon.catalog import model_config_path
from gnomon.engines.torch.engine import ADAPTERS
from gnomon.engines.torch.style import style
from gnomon.engines.training.adapters import AdapterStyle
from gnomon.engines.transformers.engine import Transformers
from gnomon.graph.layers import Cut, layer
from gnomon.graph.tape import Tape
from gnomon.spec import Model
from gnomon.techniques.adapters import AdapterPass, nf4_bytes

pytestmark = pytest.mark.oracle

RANK, SCALE = 16, 2.0
KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "lora of attention": {"targets": "attention"},
    "lora of queries and values": {"targets": "qv"},
    "lora with dropout": {"dropout": 0.5},
    "qlora": {"packed": True, "double": True},
    "dora": {"magnitudes": True},
}


class Unpacked(torch.autograd.Function):  # type: ignore[misc]
    """A matrix that is made of its packed form for each of its two GEMMs."""

    @staticmethod
    def forward(context: Any, x: Any, packed: Any) -> Any:
        context.packed = packed
        return F.linear(x, packed.clone())

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient @ context.packed.clone(), None


class Adapted(nn.Module):  # type: ignore[misc]
    """A frozen matrix with an adapter. `library` is whose order of operators it has."""

    def __init__(self, base: nn.Linear, how: AdapterPass) -> None:
        super().__init__()
        self.base, self.how = base, how
        wide = torch.float32 if how.style.casts_input else base.weight.dtype
        self.a = nn.Parameter(torch.randn(how.rank, base.in_features, dtype=wide) * 0.02)
        self.b = nn.Parameter(torch.randn(base.out_features, how.rank, dtype=wide) * 0.02)
        self.magnitude = nn.Parameter(torch.ones(base.out_features, dtype=wide)) if how.magnitudes else None

    def forward(self, x: Any) -> Any:
        style, how = self.how.style, self.how
        result = Unpacked.apply(x, self.base.weight) if how.packed else self.base(x)
        if how.packed and style.nf4_clones:
            result = result.clone()
        if style.casts_input and not how.packed:
            x = x.to(self.a.dtype)
        if how.dropout:  # with a mask of one byte per value, as on a GPU
            x = torch.native_dropout(x, how.dropout, True)[0]
        low = F.linear(x, self.a)
        if style.scales_result and self.magnitude is not None:
            return result + self.decomposed(result, F.linear(low, self.b))
        if style.scales_result:
            return result + F.linear(low, self.b) * SCALE
        both = result + F.linear(low * SCALE, self.b)
        return both if self.magnitude is None else both * (self.magnitude / self.norm())

    def decomposed(self, result: Any, low: Any) -> Any:
        """What PEFT adds: both results times magnitudes over norms of the sum, whose product is taken of an
        identity."""
        eye = torch.eye(self.a.shape[1], dtype=self.base.weight.dtype, device=self.a.device)
        product = F.linear(F.linear(eye, self.a), self.b).T
        norm = (self.base.weight + SCALE * product.detach()).norm(dim=1).detach()
        share = self.magnitude / norm
        return (share - 1) * result + share * low * SCALE

    def norm(self) -> Any:
        with torch.no_grad():
            return (self.base.weight + SCALE * (self.b @ self.a)).norm(dim=1)


def adapt(module: Any, how: AdapterPass) -> None:
    """Freeze a layer, and put adapters beside its matrices."""
    module.requires_grad_(False)
    targets = {"all-linear": ("q", "k", "v", "out", "gate", "up", "down"), "attention": ("q", "k", "v", "out"),
               "qv": ("q", "v")}[how.targets]  # fmt: skip
    for parent in (module.attn, module.ffn):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and (name in targets or how.packed):
                setattr(parent, name, Adapted(child, how))


def taped(model: Model, how: AdapterPass) -> Tape:
    return layer(model, model.blocks[0], Cut(seq=48), style(model), (how,))


def adapters(kind: str, of: AdapterStyle = ADAPTERS) -> AdapterPass:
    return AdapterPass(style=of, rank=RANK, **KINDS[kind])


def running(model: str, kind: str, mode: str = "none") -> Running:
    found = Running("layer", MODELS[model], mode)
    adapt(found.module, adapters(kind))
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_flops(model: str, kind: str, mode: str) -> None:
    found, tape = running(model, kind, mode), taped(MODELS[model], adapters(kind))
    with counter() as counted:
        result = found.forward()
        there = counted.get_total_flops()
        result.backward(torch.ones_like(result))
        back = counted.get_total_flops() - there
    assert there == pytest.approx(flops(tape.forward_ops()), rel=1e-12)
    assert back == pytest.approx(flops(tape.backward_ops(mode)), rel=1e-12)
    trained = sum(weight.numel() for weight in found.module.parameters() if weight.requires_grad)
    assert tape.parameters == trained


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_autograd_saves(kind: str) -> None:
    """As in `test_torch_layers`; vectors as long as a matrix is wide are left out too."""
    found, tape = running("gpt", kind), taped(MODELS["gpt"], adapters(kind))
    seen: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        if tensor.numel() not in (1, TOKENS) and tensor.dim() > 1:
            seen[_place(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        found.forward()
    kept = sum(size for place, size in seen.items() if place not in found.apart)
    assert kept == tape.saved_activation_bytes("none") * TOKENS


@pytest.mark.parametrize("double", [False, True])
def test_bytes_of_nf4(double: bool) -> None:
    """Half a byte each, and scales: with double quantisation 0.127 bits per weight of them (Dettmers et al. 2023)."""
    bits = 8 * nf4_bytes(64 * 256 * 7, double) / (64 * 256 * 7) - 4
    assert bits == pytest.approx(0.127 if double else 0.5, abs=5e-4)


class Network(nn.Module):  # type: ignore[misc]
    """A network of transformers with PEFT's adapters beside its matrices, and inputs that have gradients."""

    def __init__(self, model: str, how: AdapterPass, recompute: str, wide: bool) -> None:
        from tools import decoders

        super().__init__()
        net = decoders.network(json.loads(model_config_path(model).read_text())).requires_grad_(False)
        for parent in list(net.model.layers.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(parent, name, Adapted(child, how))
        if recompute == "full":
            net.train()
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        net.enable_input_require_grads()
        self.net, self.wide = decoders.Train(net), wide

    def forward(self, ids: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16, enabled=self.wide):
            return self.net(ids)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(
    ("model", "kind", "optimizer"),
    [
        ("llama-3.2-1b", "lora", "adamw-bf16"),
        ("llama-3.2-1b", "lora", "adamw"),
        ("llama-3.2-1b", "dora", "adamw-bf16"),
        ("qwen3-1.7b", "lora", "adamw-bf16"),
        ("qwen3-1.7b", "lora", "adamw"),
    ],
)
def test_as_traces_of_modules_with_adapters_say(model: str, kind: str, optimizer: str, recompute: str) -> None:
    """Bytes to two parts in a thousand; seconds to 5%."""
    library = Transformers().traits(MODELS["llama"], optimizer).adapters
    assert library is not None
    how = adapters(kind, library)
    with torch.device("meta"):
        module, ids = Network(model, how, recompute, optimizer == "adamw"), torch.zeros(4, 2048, dtype=torch.int64)
    traced = gnomon.trace(module, (ids,), on="H200", phase="train", sustained=True)
    found = gnomon.simulate_training(
        model, on="H200:1", seq=2048, global_batch=4, micro_batch=4, recompute=recompute, optimizer=optimizer,
        dtype="bf16", engine="transformers", techniques=[kind],
    )  # fmt: skip
    tensors = found.peak_memory_bytes.value
    by_trace = sum(size for name, size in dict(traced.memory_parts).items() if name != "runtime")
    assert tensors == pytest.approx(by_trace, rel=2e-3)
    assert found.step_time_s.value == pytest.approx(traced.time_s.value, rel=0.05)
    assert found.trainable_parameters == sum(w.numel() for w in module.parameters() if w.requires_grad)
