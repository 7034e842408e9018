"""The layout of the cache beside vLLM's own: groups, blocks, the longest sequence, sequences at once, stages.

What each layer keeps is told to vLLM in its own words, from the shapes of the network and its calculators of states;
everything after that is its code: aligned pages, groups, blocks, and what one sequence may take.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()

from vllm.distributed.utils import get_pp_indices  # noqa: E402
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator as Shapes  # noqa: E402
from vllm.platforms.interface import Platform  # noqa: E402
from vllm.v1.attention.backend import MultipleOf  # noqa: E402
from vllm.v1.core import kv_cache_utils as vllm_cache  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

from gnomon.engines.base import MemoryUse  # noqa: E402
from gnomon.engines.vllm.cache import layout, source_tokens  # noqa: E402
from gnomon.engines.vllm.weights import stages  # noqa: E402
from gnomon.load import model as load_model  # noqa: E402
from gnomon.spec import (  # noqa: E402
    AttentionMixer,
    Block,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    Model,
    ShortConvolution,
)

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.uint8}
STEP = 8192
MODELS = (
    "llama-3.1-8b", "falcon-7b", "qwen3-30b-a3b", "deepseek-v3", "deepseek-v3.2-exp", "gpt-oss-120b", "gpt-oss-20b",
    "gemma-3-27b", "gemma-2-9b", "gemma-3-1b", "mistral-7b-v0.1", "llama-4-scout", "jamba-52b", "nemotron-h-8b",
    "granite-4.0-h-small", "qwen3-next-80b-a3b", "qwen3.5-397b-a17b", "minimax-text-01", "lfm2-1.2b", "mamba-2.8b",
    "mamba-codestral-7b", "command-r7b", "olmo-3-7b", "whisper-small",
)  # fmt: skip


def config_of(model: Model, longest: int, block_tokens: int) -> Any:
    """What vLLM's functions ask of a configuration."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=longest,
            original_max_model_len=longest,
            dtype=torch.bfloat16,
            use_mla=False,
            architecture="",
            get_mamba_chunk_size=lambda: 256,
        ),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        scheduler_config=SimpleNamespace(
            max_num_batched_tokens=STEP,
            disable_hybrid_kv_cache_manager=False,
            max_num_encoder_input_tokens=source_tokens(model),
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None,
            mamba_cache_mode="none",
            mamba_block_size=None,
            mamba_page_size_padded=None,
            user_specified_mamba_block_size=False,
            block_size=block_tokens,
            cache_dtype="auto",
        ),
        kv_transfer_config=None,
        speculative_config=None,
    )


def state(block: Block, model: Model, tp: int) -> tuple[Any, Any] | None:
    """Shapes and formats of a recurrent layer's state, by vLLM's calculator."""
    mixer, half = block.mixer, torch.bfloat16
    deep = torch.float32 if model.family in ("nemotron_h", "qwen3_5_moe") else half
    match mixer:
        case Mamba():
            return Shapes.mamba1_state_shape(tp, mixer.inner, mixer.state, mixer.conv), (half, deep)
        case Mamba2():
            shapes = Shapes.mamba2_state_shape(
                tp, mixer.inner, mixer.groups, mixer.heads, mixer.head_dim, mixer.state, mixer.conv
            )
            return shapes, (half, deep)
        case GatedDelta():
            shapes = Shapes.gated_delta_net_state_shape(
                tp, mixer.key_heads, mixer.value_heads, mixer.key_dim, mixer.value_dim, mixer.conv
            )
            return shapes, (half, deep)
        case LightningAttention():
            return Shapes.linear_attention_state_shape(mixer.heads, tp, mixer.head_dim), (half,)
        case ShortConvolution():
            return Shapes.short_conv_state_shape(tp, mixer.width, mixer.conv), (half,)
    return None


def align(config: Any, model: Model, tp: int, kv_dtype: str) -> None:
    """vLLM's own alignment of attention and state pages."""
    layers = [replace(block, count=1) for block in model.blocks]
    states = [found for block in layers if (found := state(block, model, tp))]
    softmax = [block.mixer for block in layers if isinstance(block.mixer, AttentionMixer)]
    if not states or not softmax:
        return
    config.model_config.get_num_kv_heads = lambda _: max(1, softmax[0].kv_heads // tp)
    config.model_config.get_head_size = lambda: softmax[0].head_dim
    config.model_config.dtype = DTYPES[kv_dtype]
    network = SimpleNamespace(
        get_mamba_state_shape_from_config=lambda _: states[0][0],
        get_mamba_state_dtype_from_config=lambda _: states[0][1],
    )
    backend = SimpleNamespace(get_supported_kernel_block_sizes=lambda: [MultipleOf(16)])
    with (
        patch("vllm.model_executor.models.ModelRegistry.resolve_model_cls", lambda *a, **k: (network, "")),
        patch("vllm.config.vllm.set_current_vllm_config", lambda *a: nullcontext()),
    ):
        Platform._align_hybrid_block_size(config, backend)


def spec_of(block: Block, model: Model, tp: int, kv_dtype: str, config: Any) -> dict[str, Any]:
    """What a layer keeps, in vLLM's words."""
    mixer, tokens, dtype = block.mixer, config.cache_config.block_size, DTYPES[kv_dtype]
    found: dict[str, Any] = {}
    if isinstance(mixer, AttentionMixer) and not mixer.shared_kv:
        shape = {"num_kv_heads": max(1, mixer.kv_heads // tp), "head_size": mixer.head_dim}
        words = {"block_size": tokens, "dtype": dtype, "indexes_kv_by_block_stride": True, **shape}
        if mixer.window is None:
            found["attn"] = FullAttentionSpec(**words)
        elif mixer.chunked:
            found["attn"] = ChunkedLocalAttentionSpec(attention_chunk_size=mixer.window, **words)
        else:
            found["attn"] = SlidingWindowSpec(sliding_window=mixer.window, **words)
    if isinstance(mixer, LatentAttention):
        head = mixer.kv_rank + mixer.rope_dim
        found["attn"] = MLAAttentionSpec(
            block_size=tokens, num_kv_heads=1, head_size=head, dtype=dtype, cache_dtype_str="auto"
        )
        if mixer.indexer is not None:
            head = mixer.indexer.head_dim + mixer.indexer.head_dim // 128 * 4
            found["index"] = MLAAttentionSpec(block_size=tokens, num_kv_heads=1, head_size=head, dtype=torch.uint8)
    kept = state(block, model, tp)
    if kept is not None:
        padded = config.cache_config.mamba_page_size_padded
        longest = config.model_config.max_model_len
        found["state"] = MambaSpec(shapes=kept[0], dtypes=kept[1], block_size=longest, page_size_padded=padded)
    if block.cross is not None:
        heads = max(1, block.cross.kv_heads // tp)
        found["cross"] = CrossAttentionSpec(
            block_size=tokens, num_kv_heads=heads, head_size=block.cross.head_dim, dtype=dtype
        )
    return found


def theirs(model: Model, tp: int, pp: int, kv_dtype: str, longest: int, room: list[int]) -> tuple[Any, list[Any]]:
    config = config_of(model, longest, 16)
    align(config, model, tp, kv_dtype)
    specs = []
    for stage in stages(model, pp):
        layers = zip(stage.numbers, stage.layers, strict=True)
        specs.append(
            {
                f"{number}.{part}": spec
                for number, block in layers
                for part, spec in spec_of(block, model, tp, kv_dtype, config).items()
            }
        )
    return config, vllm_cache.get_kv_cache_configs(config, specs, room)


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (4, 2), (8, 3)])
@pytest.mark.parametrize("name", MODELS)
def test_blocks_and_sequences_are_those_of_vllm(name: str, tp: int, pp: int, kv_dtype: str) -> None:
    model = load_model(name)
    if any(getattr(block.mixer, "indexer", None) for block in model.blocks) and kv_dtype == "fp8":
        pytest.skip("sparse latent attention has a layout of its own in fp8")
    if any(getattr(b.mixer, "heads", tp) % tp or getattr(b.mixer, "key_heads", tp) % tp for b in model.blocks):
        pytest.skip(f"heads do not divide by {tp}")
    if any(isinstance(b.mixer, Mamba2) and b.mixer.groups % tp and b.mixer.groups > 1 for b in model.blocks):
        pytest.skip(f"groups of states do not divide by {tp}")
    longest = min(model.max_context, 32768)
    room = [40_000_000_007 + 1_000_000_000 * i for i in range(pp)]
    config, found = theirs(model, tp, pp, kv_dtype, longest, room)
    plan = layout(model, kv_dtype, tp, 16)

    blocks = [
        size // page if (page := plan.block_bytes(stage.numbers)) else 2**62
        for size, stage in zip(room, stages(model, pp), strict=True)
    ]
    assert found[0].num_blocks == min(blocks)
    assert len(found[0].kv_cache_groups) == len(plan.groups)
    concurrency = vllm_cache.get_max_concurrency_for_kv_cache_config(config, found[0])
    if pp == 1:
        assert min(blocks) / plan.sequence_blocks(longest, STEP) == pytest.approx(concurrency)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "gpt-oss-20b", "jamba-52b", "deepseek-v3"])
def test_the_longest_sequence_is_that_of_vllm(name: str) -> None:
    model, room = load_model(name), 3_000_000_000
    config = config_of(model, 131072, 16)
    align(config, model, 1, "bf16")
    layers = [replace(block, count=1) for block in model.blocks for _ in range(block.count)]
    specs = {
        f"{i}.{part}": spec
        for i, block in enumerate(layers)
        for part, spec in spec_of(block, model, 1, "bf16", config).items()
    }
    groups = vllm_cache.get_kv_cache_groups(config, specs)
    longest = vllm_cache._estimate_max_model_len_from_groups(config, groups, room)
    plan = layout(model, "bf16", 1, 16)
    use = MemoryUse(
        total_bytes=room,
        usable_bytes=room,
        parts={"kv": room},
        kv_blocks=room // plan.block_bytes(),
        kv_bytes_per_token=1.0,
        block_tokens=plan.block_tokens,
        step_tokens=STEP,
        sequence_blocks=plan.sequence_blocks,
    )
    assert longest > 0
    assert use.longest(131072) == longest


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "qwen3-30b-a3b"])
@pytest.mark.parametrize("pp", [1, 2, 3, 4, 5, 7])
def test_stages_hold_the_layers_vllm_gives_them(name: str, pp: int) -> None:
    model = load_model(name)
    for i, stage in enumerate(stages(model, pp)):
        assert (stage.numbers.start, stage.numbers.stop) == get_pp_indices(model.layers, i, pp)
