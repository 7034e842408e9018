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
from bench.zoo import MODULES
from torch import nn

from gnomon.calibrate import module_kernels
from gnomon.cli.run import run
from gnomon.cost.rows import COLUMNS
from gnomon.engines.torch.eager import lower
from gnomon.engines.torch.eager.price import ONE
from gnomon.graph.ops import Convolution, Elementwise
from gnomon.load.modules import trace_module

pytestmark = pytest.mark.oracle

SMALL: dict[str, Any] = {
    "CONVOLUTIONS": ((2, 4, 8, 8, 3, 1, 1), (2, 4, 8, 8, 3, 2, 1), (2, 3, 8, 16, 16, 16, 1), (2, 4, 4, 8, 7, 1, 4)),
    "TURNED": ((2, 4, 8, 8, 3, 1, 1),),
    "PRODUCTS": ((8, 8, 8),),
    "ATTENTION": ((2, 2, 16, 8),),
    "SIZES": ((64, 64),),
    "EDGES": ((100, 10, 8),),
    "IMAGES": 2,
    "CHANNELS": 32,
}


class Slow:
    """A bench whose clock always says the same; every call is run once, by itself and under a trace."""

    torch = torch

    def __init__(self) -> None:
        self.kernels: list[Any] = []

    def random(self, *shape: int, dtype: str = "bfloat16") -> torch.Tensor:
        return torch.randn(*shape, dtype=getattr(torch, dtype))

    def burst_us(self, call: Any) -> float:
        call(0)

        class Once(nn.Module):
            def forward(self, _: torch.Tensor) -> None:
                call(0)

        self.kernels = [op for one in lower(trace_module(Once(), torch.zeros(1))).launched for op in one.ops]
        return 50.0


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    for name, value in SMALL.items():
        monkeypatch.setattr(module_kernels, name, value)

    def measured() -> Iterator[tuple[dict[str, Any], list[Any]]]:
        bench: Any = Slow()
        for part in module_kernels.PARTS.values():
            for row in part(bench):
                yield row, bench.kernels

    return measured()


def test_every_kernel_of_the_table(rows: Any) -> None:
    seen = set()
    for row, kernels in rows:
        seen.add((row["op"], row.get("kernel")))
        assert all(name in row for name in COLUMNS[row["op"]])
        if row["op"] == "conv":
            (conv,) = (op for op in kernels if isinstance(op, Convolution))
            assert float(conv.flops(ONE)[0]) == 2.0 * row["m"] * row["n"] * row["k"] * row["batch"]
            assert (conv.m, conv.n, conv.k, conv.moved) == (row["m"], row["n"], row["k"], row["bytes"])
        elif row["op"] == "elementwise":
            name = row["kernel"].removesuffix(".bfloat16")
            found = [op for op in kernels if isinstance(op, Elementwise) and op.name == name]
            moved = sum(op.count * (op.read_per_row + op.written_per_row) for op in found)
            assert moved == pytest.approx(row["bytes_read"] + row["bytes_written"], rel=0.2), row
        elif row["op"].startswith("attention"):
            assert all(row[name] > 0 for name in COLUMNS[row["op"]])
    assert {kernel for op, kernel in seen if op == "conv"} == {"forward", "by_input", "by_weight"}
    assert len(seen) > 20


@pytest.mark.parametrize("name", ["nerf", "gat", "lstm", "policy"])
@pytest.mark.parametrize("phase", ["forward", "train"])
def test_modules_of_the_benchmark_run(name: str, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    import trace_modules

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
