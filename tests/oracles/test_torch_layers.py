"""Layers beside PyTorch itself on a CPU: the FLOPs it counts, the bytes it keeps, what it runs again."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.oracles.torch_ranks import GPT as SMALL_GPT
from tests.oracles.torch_ranks import LLAMA as SMALL_LLAMA

from gnomon.engines.torch.style import style
from gnomon.graph.layers import Cut, embedding, head, layer
from gnomon.graph.ops import Attention, Op
from gnomon.graph.tape import Tape
from gnomon.spec import Batch, Model, Recipe

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

pytestmark = pytest.mark.oracle

SEQUENCES, SEQ = 2, 48
BATCH = Batch.prefill(SEQUENCES, SEQ)
TOKENS = SEQUENCES * SEQ
MODES = ("none", "selective", "full", "op")
BF16 = torch.bfloat16


def shaped(model: Model, kv_heads: int, inner: int) -> Model:
    """Sizes that tell the products apart."""
    block = model.blocks[0]
    mixer = replace(block.mixer, heads=8, kv_heads=kv_heads, head_dim=16, qk_norm=False)
    ffn = replace(block.ffn, inner=inner)
    return replace(model, hidden=128, vocab=320, blocks=(replace(block, mixer=mixer, ffn=ffn, count=2),))


MODELS = {"llama": shaped(SMALL_LLAMA, 2, 352), "gpt": shaped(SMALL_GPT, 8, 512)}


class Running:
    """An embedding, a layer or a head of the built-in runner, with something to run it on."""

    def __init__(self, part: str, model: Model, mode: str = "none") -> None:
        from gnomon.engines.torch.model import LayerModule, Part, rope_table

        torch.manual_seed(0)
        ends = {"embedding": range(0), "head": range(model.layers, model.layers)}
        self.rope = None if model.learned_positions else rope_table(SEQ, model.blocks[0].mixer.head_dim, BF16, "cpu")
        self.module = (
            LayerModule(model, model.blocks[0], Recipe(recompute=mode), 0, range(1))
            if part == "layer"
            else Part(model, ends[part], SEQ, Recipe())
        ).to(BF16)
        for weight in self.module.parameters():
            torch.nn.init.normal_(weight, std=0.02)
        self.part, self.tokens = part, torch.randint(0, model.vocab, (SEQUENCES, SEQ))
        self.x = torch.randn(SEQUENCES, SEQ, model.hidden, dtype=BF16, requires_grad=True)

    def forward(self) -> Any:
        if self.part == "layer":
            return self.module(self.x, self.rope)
        return self.module(self.tokens) if self.part == "embedding" else self.module(self.x, self.tokens)

    @property
    def apart(self) -> set[int]:
        """Storages that a tape does not count: weights, the rope's table, tokens."""
        return {_place(tensor) for tensor in (*self.module.parameters(), *(self.rope or ()), self.tokens)}


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def taped(part: str, model: Model) -> Tape:
    cut = Cut(seq=SEQ)
    if part == "layer":
        return layer(model, model.blocks[0], cut, style(model))
    return (embedding if part == "embedding" else head)(model, cut, style(model))


def flops(ops: tuple[Op, ...]) -> float:
    """As PyTorch counts: attention over the whole square, not the causal half."""
    square = 2 * SEQ / (SEQ + 1)
    return sum(float(op.count * op.flops(BATCH)[0]) * (square if isinstance(op, Attention) else 1.0) for op in ops)


def counter() -> FlopCounterMode:
    """PyTorch's own, told that attention on a CPU counts as attention elsewhere."""
    aten = torch.ops.aten
    forward, backward = (
        aten._scaled_dot_product_flash_attention_for_cpu,
        aten._scaled_dot_product_flash_attention_for_cpu_backward,
    )

    def there(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(q, k, v))

    def back(gradient: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_backward_flop_count(gradient, q, k, v))

    return FlopCounterMode(display=False, custom_mapping={forward: there, backward: back})


CASES = [("embedding", "none"), *(("layer", mode) for mode in MODES), ("head", "none")]


@pytest.mark.parametrize(("part", "mode"), CASES)
@pytest.mark.parametrize("model", MODELS)
def test_flops(model: str, part: str, mode: str) -> None:
    running, tape = Running(part, MODELS[model], mode), taped(part, MODELS[model])
    with counter() as counted:
        result = running.forward()
        there = counted.get_total_flops()
        result.backward(torch.ones_like(result))
        back = counted.get_total_flops() - there
    assert there == pytest.approx(flops(tape.forward_ops()), rel=1e-12)
    assert back == pytest.approx(flops(tape.backward_ops(mode)), rel=1e-12)
    assert (there > 0) == (part != "embedding")


@pytest.mark.parametrize("part", ["embedding", "layer", "head"])
def test_bytes_that_autograd_saves(part: str) -> None:
    """GPT-like only: on a CPU, an RMS norm is many operators that each save. Storages are counted once; the norms'
    statistics, a number or two a token, are left out."""
    running, tape = Running(part, MODELS["gpt"]), taped(part, MODELS["gpt"])
    seen: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        if tensor.numel() not in (1, TOKENS):
            seen[_place(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        running.forward()
    kept = sum(size for place, size in seen.items() if place not in running.apart)
    assert kept == tape.saved_activation_bytes("none") * TOKENS
    assert (kept > 0) == (part != "embedding")


@pytest.mark.parametrize("mode", ["selective", "full", "op"])
@pytest.mark.parametrize("model", MODELS)
def test_bytes_that_stay_where_layers_are_recomputed(model: str, mode: str) -> None:
    """All tensors alive after the forward pass, but for its result."""
    before = set(_live())
    running = Running("layer", MODELS[model], mode)
    result = running.forward()
    left = {place: size for place, size in _live().items() if place not in before | running.apart | {_place(result)}}
    assert sum(left.values()) == taped("layer", MODELS[model]).saved_activation_bytes(mode) * TOKENS
    assert _place(running.x) in left


def _live() -> dict[int, int]:
    gc.collect()
    # Looked at by type: some objects of other libraries warn when they are asked what they are. Sparse tensors, which
    # other tests may have left, have no storage.
    tensors = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
    dense = (tensor for tensor in tensors if tensor.layout == torch.strided)
    return {_place(tensor): tensor.untyped_storage().nbytes() for tensor in dense}


class Kernels(TorchDispatchMode):  # type: ignore[misc]
    """The operators that run, but for those that only look at a tensor in another way."""

    SILENT = ("view", "transpose", "aten.t.", "detach", "alias", "expand", "unsqueeze", "slice", "split")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not any(word in str(func) for word in self.SILENT):
            self.names.append(str(func).split(".")[1])
        return func(*args, **(kwargs or {}))


NAMES = {
    "norm": "native_layer_norm", "residual": "add", "activation": "gelu", "q": "addmm", "k": "addmm", "v": "addmm",
    "out": "addmm", "up": "addmm", "down": "addmm", "core": "_scaled_dot_product_flash_attention_for_cpu",
}  # fmt: skip


def test_every_kernel_is_listed() -> None:
    running, tape = Running("layer", MODELS["gpt"]), taped("layer", MODELS["gpt"])
    with Kernels() as ran:
        running.forward()
    assert ran.names == [NAMES[node.name.partition(".")[2]] for node in tape.nodes]
    assert sum(op.count for op in tape.forward_ops()) == len(ran.names)


@pytest.mark.parametrize(
    "mode",
    ["selective", "full", "op"],
)
def test_what_is_run_again(mode: str) -> None:
    """The forward operators of the backward pass; recomputation ends with the last tensor that a gradient needs."""
    running, tape = Running("layer", MODELS["gpt"], mode), taped("layer", MODELS["gpt"])
    result = running.forward()
    gradient = torch.ones_like(result)
    with Kernels() as ran:
        result.backward(gradient)
    again = ran.names[: ran.names.index("mm")]
    assert Counter(again) == Counter(NAMES[node.name.partition(".")[2]] for node in tape.recomputed(mode))


def checkpointed(running: Running, modules: tuple[str, ...]) -> list[Any]:
    """A layer whose modules are recomputed by themselves, by PyTorch's own checkpoints; what those are given."""
    from torch.utils.checkpoint import checkpoint

    given: list[Any] = []

    def again(body: Any) -> Any:
        def call(*args: Any) -> Any:
            given.extend(args)
            return checkpoint(body, *args, use_reentrant=False)

        return call

    module = running.module
    if "core_attn" in modules:
        module.attn.mix = again(module.attn.mix)
    feed = again(lambda x: module.ffn(module.ffn_norm(x)))

    def run(x: Any, rope: Any) -> Any:
        x = x + module.attn(module.attn_norm(x), rope)
        return x + (feed(x) if "mlp" in modules else module.ffn(module.ffn_norm(x)))

    module.run = run
    return given


@pytest.mark.parametrize("modules", [("core_attn",), ("mlp",), ("core_attn", "mlp")])
def test_modules_recomputed_by_themselves(modules: tuple[str, ...]) -> None:
    """The bytes that stay, the FLOPs of the backward pass and the kernels that run again in it."""
    running, tape, mode = Running("layer", MODELS["gpt"]), taped("layer", MODELS["gpt"]), f"modules={'+'.join(modules)}"
    given, seen = checkpointed(running, modules), {}

    def pack(tensor: Any) -> Any:
        if tensor.numel() not in (1, TOKENS):
            seen[_place(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with counter() as counted:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = running.forward()
        seen |= {_place(tensor): tensor.untyped_storage().nbytes() for tensor in given}
        there = counted.get_total_flops()
        with Kernels() as ran:
            result.backward(torch.ones_like(result))
        back = counted.get_total_flops() - there
    assert sum(size for place, size in seen.items() if place not in running.apart) == (
        tape.saved_activation_bytes(mode) * TOKENS
    )
    # PyTorch's checkpoint ends with the last tensor that a gradient needs: without the GEMM that gives the result.
    last = [op for node in tape.recomputed(mode) if node.name == "ffn.down" for op in node.forward]
    assert back == pytest.approx(flops(tape.backward_ops(mode)) - flops(tuple(last)), rel=1e-12)
    again = Counter(NAMES[node.name.partition(".")[2]] for node in tape.recomputed(mode) if node.name != "ffn.down")
    plain = Kernels()
    alone = Running("layer", MODELS["gpt"])
    result = alone.forward()
    with plain:
        result.backward(torch.ones_like(result))
    assert Counter(ran.names) - Counter(plain.names) == again
