"""What is to run on a GPU, run small on a CPU: every kernel and module of the benchmarks can be called, and the bytes
and FLOPs written beside a kernel's time are those that a trace of it has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from tools.zoo import MODULES
from torch import nn

from gnomon.cli.run import run
from gnomon.cost.rows import COLUMNS
from gnomon.engines.torch.eager import lower
from gnomon.engines.torch.eager.price import ONE
from gnomon.graph.ops import Convolution, Elementwise
from gnomon.load.tracing import trace_module
from tools import module_kernels, module_streams

pytestmark = pytest.mark.oracle

SMALL: dict[str, Any] = {
    "CONVOLUTIONS": ((2, 8, 16, 8, 3, 1, 1), (2, 8, 16, 8, 3, 2, 1), (2, 3, 8, 16, 16, 16, 1), (2, 4, 4, 8, 7, 1, 4)),
    "ALIGNED": ((8, 8, 8),),
    "LONG": ((64, 8, 8),),
    "PLAIN": ((16, 8, 8),),
    "ATTENTION": ((2, 2, 16, 8, 8),),
    "RECURRENT": (),
}
STREAMS: dict[str, Any] = {
    "SIZES": ((64, 512),), "EDGES": ((100, 10, 8),), "IMAGES": 2, "CHANNELS": 32, "WORDS": 50, "LOOKED_UP": 20,
}  # fmt: skip
PLAIN = ("add", "mul", "relu", "relu.backward", "sigmoid", "sin")
"""Measured by their own names, and priced under that of any pointwise kernel."""


class Slow:
    """A bench without a GPU."""

    torch = torch

    def random(self, *shape: int, dtype: str = "bfloat16") -> torch.Tensor:
        return torch.randn(*shape, dtype=getattr(torch, dtype))


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Every row; what streams is traced, since a CPU lacks some of its formats, and the rest is run."""

    def run_once(_bench: Any, call: Any, copies: int = 1) -> float:
        call(copies - 1)
        return 50.0

    for module, values in ((module_kernels, SMALL), (module_streams, STREAMS)):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module_kernels, "device_us", run_once)

    def measured() -> Iterator[tuple[dict[str, Any], list[Any]]]:
        bench: Any = Slow()
        for row, call in module_streams.stream_calls(bench):
            yield row, traced(call)
        for name in ("gemms", "attention", "convolutions"):
            for row in module_kernels.PARTS[name](bench):
                yield row, []

    return measured()


def traced(call: Any) -> list[Any]:
    class Once(nn.Module):
        def forward(self, _: torch.Tensor) -> None:
            call(0)

    return [op for one in lower(trace_module(Once(), torch.zeros(1))).launched for op in one.ops]


def test_every_kernel_of_the_table(rows: Any) -> None:
    seen = set()
    for row, kernels in rows:
        seen.add((row["op"], row.get("kernel")))
        assert all(name in row for name in COLUMNS[row["op"]])
        if row["op"] == "elementwise":
            name = row["kernel"].removesuffix(".bfloat16").removesuffix(".float32")
            moved = sum(op.count * (op.read_per_row + op.written_per_row) for op in kernels if is_stream(op, name))
            assert moved == pytest.approx(row["bytes_read"] + row["bytes_written"], rel=0.3), row
    assert {kernel for op, kernel in seen if op == "conv"} == {
        way + layout for way in ("forward", "by_input", "by_weight") for layout in ("", ".first")
    }
    assert len(seen) > 80


def is_stream(op: Any, name: str) -> bool:
    """Whether a traced kernel is the one that was measured; which form it takes may change with such small sizes."""
    known = "pointwise" if name in PLAIN else name
    back = (op.name.endswith(".backward"), known.endswith(".backward"))
    return isinstance(op, Elementwise) and op.name.partition(".")[0] == known.partition(".")[0] and len(set(back)) == 1


@pytest.mark.parametrize("size", SMALL["CONVOLUTIONS"])
def test_convolutions_are_counted_as_a_trace_counts_them(size: tuple[int, ...]) -> None:
    bench: Any = Slow()
    for row, call in module_kernels._convolution(bench, size, "bf16", torch.channels_last):
        (conv,) = (op for op in traced(call) if isinstance(op, Convolution))
        assert (conv.m, conv.n, conv.k, conv.groups, conv.moved) == tuple(
            row[name] for name in ("m", "n", "k", "batch", "bytes")
        )
        assert float(conv.flops(ONE)[0]) == 2.0 * row["m"] * row["n"] * row["k"] * row["batch"]
        assert conv.way == row["kernel"] and conv.turned == 0


@pytest.mark.parametrize("name", ["nerf", "gat", "lstm", "policy"])
@pytest.mark.parametrize("phase", ["forward", "train"])
def test_modules_of_the_benchmark_run(name: str, phase: str) -> None:
    from tools import trace_modules

    cut = {"nerf": 64, "gat": 50, "lstm": 2, "policy": 1}[name]
    module, inputs = trace_modules.prepared(name, "bf16" if name == "nerf" else "fp32")
    small = tuple(x[:cut] for x in inputs)
    if name == "gat":
        small = (small[0], torch.randint(cut, (2, 200)))
    trace_modules.steps(module, small, phase)()
    assert set(MODULES) == set(trace_modules.MODULES)
    assert ("bf16", "forward", "graph") in list(trace_modules.cases())


def test_a_script_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "def build():\n"
        "    with torch.device('meta'):\n"
        "        return torch.nn.Linear(512, 512), torch.empty(8, 512)\n"
    )
    words = ["predict", f"{tmp_path / 'net.py'}:build", "--on", "H200", "--phase", "train", "--batch", "4096"]
    assert run([*words, "--dtype", "bf16", "--set", "launch=graph", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "gnomon.predict/1" and answer["inputs"]["batch"] == 4096
    assert answer["flops"] == 2 * 2.0 * 4096 * 512 * 512 and answer["parameters"] == 512 * 513
    assert run(["explain", "last", "--json"]) == 0
    assert "gnomon_script_net" in sys.modules
