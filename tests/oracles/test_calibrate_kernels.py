"""The microbenchmarks run on a CPU: what they call exists, and their rows say what they ran.

Only the device is replaced; times mean nothing here.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402

from gnomon.calibrate.kernels import kernel  # noqa: E402
from gnomon.calibrate.kernels.collectives import OPS, RankGroup  # noqa: E402
from gnomon.calibrate.lab import Lab, Skipped  # noqa: E402
from gnomon.calibrate.timer import Timing  # noqa: E402

pytestmark = pytest.mark.oracle


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        return function(*args, **options)


class CpuLab(Lab):
    """A lab whose card is the CPU and whose clock stands still."""

    def __init__(self) -> None:
        self.torch, self.group = torch, None
        self.generator = torch.Generator().manual_seed(0)
        self._format, self._pool, self._free_bytes = "", None, 1 << 28
        self.outputs: list[Any] = []

    def time(self, call: Any, copies: int = 1) -> Timing:
        self.outputs = [call(i) for i in range(copies)]
        return Timing(1e-3, 0.01, 1.9e9)


CASES: dict[str, dict[str, Any]] = {
    "gemm": {"dtype": "bf16", "m": 16, "n": 512, "k": 256},
    "gemm_int8": {"m": 32, "n": 512, "k": 256},
    "gemm_batched": {"batch": 3, "m": 8, "n": 128, "k": 64},
    "experts": {"tokens": 20, "hidden": 64, "inter": 32, "experts": 4, "topk": 2},
    "attention_forward": {"batch": 2, "heads": 8, "kv_heads": 2, "head_dim": 64, "q_len": 32},
    "attention_decode": {"batch": 2, "heads": 8, "kv_heads": 2, "head_dim": 64, "kv_len": 33},
    "embedding": {"tokens": 5, "width": 256, "vocabulary": 1000},
    **{f"stream {name}": {"name": name, "tokens": 4, "width": 256} for name in ("add", "rms_norm", "softmax", "gelu")},
    **{
        f"sampling {name}": {"name": name, "sequences": 3, "vocabulary": 1000}
        for name in ("argmax", "topk", "multinomial")
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_runs_and_says_what_it_ran(case: str) -> None:
    lab, shape = CpuLab(), CASES[case]
    with OnCpu(), torch.no_grad():
        row = kernel(case.split()[0])(lab, **shape)
    assert row["time_us"] == pytest.approx(1e3)
    assert row["framework"] == "torch"
    for name in set(shape) - {"name", "width", "vocabulary", "sequences", "dtype"}:
        if name in row:
            assert row[name] == shape[name]
    assert all(value.isfinite().all() for value in lab.outputs if hasattr(value, "is_floating_point"))


def test_tensors_do_not_overlap() -> None:
    lab = CpuLab()
    with OnCpu():
        first, second, third = lab.random("bf16", (3, 5), (7, 11), (2, 2))
    ends = [(each.data_ptr(), each.data_ptr() + 2 * each.numel()) for each in (first, second, third)]
    assert ends[0][1] <= ends[1][0] < ends[1][1] <= ends[2][0]
    assert all(start % 256 == ends[0][0] % 256 for start, _ in ends)
    with pytest.raises(Skipped, match="larger than the memory"):
        lab.random("bf16", (1 << 40,))


def test_collectives_among_processes() -> None:
    group = RankGroup("gloo", 3)
    try:
        for op in OPS:
            if op in ("all_gather", "reduce_scatter", "all_to_all"):
                continue  # not all of them exist among CPUs
            timing = group.measure(op, 2, 4096)
            assert 1e-7 < timing.seconds < 1.0
        assert group.measure("all_reduce", 3, 1 << 16).seconds > 0
    finally:
        group.close()


TINY = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 1024,
}  # fmt: skip


def test_a_step_of_transformers_goes_over_a_cache_of_fixed_size() -> None:
    library = pytest.importorskip("transformers")
    from gnomon.calibrate.engine_run import CACHED, network_of, step_of

    with OnCpu(), torch.no_grad():
        network = network_of(torch, library, TINY)
        step = step_of(torch, library, network, 2)
        first, again = step().logits, step().logits
    assert first.shape == (2, 1, 100)
    assert torch.equal(first, again)
    with torch.no_grad():
        whole = network(torch.zeros(2, CACHED + 1, dtype=torch.long)).logits[:, -1:]
    assert torch.allclose(first.float(), whole.float(), atol=0.05)
