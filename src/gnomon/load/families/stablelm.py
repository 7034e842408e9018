"""StableLM: layer norms, a quarter of each head turns, perhaps side by side."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, head_dim_of, layer_count, rotary_dim, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Model


def read(config: Fields, family: str) -> Model:
    head_dim, normed = head_dim_of(config), config.flag("qk_layernorm", False)
    parallel = config.flag("use_parallel_residual", False)
    mixer = attention(
        config,
        head_dim=head_dim,
        qkv_bias=config.flag("use_qkv_bias", False),
        qk_norm=normed,
        qk_norm_whole=normed,
        rotary_dim=rotary_dim(config, head_dim, 0.25),
    )
    blocks = uniform(layer_count(config), mixer=mixer, ffn=dense(config), parallel=parallel, norms=1 if parallel else 2)
    return decoder(config, family, blocks, norm_bias=True)
