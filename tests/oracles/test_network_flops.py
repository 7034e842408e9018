"""FLOPs of networks that are no plain decoders, as PyTorch counts them while transformers' and diffusers' code runs.

Small networks of the real architectures, attention as plain products so that every one is counted. A causal product
is counted whole there and as far as it is needed here, so what lies ahead of a token is added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gnomon.engines.torch.style import style  # noqa: E402
from gnomon.graph.base import Graph  # noqa: E402
from gnomon.graph.networks import decoder_graph, diffusion_graph, encoder_graph, tower_graph  # noqa: E402
from gnomon.graph.style import KernelStyle  # noqa: E402
from gnomon.load.fields import Fields  # noqa: E402
from gnomon.load.hf import shapes  # noqa: E402
from gnomon.spec import Batch, Model, Strategy  # noqa: E402

pytestmark = pytest.mark.oracle
ALONE = Strategy()


def _kernels(model: Model) -> KernelStyle:
    return replace(style(model), skips_windows=False)


def _counted(run: Any) -> int:
    """Without the angles of rotary positions, which are a table here and a product there."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    paths = counter.get_flop_counts().items()
    turning = (sum(counts.values()) for path, counts in paths if "rotary" in path or "positional" in path)
    return int(counter.get_total_flops() - sum(turning))


def _built(name: str, config: Any) -> tuple[Any, Model]:
    """The network of transformers, and the shapes read of its config."""
    config._attn_implementation = "eager"
    network = getattr(transformers, name)._from_config(config, attn_implementation="eager").eval()
    said = {key: value for key, value in config.to_dict().items() if key not in ("dtype", "torch_dtype")}
    return network, shapes(Fields(said | {"architectures": [name]}, name))


def _flops(graph: Graph, batch: Batch) -> float:
    return float(graph.flops(batch)[0])


def _ahead(model: Model, sequences: int, tokens: int) -> float:
    """Products of causal attention with what lies ahead."""
    heads = sum(b.count * b.attention.q_width for b in model.blocks if getattr(b.mixer, "causal", False))
    return 4.0 * sequences * tokens * (tokens - 1) / 2 * heads


def _tower(model: Model, count: int, *size: int) -> float:
    tower = model.towers[0]
    taken = tower.intake.picture(*size) if tower.intake.patch else tower.intake.length(*size)
    graph = tower_graph(tower, taken, _kernels(model), ALONE, "bf16")
    return _flops(graph, Batch.prefill(count * taken.sequences, taken.positions))


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertModel"])
def test_bert(name: str) -> None:
    config = transformers.BertConfig(
        vocab_size=90, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=112
    )
    network, model = _built(name, config)
    graph = encoder_graph(model, _kernels(model), 21, "bf16", head=True)
    assert _flops(graph, Batch.prefill(2, 21)) == _counted(lambda: network(torch.zeros(2, 21, dtype=torch.long)))


def test_modernbert() -> None:
    config = transformers.ModernBertConfig(
        vocab_size=90, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=96,
        local_attention=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    network, model = _built("ModernBertForMaskedLM", config)
    graph = encoder_graph(model, _kernels(model), 33, "bf16", head=True)
    assert _flops(graph, Batch.prefill(2, 33)) == _counted(lambda: network(torch.ones(2, 33, dtype=torch.long)))


@pytest.mark.parametrize("gated", [False, True])
def test_t5(gated: bool) -> None:
    config = transformers.T5Config(
        vocab_size=90, d_model=64, d_kv=8, d_ff=96, num_layers=3, num_decoder_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu" if gated else "relu",
    )  # fmt: skip
    network, model = _built("T5ForConditionalGeneration", config)
    words, start = torch.zeros(2, 21, dtype=torch.long), torch.zeros(2, 5, dtype=torch.long)
    ours = _flops(decoder_graph(model, _kernels(model), 5, 21, "bf16"), Batch.prefill(2, 5)) + _tower(model, 2, 21)
    assert ours == _counted(lambda: network(input_ids=words, decoder_input_ids=start))


def _whisper() -> tuple[Any, Model]:
    return _built(
        "WhisperForConditionalGeneration",
        transformers.WhisperConfig(
            vocab_size=90, num_mel_bins=16, d_model=64, encoder_layers=3, decoder_layers=2, encoder_ffn_dim=96,
            decoder_ffn_dim=80, encoder_attention_heads=4, decoder_attention_heads=4, max_source_positions=30,
            max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        ),
    )  # fmt: skip


def test_whisper() -> None:
    network, model = _whisper()
    sound, start = torch.zeros(2, 16, 60), torch.zeros(2, 5, dtype=torch.long)
    decoder = _flops(decoder_graph(model, _kernels(model), 5, 30, "bf16"), Batch.prefill(2, 5))
    ours = decoder + _ahead(model, 2, 5) + _tower(model, 2, 30)
    assert ours == _counted(lambda: network(input_features=sound, decoder_input_ids=start))


def test_a_decode_of_whisper() -> None:
    """One token more after five, over the keys and values of the source that are there."""
    network, model = _whisper()
    sound, start = torch.zeros(2, 16, 60), torch.zeros(2, 5, dtype=torch.long)
    with torch.no_grad():
        first = network(input_features=sound, decoder_input_ids=start, use_cache=True)
    again = {"encoder_outputs": (first.encoder_last_hidden_state,), "past_key_values": first.past_key_values}
    counted = _counted(lambda: network(decoder_input_ids=start[:, :1], use_cache=True, **again))
    assert _flops(decoder_graph(model, _kernels(model), 1, 30, "bf16"), Batch.decode(2, 5)) == counted


def test_bart() -> None:
    config = transformers.BartConfig(
        vocab_size=90, d_model=64, encoder_layers=3, decoder_layers=2, encoder_ffn_dim=96, decoder_ffn_dim=80,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=40, pad_token_id=0,
    )  # fmt: skip
    network, model = _built("BartForConditionalGeneration", config)
    words, start = torch.ones(2, 21, dtype=torch.long), torch.ones(2, 5, dtype=torch.long)
    decoder = _flops(decoder_graph(model, _kernels(model), 5, 21, "bf16"), Batch.prefill(2, 5))
    ours = decoder + _ahead(model, 2, 5) + _tower(model, 2, 21)
    assert ours == _counted(lambda: network(input_ids=words, decoder_input_ids=start))


def test_llava_tower() -> None:
    vision = transformers.CLIPVisionConfig(
        hidden_size=32, image_size=56, patch_size=14, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48
    )
    config = transformers.LlavaConfig(text_config=transformers.LlamaConfig(**TEXT), vision_config=vision)
    network, model = _built("LlavaForConditionalGeneration", config)
    pictures = torch.zeros(2, 3, 56, 56)
    assert _tower(model, 2, 56, 56) == _counted(lambda: network.model.get_image_features(pixel_values=pictures))


def _mllama() -> tuple[Any, Model]:
    text = {
        "vocab_size": 90, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "cross_attention_layers": [1, 3], "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "image_size": 28, "patch_size": 7, "num_hidden_layers": 3, "num_global_layers": 2,
        "attention_heads": 4, "intermediate_size": 48, "max_num_tiles": 4, "intermediate_layers_indices": [0, 1],
        "vision_output_dim": 96, "num_channels": 3,
    }  # fmt: skip
    config = transformers.MllamaConfig(text_config=text, vision_config=vision, image_token_index=80)
    return _built("MllamaForConditionalGeneration", config)


def test_llama_vision() -> None:
    network, model = _mllama()
    pictures = torch.zeros(2, 1, 4, 3, 28, 28)
    told = {"aspect_ratio_ids": torch.ones(2, 1, dtype=torch.long), "aspect_ratio_mask": torch.ones(2, 1, 4)}
    words = torch.zeros(2, 5, dtype=torch.long)
    source = model.towers[0].intake.picture(28, 28).merged
    batch = Batch.prefill(2, 5)
    every = Batch(
        **{n: getattr(batch, n) for n in batch.__dataclass_fields__ if n != "logit_rows"}, logit_rows=batch.tokens
    )
    decoder = _flops(decoder_graph(model, _kernels(model), 5, source, "bf16"), every)
    ours = decoder + _ahead(model, 2, 5) + _tower(model, 2, 28, 28)
    mask = 2 * 2 * model.towers[0].intake.picture(28, 28).positions ** 2  # made as a product of two vectors
    assert ours + mask == _counted(lambda: network(input_ids=words, pixel_values=pictures, **told))


QWEN2 = {"depth": 3, "embed_dim": 32, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 3, "patch_size": 14}
QWEN25 = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 44, "num_heads": 4, "out_hidden_size": 64, "patch_size": 14,
    "window_size": 56, "fullatt_block_indexes": [1],
}  # fmt: skip
QWEN3 = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 44, "num_heads": 4, "out_hidden_size": 64, "patch_size": 16,
    "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1],
}  # fmt: skip
TEXT = {
    "vocab_size": 90, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "head_dim": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "config", "vision", "unit"),
    [
        ("Qwen2VLForConditionalGeneration", "Qwen2VLConfig", QWEN2, 28),
        ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", QWEN25, 28),
        ("Qwen3VLForConditionalGeneration", "Qwen3VLConfig", QWEN3, 32),
    ],
)
@pytest.mark.parametrize("size", [(4, 6), (3, 5)])
def test_qwen_towers(name: str, config: str, vision: dict[str, Any], unit: int, size: tuple[int, int]) -> None:
    """Pictures that windows divide, and one that they do not."""
    network, model = _built(name, getattr(transformers, config)(text_config=TEXT, vision_config=vision))
    patches = torch.zeros(4 * size[0] * size[1], 3 * 2 * vision["patch_size"] ** 2)
    grid = torch.tensor([[1, 2 * size[0], 2 * size[1]]])
    counted = _counted(lambda: network.model.visual(patches, grid_thw=grid))
    assert _tower(model, 1, unit * size[0], unit * size[1]) == pytest.approx(counted, rel=1e-12)


def test_gemma_tower() -> None:
    vision = {
        "hidden_size": 32, "image_size": 56, "patch_size": 7, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 48, "vision_use_head": False,
    }  # fmt: skip
    config = transformers.Gemma3Config(text_config=TEXT, vision_config=vision, mm_tokens_per_image=4)
    network, model = _built("Gemma3ForConditionalGeneration", config)
    pictures = torch.zeros(2, 3, 56, 56)
    counted = _counted(lambda: network.model.get_image_features(pixel_values=pictures))
    assert _tower(model, 2, 56, 56) == counted


def test_pixtral_tower() -> None:
    vision = {
        "hidden_size": 32, "image_size": 112, "patch_size": 14, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 48, "head_dim": 8,
    }  # fmt: skip
    text = transformers.MistralConfig(**TEXT)
    vision_config = transformers.PixtralVisionConfig(**vision)
    config = transformers.Mistral3Config(text_config=text, vision_config=vision_config, spatial_merge_size=2)
    network, model = _built("Mistral3ForConditionalGeneration", config)
    pictures, sizes = torch.zeros(1, 3, 84, 56), torch.tensor([[84, 56]])
    counted = _counted(lambda: network.model.get_image_features(pixel_values=pictures, image_sizes=sizes))
    assert _tower(model, 1, 84, 56) == counted


def test_llama4_tower() -> None:
    vision = {
        "hidden_size": 32, "image_size": 56, "patch_size": 14, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 128, "projector_input_dim": 40, "projector_output_dim": 40, "vision_output_dim": 40,
    }  # fmt: skip
    text = TEXT | {"intermediate_size_mlp": 96, "num_local_experts": 2, "pad_token_id": 0}
    config = transformers.Llama4Config(text_config=text, vision_config=vision)
    network, model = _built("Llama4ForConditionalGeneration", config)
    pictures = torch.zeros(2, 3, 56, 56)

    def run() -> None:
        seen = network.vision_model(pictures).last_hidden_state
        network.multi_modal_projector(seen.view(-1, seen.size(-1)))

    assert _tower(model, 2, 56, 56) == _counted(run)


def test_dit() -> None:
    diffusers = pytest.importorskip("diffusers")
    from diffusers.models.attention_processor import AttnProcessor

    config = {
        "_class_name": "DiTTransformer2DModel", "num_attention_heads": 4, "attention_head_dim": 8, "in_channels": 4,
        "out_channels": 8, "num_layers": 3, "sample_size": 8, "patch_size": 2, "num_embeds_ada_norm": 10,
    }  # fmt: skip
    network = diffusers.DiTTransformer2DModel.from_config(config).eval()
    for block in network.transformer_blocks:
        block.attn1.set_processor(AttnProcessor())
    model = shapes(Fields(config, "dit"))
    samples, when = torch.zeros(3, 4, 8, 8), torch.zeros(3, dtype=torch.long)
    counted = _counted(lambda: network(samples, timestep=when, class_labels=when))
    assert _flops(diffusion_graph(model, _kernels(model), 16, 0, "bf16"), Batch.prefill(3, 16)) == counted


def test_the_counter_counts() -> None:
    assert _counted(lambda: torch.zeros(3, 5) @ torch.zeros(5, 7)) == 2 * 3 * 5 * 7
    assert np.isfinite(_counted(lambda: None))
