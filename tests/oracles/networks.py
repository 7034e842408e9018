"""Networks of other people's making, built without weights, and what to call them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

Built = tuple[nn.Module, Any]


def values(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def indices(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long, device="meta")


def bare(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build()


class WholeLayers(nn.Module):
    """An encoder in training mode that leaves out no layer: whether it does is drawn at run time, which no trace can
    know."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def train(self, mode: bool = True) -> WholeLayers:
        super().train(mode)
        self.inner.training = False
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).last_hidden_state


def image_classifier(name: str) -> Callable[[], Built]:
    def build() -> Built:
        library = pytest.importorskip("transformers")
        config = getattr(library, f"{name}Config")(num_labels=1000)
        return bare(lambda: getattr(library, f"{name}ForImageClassification")(config)), values(2, 3, 224, 224)

    return build


def whisper() -> Built:
    library = pytest.importorskip("transformers")
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return WholeLayers(bare(lambda: WhisperEncoder(library.WhisperConfig()))).train(), values(2, 80, 3000)


def wav2vec() -> Built:
    library = pytest.importorskip("transformers")
    config = library.Wav2Vec2Config(num_hidden_layers=2)
    return bare(lambda: library.Wav2Vec2Model(config)).eval(), values(2, 16000)


def gpt2() -> Built:
    library = pytest.importorskip("transformers")
    config = library.GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000, use_cache=False)
    words = torch.zeros(2, 64, dtype=torch.long)
    return library.GPT2LMHeadModel(config), {"input_ids": words, "labels": words}


def unet() -> Built:
    """Stable Diffusion 1.5."""
    library = pytest.importorskip("diffusers")
    model = bare(lambda: library.UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8))
    noisy = {"sample": values(1, 4, 64, 64), "encoder_hidden_states": values(1, 77, 768)}
    return model, noisy | {"timestep": indices(1)}


def dit() -> Built:
    library = pytest.importorskip("diffusers")
    model = bare(
        lambda: library.DiTTransformer2DModel(
            num_attention_heads=16, attention_head_dim=72, in_channels=4, out_channels=8, num_layers=4, sample_size=32
        )
    )
    return model, {"hidden_states": values(2, 4, 32, 32), "timestep": indices(2), "class_labels": indices(2)}


def graph_net(name: str, **options: Any) -> Callable[[], Built]:
    def build() -> Built:
        library = pytest.importorskip("torch_geometric.nn")
        model = bare(lambda: getattr(library, name)(128, 256, 3, 40, add_self_loops=False, **options))
        return model, (values(2000, 128), indices(2, 30_000))

    return build


OTHERS: dict[str, Callable[[], Built]] = {
    "resnet-50": image_classifier("ResNet"),
    "vit-b16": image_classifier("ViT"),
    "swin-t": image_classifier("Swin"),
    "convnext-t": image_classifier("ConvNext"),
    "whisper-tiny": whisper,
    "wav2vec2": wav2vec,
    "gpt2": gpt2,
    "unet-sd15": unet,
    "dit": dit,
    "gcn": graph_net("GCN", normalize=False),
    "gat": graph_net("GAT", heads=8),
}
