"""Nemotron-H: each layer is one thing only, a state space, attention, a feed-forward or experts."""

from __future__ import annotations

from collections.abc import Callable

from gnomon.errors import InputError
from gnomon.load.families.base import MAX_LAYERS, attention, decoder, dense, grouped_experts
from gnomon.load.families.mamba import mamba2
from gnomon.load.fields import Fields, shown
from gnomon.spec import Block, Model, MoeFfn

LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
WORDS = {"mamba": "linear_attention", "attention": "full_attention"} | {word: word for word in LETTERS.values()}


def read(config: Fields, family: str) -> Model:
    space = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size")
    makers: dict[str, Callable[[], Block]] = {
        "linear_attention": lambda: Block(mixer=mamba2(config, *space, chunk=128), ffn=None, count=1),
        "full_attention": lambda: Block(mixer=attention(config, rotary_dim=0), ffn=None, count=1),
        "mlp": lambda: Block(mixer=None, ffn=dense(config, gated=False, bias=config.flag("mlp_bias", False)), count=1),
        "moe": lambda: Block(mixer=None, ffn=_mixture(config), count=1),
    }
    kinds = _kinds(config)
    made = {kind: makers[kind]() for kind in dict.fromkeys(kinds)}
    return decoder(config, family, [made[kind] for kind in kinds])


def _kinds(config: Fields) -> list[str]:
    if config.has("layers_block_type"):
        key, known = "layers_block_type", WORDS
        found = config.list(key)
    else:
        key, known = "hybrid_override_pattern", LETTERS
        found = list(config.text(key))
    if not 0 < len(found) <= MAX_LAYERS:
        raise InputError(f"names {len(found)} layers", where=config.spot(key))
    for word in found:
        if not isinstance(word, str) or word not in known:
            hint = f"Supported: {', '.join(known)}."
            raise InputError(f"{shown(word)} is not a kind of layer", where=config.spot(key), hint=hint)
    return [known[word] for word in found]


def _mixture(config: Fields) -> MoeFfn:
    return grouped_experts(
        config,
        "n_routed_experts",
        "moe_intermediate_size",
        shared_inner=config.whole("moe_shared_expert_intermediate_size"),
        gated=False,
        router="sigmoid",
        latent=config.whole("moe_latent_size", 0),
    )
