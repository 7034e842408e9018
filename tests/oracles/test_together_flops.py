"""FLOPs of training networks that are no plain decoders, beside those PyTorch counts while transformers and diffusers
run small ones forward and backward on a CPU: equal to the last one.

Encoder-decoders, vision-language models with their tower, and diffusion transformers. A causal square is multiplied
whole there; what lies ahead of a token is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
transformers = pytest.importorskip("transformers")

from tests.oracles.test_network_flops import QWEN2, QWEN3, QWEN25, TEXT, _built, _mllama, _whisper  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gnomon.engines.megatron.engine import Megatron  # noqa: E402
from gnomon.engines.training.layer_cost import RECOMPUTING, tapes_of  # noqa: E402
from gnomon.engines.training.stages import Stages, kind_names  # noqa: E402
from gnomon.graph.core import CoreAttention  # noqa: E402
from gnomon.graph.layers import Cut  # noqa: E402
from gnomon.graph.ops import Op  # noqa: E402
from gnomon.graph.tape import Tape  # noqa: E402
from gnomon.graph.trained import check_trained  # noqa: E402
from gnomon.load.together import trained_network  # noqa: E402
from gnomon.spec import Batch, Model, TrainingLoad  # noqa: E402

pytestmark = pytest.mark.oracle
SEQUENCES = 2


def counted(run: Any) -> tuple[float, float]:
    """Forward and backward, without the angles of positions, which have no gradient."""
    with FlopCounterMode(display=False) as counter:
        loss = run()
        there, paths = counter.get_total_flops(), counter.get_flop_counts().items()
        turning = sum(sum(counts.values()) for path, counts in paths if "rotary" in path or "positional" in path)
        loss.backward()
        back = counter.get_total_flops() - there
    return float(there - turning), float(back)


def parts(model: Model, seq: int) -> Iterator[tuple[Tape, int]]:
    """Every tape with how often it comes."""
    check_trained(model)
    stages, made = Stages(model), tapes_of(model, Cut(seq=seq), Megatron().traits(model))
    counts = dict(zip(kind_names(len(stages.kinds)), map(int, _counts(stages)), strict=True))
    for name, tape in made.items():
        yield tape, counts.get(name, 1)


def _counts(stages: Stages) -> Any:
    return [int((stages.order == kind).sum()) for kind in range(len(stages.kinds))]


def ours(model: Model, seq: int) -> tuple[float, float]:
    batch = Batch.prefill([SEQUENCES], seq)
    there = back = 0.0
    for tape, times in parts(model, seq):
        there += times * sum(_work(op, batch, 1) for op in tape.forward_ops())
        back += times * sum(_work(op, batch, 2) for op in tape.backward_ops("none"))
    return there, back


def _work(op: Op, batch: Batch, passes: int) -> float:
    again = op.recomputed_flops(batch)[0] if passes > 1 and isinstance(op, RECOMPUTING) else 0.0
    ahead = 0.0
    if isinstance(op, CoreAttention) and op.causal:
        tokens = float(batch.prefill_tokens[0])
        pairs = tokens * float(batch.prompt[0]) - float(op.shape(batch)["pairs"][0])
        ahead = 2.0 * passes * pairs * op.heads * (op.head_dim + op.values)
    return op.count * float(op.flops(batch)[0] - again) + ahead


def trained(model: Model, seq: int, **given: Any) -> Model:
    return trained_network(model, TrainingLoad(seq=seq, global_batch=SEQUENCES, **given))


def check(model: Model, seq: int, run: Any) -> None:
    (there, back), (forward, backward) = ours(model, seq), counted(run)
    assert there == pytest.approx(forward, rel=1e-12)
    assert back == pytest.approx(backward, rel=1e-12)


@pytest.mark.parametrize("gated", [False, True])
def test_t5(gated: bool) -> None:
    config = transformers.T5Config(
        vocab_size=90, d_model=64, d_kv=8, d_ff=96, num_layers=3, num_decoder_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu" if gated else "relu", n_positions=64,
    )  # fmt: skip
    network, model = _built("T5ForConditionalGeneration", config)
    words, start = torch.zeros(2, 24, dtype=torch.long), torch.zeros(2, 8, dtype=torch.long)
    found = trained(model, 8, source=24)
    check(found, 8, lambda: network.train()(input_ids=words, decoder_input_ids=start).logits.sum())


def test_whisper() -> None:
    network, model = _whisper()
    sound, start = torch.zeros(2, 16, 60), torch.zeros(2, 6, dtype=torch.long)
    found = trained(replace(model, max_context=20), 6)
    check(found, 6, lambda: network.train()(input_features=sound, decoder_input_ids=start).logits.sum())


def test_llama_vision() -> None:
    """Its mask of the tower is a product of two vectors, with no gradient."""
    network, model = _mllama()
    pictures, words = torch.zeros(2, 1, 4, 3, 28, 28), torch.zeros(2, 6, dtype=torch.long)
    told = {"aspect_ratio_ids": torch.ones(2, 1, dtype=torch.long), "aspect_ratio_mask": torch.ones(2, 1, 4)}
    found = trained(model, 6, images=1, image="28x28")
    there, back = counted(lambda: network.train()(input_ids=words, pixel_values=pictures, **told).logits.sum())
    mask = 2 * 2 * model.towers[0].intake.picture(28, 28).positions ** 2
    forward, backward = ours(found, 6)
    assert forward + mask == pytest.approx(there, rel=1e-12)
    assert backward == pytest.approx(back, rel=1e-12)


@pytest.mark.parametrize("freeze", ["", "vision", "projector", "vision,projector"])
@pytest.mark.parametrize(
    ("name", "config", "vision", "unit"),
    [
        ("Qwen2VLForConditionalGeneration", "Qwen2VLConfig", QWEN2, 28),
        ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", QWEN25, 28),
        ("Qwen3VLForConditionalGeneration", "Qwen3VLConfig", QWEN3, 32),
    ],
)
def test_qwen(name: str, config: str, vision: dict[str, Any], unit: int, freeze: str) -> None:
    """A picture of 4 by 6 tokens in each of two texts, its tower trained or frozen."""
    special = {"image_token_id": 7, "vision_start_token_id": 8, "vision_end_token_id": 9, "video_token_id": 10}
    turned = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
    text = TEXT | turned if vision is not QWEN3 else TEXT
    network, model = _built(name, getattr(transformers, config)(text_config=text, vision_config=vision, **special))
    patches = torch.zeros(2 * 4 * 4 * 6, 3 * 2 * vision["patch_size"] ** 2)
    grid = torch.tensor([[1, 8, 12]] * 2)
    words = torch.tensor([[8, *[7] * 24, 9, *range(11, 17)]] * 2)
    kinds = torch.tensor([[0, *[1] * 24, 0, *[0] * 6]] * 2)
    for path, weight in network.model.visual.named_parameters():
        merges = "merger" in path
        weight.requires_grad = not ("projector" in freeze if merges else "vision" in freeze)
    found = trained(model, 32, images=1, image=f"{6 * unit}x{4 * unit}", freeze=freeze)
    inputs = {"input_ids": words, "pixel_values": patches, "image_grid_thw": grid, "mm_token_type_ids": kinds}
    check(found, 32, lambda: network.train()(**inputs).logits.sum())


def test_dit() -> None:
    diffusers = pytest.importorskip("diffusers")
    from diffusers.models.attention_processor import AttnProcessor

    config = {
        "num_attention_heads": 4, "attention_head_dim": 8, "in_channels": 4, "out_channels": 8, "num_layers": 3,
        "sample_size": 8, "patch_size": 2, "num_embeds_ada_norm": 10,
    }  # fmt: skip
    network = diffusers.DiTTransformer2DModel(**config).train()
    for layer in network.transformer_blocks:
        layer.attn1.set_processor(AttnProcessor())
    model = _shapes("DiTTransformer2DModel", config)
    noise = torch.zeros(2, 4, 8, 8)
    told = {"timestep": torch.zeros(2, dtype=torch.long), "class_labels": torch.zeros(2, dtype=torch.long)}
    check(trained(model, 16), 16, lambda: network(noise, **told).sample.sum())


def test_wan() -> None:
    diffusers = pytest.importorskip("diffusers")
    config = {
        "num_attention_heads": 4, "attention_head_dim": 16, "ffn_dim": 96, "num_layers": 2, "text_dim": 24,
        "freq_dim": 256, "patch_size": [1, 2, 2], "in_channels": 16, "out_channels": 16, "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
    }  # fmt: skip
    network = diffusers.WanTransformer3DModel(**config).train()
    model = _shapes("WanTransformer3DModel", config)
    found = trained(model, 3 * 4 * 5, source=12)
    inputs = {
        "hidden_states": torch.zeros(2, 16, 3, 8, 10), "timestep": torch.zeros(2, dtype=torch.long),
        "encoder_hidden_states": torch.zeros(2, 12, 24),
    }  # fmt: skip
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        check(found, 3 * 4 * 5, lambda: network(**inputs).sample.sum())


def _shapes(name: str, config: dict[str, Any]) -> Model:
    from gnomon.load.fields import Fields
    from gnomon.load.hf import shapes

    return shapes(Fields({"_class_name": name, **config}, name))
