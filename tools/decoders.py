"""Decoders of transformers as modules with inputs: one prompt, one decode step over a cache of fixed size, one
training step. What `gnomon.trace` says of them stands beside what tools/decoder_steps.py measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Case:
    """`tokens` new ones of each of `batch` sequences, after `context` that are in the cache."""

    model: str
    phase: str
    batch: int
    tokens: int
    context: int
    launch: str

    @property
    def name(self) -> str:
        return f"{self.model} {self.phase} {self.batch}x{self.tokens}+{self.context} {self.launch}"


PREFILLS = ((1, 512), (1, 2048), (4, 2048), (1, 8192))
DECODES = ((1, 1024), (8, 1024), (32, 1024), (8, 8192))
TRAININGS = ((4, 2048),)
MODELS = ("llama-3.2-1b", "llama-3.2-3b", "mistral-7b-v0.3", "qwen3-8b", "qwen2.5-14b")
TRAINED = ("llama-3.2-1b", "llama-3.2-3b")


def cases() -> list[Case]:
    found = []
    for model in MODELS:
        for batch, tokens in PREFILLS:
            found.append(Case(model, "prefill", batch, tokens, 0, "eager"))
            found.append(Case(model, "prefill", batch, tokens, 0, "graph"))
        found += [Case(model, "decode", batch, 1, context, "graph") for batch, context in DECODES]
        if model in TRAINED:
            found += [Case(model, "train", batch, tokens, 0, "eager") for batch, tokens in TRAININGS]
    return found


class Prompt(nn.Module):
    """Logits of the last token of each sequence; nothing is kept."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: Tensor) -> Tensor:
        return self.net(input_ids=ids, use_cache=False, logits_to_keep=1).logits


class FixedCache(nn.Module):
    """Keys and values of every layer in memory that stays where it is, as a captured graph needs it."""

    is_compileable = True

    def __init__(self, config: Any, batch: int, length: int) -> None:
        super().__init__()
        depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.length = length
        for layer in range(config.num_hidden_layers):
            for side in ("keys", "values"):
                shape = (batch, config.num_key_value_heads, length, depth)
                self.register_buffer(f"{side}{layer}", torch.zeros(shape, dtype=torch.bfloat16))
        self.register_buffer("place", torch.tensor([length - 1]))

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        kept = getattr(self, f"keys{layer}"), getattr(self, f"values{layer}")
        for old, new in zip(kept, (keys, values), strict=True):
            old.index_copy_(2, self.place, new)
        return kept

    def get_seq_length(self, layer: int = 0) -> int:
        return self.length - 1


class Decode(nn.Module):
    """One token more of each sequence, over a cache that is as long as it ever gets."""

    def __init__(self, net: nn.Module, cache: FixedCache) -> None:
        super().__init__()
        self.net, self.cache = net, cache

    def forward(self, ids: Tensor, mask: Tensor, place: Tensor) -> Tensor:
        return self.net(
            input_ids=ids, attention_mask=mask, position_ids=place, past_key_values=self.cache, use_cache=True
        ).logits


class Train(nn.Module):
    """The mean loss of all tokens."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: Tensor) -> Tensor:
        return self.net(input_ids=ids, labels=ids, use_cache=False).loss


def network(config: dict[str, Any]) -> nn.Module:
    """A network with weights that mean nothing, in bf16, on the default device."""
    made = CONFIG_MAPPING[config["model_type"]].from_dict(config)
    return AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16, attn_implementation="sdpa").eval()


def built(net: nn.Module, case: Case) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module of a case and what it is called with."""
    ids = torch.zeros(case.batch, case.tokens, dtype=torch.int64)
    if case.phase == "prefill":
        return Prompt(net), (ids,)
    if case.phase == "train":
        return Train(net), (ids,)
    length = case.context + 1
    mask = torch.ones(case.batch, 1, 1, length, dtype=torch.bool)
    place = torch.full((case.batch, 1), case.context, dtype=torch.int64)
    return Decode(net, FixedCache(net.config, case.batch, length)), (ids, mask, place)
