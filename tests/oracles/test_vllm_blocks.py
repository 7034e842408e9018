"""Degrees that vLLM 0.24's own layers refuse for the blocks of a quantised model, and ours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from tests.export.random_plans import checkpoint

from gnomon.engines.vllm.blocks import obstacle
from gnomon.engines.vllm.weights import cut_tensor
from gnomon.load import model as load_model
from gnomon.spec import Model, MoeFfn, Strategy
from gnomon.spec.narrowed import in_format

pytest.importorskip("vllm", reason="vLLM is not installed; run `make test-oracles`")
pytest.importorskip("einops", reason="einops, which vLLM's layers need, is not installed; run `make test-oracles`")
import torch
import vllm.distributed
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()

from vllm.model_executor.kernels.linear.mixed_precision import marlin  # noqa: E402
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearLayerConfig  # noqa: E402
from vllm.model_executor.layers.quantization import fp8  # noqa: E402
from vllm.model_executor.layers.quantization.utils.fp8_utils import validate_fp8_block_shape  # noqa: E402
from vllm.scalar_type import scalar_types  # noqa: E402

pytestmark = pytest.mark.oracle
BLOCKS = ("deepseek-v3", "kimi-k2", "minimax-m2", "qwen3-235b-a22b", "qwen3-30b-a3b", "llama-3.1-8b", "qwen2.5-72b")
GROUPS = ("llama-2-7b", "llama-3.1-8b", "llama-3.1-70b", "qwen2.5-72b", "qwen3-4b", "glm-4-9b", "qwen2.5-1.5b")
ROWS = ("out", "down", "shared_down")


def experts_refused(inner: int, tp: int) -> bool:
    """`create_weights` of experts in blocks, on tensors that take no memory."""
    method = SimpleNamespace(
        quant_config=SimpleNamespace(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic"),
        block_quant=True,
        weight_block_size=[128, 128],
        moe=SimpleNamespace(has_bias=False),
        weight_scale_name="weight_scale_inv",
    )
    layer = torch.nn.Module()
    with patch.object(fp8, "get_tensor_model_parallel_world_size", lambda: tp), torch.device("meta"):
        try:
            fp8.Fp8MoEMethod.create_weights(method, layer, 2, 4096, inner, torch.bfloat16)
        except ValueError as error:
            assert "not divisible" in str(error)
            return True
    return False


def rows_refused(columns: int, cut: int, rows: int, tp: int) -> bool:
    """A row-parallel layer in blocks."""
    with patch.object(vllm.distributed, "get_tensor_model_parallel_world_size", lambda: tp):
        try:
            validate_fp8_block_shape(SimpleNamespace(tp_size=tp), columns, rows, cut, [rows], [128, 128])
        except ValueError:
            return True
    return False


def refused(model: Model, strategy: Strategy) -> bool:
    for block in model.blocks:
        for tensor in block.tensors(model.hidden):
            cut = next(iter(cut_tensor(tensor, block, strategy)))
            if tensor.role in ROWS and rows_refused(tensor.columns, cut.columns, cut.rows, strategy.tp):
                return True
            if tensor.role == "expert_down" and experts_refused(cut.columns, strategy.tp):
                return True
    return False


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_fp8(name: str, tmp_path: Path) -> None:
    found = load_model(name)
    model = found if found.dtype == "fp8" else load_model(Path(checkpoint(tmp_path, name, "fp8")))
    moe = any(isinstance(block.ffn, MoeFfn) for block in model.blocks)
    for tp in (1, 2, 4, 8, 16, 32):
        for strategy in (Strategy(tp=tp), *([Strategy(tp=tp, ep=tp), Strategy(dp=tp)] if moe else [])):
            assert bool(obstacle(model, strategy)) == refused(model, strategy), strategy


@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_int4(name: str) -> None:
    """Marlin, which vLLM takes for them, asked whether it can implement each row-parallel layer."""
    model = in_format(load_model(name), "int4")
    kinds = [scalar_types.uint4b8]
    platform = SimpleNamespace(is_cuda=lambda: True)
    with (
        patch.object(marlin, "current_platform", platform),
        patch.object(marlin, "query_marlin_supported_quant_types", lambda *_: kinds),
    ):
        for tp in (1, 2, 4, 8):
            theirs = False
            for block in model.blocks:
                for tensor in block.tensors(model.hidden):
                    if tensor.role in ROWS:
                        cut = next(iter(cut_tensor(tensor, block, Strategy(tp=tp))))
                        config = MPLinearLayerConfig(
                            full_weight_shape=(tensor.columns, tensor.rows),
                            partition_weight_shape=(cut.columns, cut.rows),
                            weight_type=kinds[0],
                            act_type=torch.bfloat16,
                            group_size=128,
                            zero_points=False,
                            has_g_idx=False,
                        )
                        theirs |= not marlin.MarlinLinearKernel.can_implement(config)[0]
            assert bool(obstacle(model, Strategy(tp=tp))) == theirs, tp
