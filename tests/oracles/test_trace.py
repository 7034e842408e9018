"""Traced modules beside PyTorch's own counters: FLOPs forward and backward, parameters, what autograd keeps."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from tests.oracles.networks import OTHERS, Built
from tools.zoo import MODULES
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import FlopCounterMode

import gnomon
from gnomon.engines.torch.eager import lower, peak
from gnomon.engines.torch.eager.price import ONE
from gnomon.graph.ops import Convolution, Op, SequenceAttention
from gnomon.load.tracing import trace_module
from gnomon.spec.traced import Traced

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

PUBLISHED = {
    "resnet50": 25_557_032,
    "vit-b16": 86_567_656,
    "unet": 859_520_964,
    "gpt2": 124_439_808,
}
"""Parameters of the well-known ones, as their papers' code has them."""


def on_meta(name: str) -> Callable[[], Built]:
    def build() -> Built:
        with torch.device("meta"):
            return MODULES[name]()

    return build


NETWORKS = OTHERS | {f"own {name}": on_meta(name) for name in MODULES}
NO_TRAINING = {"wav2vec2"}
"""It draws at run time which layers to leave out."""


def as_counted(op: Op) -> float:
    """FLOPs as PyTorch's counter has them. It sees attention as products of its own, all pairs though they be masked,
    with the scores kept for the gradient, which fused kernels make again; and of a grouped convolution's gradient by
    weight it counts the products across groups too, which nobody computes."""
    flops = op.count * float(op.flops(ONE)[0])
    if isinstance(op, SequenceAttention):
        both = op.head_dim + op.value_dim
        products = 1 if op.phase == "forward" else 2
        return 2.0 * products * both * op.sequences * op.heads * op.queries * op.keys
    if isinstance(op, Convolution) and op.name == "conv.by_weight":
        return flops * op.groups
    return flops


def counted(traced: Traced) -> float:
    return sum(as_counted(op) for one in lower(traced).launched for op in one.ops)


def by_pytorch(module: nn.Module, inputs: Any, train: bool) -> float:
    module.train(train)
    counter = FlopCounterMode(display=False)
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), counter:
        with torch.set_grad_enabled(train):
            outputs = module(**inputs) if isinstance(inputs, dict) else module(*_tuple(inputs))
            if train:
                _loss(outputs).backward()
    return float(counter.get_total_flops())


def _tuple(inputs: Any) -> tuple[Any, ...]:
    return inputs if isinstance(inputs, tuple) else (inputs,)


def _loss(outputs: Any) -> torch.Tensor:
    if hasattr(outputs, "keys"):
        outputs = outputs["loss"] if outputs.get("loss") is not None else next(iter(outputs.values()))
    return sum(part.sum() for part in tree_flatten(outputs)[0])


@pytest.mark.parametrize("phase", ["forward", "train"])
@pytest.mark.parametrize("name", NETWORKS)
def test_flops_are_pytorchs_to_the_last(name: str, phase: Any) -> None:
    if phase == "train" and name in NO_TRAINING:
        pytest.skip("a module that cannot be trained under a trace")
    module, inputs = NETWORKS[name]()
    traced = trace_module(module, inputs, phase=phase)
    assert counted(traced) == by_pytorch(module, inputs, phase == "train") > 0
    assert lower(traced).unknown == {}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters(name: str) -> None:
    module, inputs = NETWORKS[name]()
    traced = trace_module(module, inputs)
    assert traced.parameters == sum(p.numel() for p in module.parameters())
    held = sum(s.bytes for s in traced.storages if s.role == "parameters")
    assert held == sum(p.numel() * p.element_size() for p in module.parameters())
    if name.removeprefix("own ") in PUBLISHED and name.startswith("own "):
        assert traced.parameters == PUBLISHED[name.removeprefix("own ")]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 64))
        self.attend = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.net(x)[None]
        return self.attend(y, y, y, need_weights=False)[0]


def test_what_autograd_keeps_is_what_is_held_before_the_backward_pass() -> None:
    """Beside a real run on the CPU, whose attention keeps the same as the GPU's but for the seeds of its dropout."""
    module, x = Small(), torch.randn(4, 3, 8, 8)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made = module(x)
    known = {p.untyped_storage().data_ptr() for p in (*module.parameters(), *module.buffers(), x)}
    expected = sum(size for place, size in kept.items() if place not in known)

    traced = trace_module(module, x, phase="train", optimizer="none")
    turn = next(place for place, call in enumerate(traced.calls) if call.phase == "backward")
    alive = [
        s for s in traced.storages if s.role == "activations" and s.born < turn and (s.died is None or s.died > turn)
    ]
    held = sum(s.bytes for s in alive)
    output = made.untyped_storage().nbytes()
    assert expected <= held <= expected + output + 512


def test_memory_grows_with_training_and_shrinks_with_recomputation() -> None:
    from torch.utils.checkpoint import checkpoint

    class Deep(nn.Module):
        def __init__(self, again: bool) -> None:
            super().__init__()
            self.again = again
            self.parts = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(8)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in self.parts:
                x = checkpoint(part, x, use_reentrant=False) if self.again else part(x)
            return x

    x = torch.randn(4096, 64)
    only, train, again = (
        peak(trace_module(Deep(recompute), x, phase=phase)).parts  # type: ignore[arg-type]
        for recompute, phase in ((False, "forward"), (False, "train"), (True, "train"))
    )
    assert only["activations"] < again["activations"] < 0.5 * train["activations"]
    assert "gradients" not in only and "optimizer" not in only
    weights = only["parameters"]
    assert train["optimizer"] == pytest.approx(2 * weights, rel=0.05)
    rerun = trace_module(Deep(True), x, phase="train", optimizer="none", dtype="bf16")
    plain = trace_module(Deep(False), x, phase="train", optimizer="none", dtype="bf16")
    forward = counted(trace_module(Deep(False), x, dtype="bf16"))
    last = 8 * 2.0 * 4096 * 256 * 64  # recomputation stops at the last tensor a gradient needs
    assert counted(rerun) - counted(plain) == forward - last


def test_calls_know_their_module_forward_and_backward() -> None:
    traced = trace_module(Small(), torch.randn(4, 3, 8, 8), phase="train", optimizer="none")
    where = {(call.op, call.phase): call.module for call in traced.calls}
    assert where["aten.convolution", "forward"] == where["aten.convolution_backward", "backward"] == "net.0"
    assert where["aten.gelu", "forward"] == where["aten.gelu_backward", "backward"] == "net.2"
    assert where["aten._scaled_dot_product_efficient_attention", "forward"] == "attend"
    assert where["aten._scaled_dot_product_efficient_attention_backward", "backward"] == "attend"


def test_the_module_is_left_as_it_was() -> None:
    module = Small().eval()
    module.net[1].train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    trace_module(module, torch.randn(4, 3, 8, 8), phase="train")
    assert [module.training, module.net[1].training, module.net[0].training] == [False, True, False]
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    out = module(torch.randn(4, 3, 8, 8))
    assert out.shape == (1, 4, 64) and not out.isnan().any()


def test_formats_batches_and_named_arguments() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, *, scale: torch.Tensor, twice: bool = False) -> torch.Tensor:
            return self.layer(x) * scale * (2 if twice else 1)

    given = {"x": torch.randn(2, 16), "scale": torch.randn(16), "twice": True}
    traced = trace_module(Two(), given, dtype="bf16", batch=64)
    product = next(call for call in traced.calls if call.op == "aten.addmm")
    assert traced.samples == 64 and product.results[0].shape == (64, 16)
    assert {spec.dtype for spec in product.inputs} == {"bf16"} == {traced.dtype}
    mixed = trace_module(Two(), given, autocast="bf16")
    product = next(call for call in mixed.calls if call.op == "aten.addmm")
    assert {spec.dtype for spec in product.inputs} == {"bf16"} and mixed.dtype == "fp32"
    both = trace_module(Two(), ((torch.randn(2, 16),), {"scale": torch.randn(16)}))
    assert both.samples == 2


def test_attention_goes_to_the_kernel_a_gpu_would_choose() -> None:
    class Attend(nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.options = options

        def forward(self, q: torch.Tensor, k: torch.Tensor, mask: Any = None) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask, **self.options)

    def kernels(dtype: str, mask: Any = None, head_dim: int = 64, kv_heads: int = 4, **options: Any) -> set[str]:
        q, k = torch.randn(2, 4, 32, head_dim), torch.randn(2, kv_heads, 48, head_dim)
        traced = trace_module(Attend(**options), (q, k, mask), dtype=dtype)
        return {op.name for one in lower(traced).launched for op in one.ops if op.flops(ONE)[0]}

    assert kernels("bf16") == kernels("bf16", is_causal=True) == {"attention"}
    assert kernels("bf16", kv_heads=2, enable_gqa=True) == {"attention"}
    assert kernels("bf16", torch.ones(32, 48, dtype=torch.bool)) == {"attention.efficient"}
    assert kernels("fp32") == {"attention.wide"}
    assert kernels("fp32", kv_heads=2, enable_gqa=True) == {"gemm"}


def test_recurrent_nets_in_all_their_forms() -> None:
    for made in (nn.LSTM(8, 16, 2, bidirectional=True), nn.GRU(8, 16), nn.RNN(8, 16), nn.LSTM(8, 16, proj_size=4)):
        x = torch.randn(5, 3, 8)
        for phase in ("forward", "train"):
            traced = trace_module(made, x, phase=phase, optimizer="none")  # type: ignore[arg-type]
            assert counted(traced) == by_pytorch(made, x, phase == "train"), (made, phase)
    cell = nn.LSTMCell(8, 16)
    assert counted(trace_module(cell, torch.randn(3, 8))) == by_pytorch(cell, torch.randn(3, 8), False)


class Asks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Selects(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 2


class Mismatched(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x.reshape(-1)


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def _ends(_: torch.Tensor) -> None:
    raise GeneratorExit


def _endless(x: torch.Tensor) -> None:
    while True:
        x = x + 1


def test_a_loop_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.load.tracing.recorder.MOST_CALLS", 500)
    with pytest.raises(gnomon.GnomonError, match=r"calls more than 500 operators in one step. Look for a loop"):
        gnomon.trace(Calls(_endless), torch.randn(3), on="H200")


L = torch.linalg
B = torch.empty(2, 96, 5)
CUBE = 2 * 96.0**3
COUNTED: dict[str, tuple[Callable[..., Any], float]] = {
    "lu_factor": (L.lu_factor, 2 / 3), "det": (L.det, 2 / 3), "slogdet": (L.slogdet, 2 / 3), "inv": (L.inv, 2),
    "cholesky": (L.cholesky, 1 / 3), "qr": (L.qr, 8 / 3), "r": (lambda a: L.qr(a, mode="r"), 4 / 3),
    "complete": (lambda a: L.qr(a, mode="complete"), 8 / 3), "eigh": (L.eigh, 9), "svd": (L.svd, 21),
    "pinv": (L.pinv, 23), "solve": (lambda a: L.solve(a, B), 2 / 3 + 2 * 5 / 96),
    "solve_triangular": (lambda a: L.solve_triangular(a, B, upper=True), 5 / 96),
    "cholesky_solve": (lambda a: torch.cholesky_solve(B, a), 2 * 5 / 96),
    "complex": (lambda a: L.inv(torch.complex(a, a)), 8), "complex product": (lambda a: a * 1j @ (a * 1j), 8),
}  # fmt: skip
"""Dense linear algebra, and its textbook FLOPs over the cube of a square matrix's side."""


@pytest.mark.parametrize("name", COUNTED)
def test_linear_algebra_is_counted_and_never_below_the_roofline(name: str) -> None:
    function, cubes = COUNTED[name]
    answer = gnomon.trace(Calls(function), torch.empty(2, 96, 96), on="H100")
    assert answer.flops == pytest.approx(cubes * CUBE)
    assert answer.unknown == () and answer.time_s.value > answer.flops / 66.9e12


def test_large_factorisations_take_their_arithmetic() -> None:
    for function, cubes in ((L.inv, 2), (L.svd, 21)):
        answer = gnomon.trace(Calls(function), torch.empty(8192, 8192, device="meta"), on="H100")
        time = answer.time_s
        assert time.value > cubes * 8192.0**3 / 67e12
        assert time.low < time.value / 2 and time.high > 2 * time.value and time.provenance.value == "formula"


def test_transforms_are_counted() -> None:
    answer = gnomon.trace(Calls(torch.fft.fft), torch.empty(8, 1024, dtype=torch.complex64), on="H100")
    real = gnomon.trace(Calls(torch.fft.rfft), torch.empty(8, 1024), on="H100")
    assert answer.flops == 5 * 8 * 1024 * 10 == 2 * real.flops


REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "a value decides": (Asks(), torch.randn(3), {}, r"test_trace.py line \d+: the value of a tensor decides .*x\.sum"),
    "a size depends": (
        Selects(),
        torch.randn(3),
        {},
        r"test_trace.py line \d+: the size of a result depends on values",
    ),
    "it fails": (Mismatched(), torch.randn(3, 4), {}, r"test_trace.py line \d+: the module fails on these inputs"),
    "no module": (lambda x: x, torch.randn(3), {}, r"module: is no torch.nn.Module but function"),
    "no tensor": (nn.Identity(), 3, {}, r"inputs: no tensor"),
    "nothing to train": (nn.ReLU(), torch.randn(3), {"phase": "train"}, r"no parameter that needs a gradient"),
    "nothing launched": (nn.Identity(), torch.randn(3), {}, r"launches no kernel"),
    "format": (nn.ReLU(), torch.randn(3), {"dtype": "fp3"}, r"--dtype: unknown number format 'fp3'\. Near: fp32"),
    "narrow": (nn.ReLU(), torch.randn(3), {"dtype": "fp8"}, r"--dtype: unknown number format 'fp8'"),
    "wide": (nn.Linear(3, 3).double(), torch.randn(3).double(), {}, r"--dtype: arithmetic in fp64 cannot be .*fp32"),
    "wide solve": (Calls(torch.linalg.inv), torch.eye(3).double(), {}, r"--dtype: arithmetic in fp64 cannot be priced"),
    "uncounted": (Calls(torch.linalg.matrix_exp), torch.eye(3), {}, r"aten.linalg_matrix_exp cannot be priced"),
    "an exit": (Calls(sys.exit), torch.randn(3), {}, r"the module fails on these inputs: SystemExit"),
    "an end": (Calls(_ends), torch.randn(3), {}, r"test_trace.py line \d+: .* fails on these inputs: GeneratorExit"),
    "loss": (nn.Linear(3, 3), torch.randn(3), {"phase": "train", "loss": 5}, r"loss: 5 is not a function"),
    "no name": (nn.Linear(3, 3), torch.randn(3), {"optimizer": 5}, r"optimizer: 5 is not a text or a function"),
    "format of the chip": (nn.Linear(3, 3), torch.randn(3, 3), {"on": "TPU-v5e"}, r"--dtype: .* TPU-v5e 'fp32'"),
    "optimizer": (nn.Linear(3, 3), torch.randn(3), {"phase": "train", "optimizer": "adam"}, r"Near: adamw"),
    "sparse": (nn.ReLU(), torch.eye(3).to_sparse(), {}, r"layout sparse_coo, and only dense"),
    "phase": (nn.ReLU(), torch.randn(3), {"phase": "decode"}, r"--phase: unknown phase 'decode'"),
    "launch": (nn.ReLU(), torch.randn(3), {"launch": "quick"}, r"launch: unknown way to launch 'quick'"),
    "chips": (nn.ReLU(), torch.randn(3), {"on": "H200:2"}, r"--on: 'H200:2' is more than the one chip"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_says_where_and_what_to_do(name: str) -> None:
    module, inputs, options, message = REFUSED[name]
    with pytest.raises(gnomon.GnomonError, match=message):
        gnomon.trace(module, inputs, **{"on": "H200"} | options)


def test_code_that_names_a_device_or_casts_by_itself() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=torch.float16):
                y = self.layer(x.cuda().to("cuda:0"))
            return y + torch.zeros(8, device="cuda")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = trace_module(Own(), torch.randn(2, 8))
    assert next(c for c in traced.calls if c.op == "aten.addmm").results[0].dtype == "fp16"


def test_the_same_answer_twice_and_in_json() -> None:
    answers = [gnomon.trace(Small(), torch.randn(4, 3, 8, 8), on="H100", phase="train").to_dict() for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["schema"] == "gnomon.predict/1" and "traced" not in answers[0]


@pytest.mark.parametrize("name", ["own unet", "own lstm", "own gat"])
@pytest.mark.parametrize("phase", ["forward", "train"])
def test_a_trace_in_a_file_is_the_trace(name: str, phase: str, tmp_path: Any) -> None:
    module, inputs = NETWORKS[name]()
    out = tmp_path / "net.trace.json.gz"
    made = gnomon.trace(module, inputs, on="H200", phase=phase, out=out)
    found = gnomon.predict(out, on="H200")
    assert found.traced == made.traced  # type: ignore[attr-defined]
    assert found.time_s.value == made.time_s.value and found.memory_parts == made.memory_parts
