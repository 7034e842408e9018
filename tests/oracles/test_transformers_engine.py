"""The training engine transformers against traces of transformers' own modules."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
pytest.importorskip("transformers", reason="transformers is not installed; run `make test-oracles`")
import torch

import gnomon
from gnomon.catalog import model_config_path
from tools import decoders

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("model", ["llama-3.2-1b", "qwen2.5-1.5b", "qwen3-1.7b", "smollm2-1.7b"])
def test_as_traces_of_the_modules_say(model: str, recompute: str) -> None:
    """Bytes to a part in a thousand; seconds to 5%, which clipping is part of."""
    with torch.device("meta"):
        net = decoders.network(json.loads(model_config_path(model).read_text()))
        if recompute == "full":
            net.train()
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        module, ids = decoders.Train(net), torch.zeros(4, 2048, dtype=torch.int64)
    traced = gnomon.trace(module, (ids,), on="H200", phase="train", sustained=True)
    found = gnomon.simulate_training(
        model, on="H200:1", seq=2048, global_batch=4, micro_batch=4, recompute=recompute, optimizer="adamw-bf16",
        dtype="bf16", engine="transformers",
    )  # fmt: skip
    tensors = found.peak_memory_bytes.value
    by_trace = sum(size for name, size in dict(traced.memory_parts).items() if name != "runtime")
    assert tensors == pytest.approx(by_trace, rel=1e-3)
    assert found.step_time_s.value == pytest.approx(traced.time_s.value, rel=0.05)
