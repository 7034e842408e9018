"""Where tensor-parallel ranks may cut a mixer."""

from __future__ import annotations

from gnomon.spec import AttentionMixer, GatedDelta, LatentAttention, LightningAttention, Mamba, Mamba2, ShortConvolution
from gnomon.spec.model import Mixer


def mixer_obstacle(mixer: Mixer | None, tp: int) -> str:
    """What `tp` ranks cannot share equally of a mixer; empty where they can."""
    match mixer:
        case AttentionMixer() | LatentAttention() | LightningAttention():
            if mixer.heads % tp:
                return f"{mixer.heads} attention heads, which {tp} does not divide"
            return _groups(mixer.kv_heads, tp) if isinstance(mixer, AttentionMixer) else ""
        case Mamba(inner=width) | ShortConvolution(width=width):
            return f"{width} channels in its mixers, which {tp} does not divide" if width % tp else ""
        case Mamba2(heads=heads, groups=groups):
            if heads % tp:
                return f"{heads} state-space heads, which {tp} does not divide"
            if groups > 1 and groups % tp:
                return f"{groups} groups of state-space heads, which {tp} does not divide"
        case GatedDelta():
            for heads in (mixer.key_heads, mixer.value_heads):
                if heads % tp:
                    return f"{heads} linear attention heads, which {tp} does not divide"
    return ""


def widest(mixer: Mixer | None) -> int:
    """A degree beyond which no mixer of its kind is cut."""
    match mixer:
        case AttentionMixer() | LatentAttention() | LightningAttention() | Mamba2():
            return mixer.heads
        case GatedDelta():
            return mixer.key_heads
        case Mamba():
            return mixer.inner
        case ShortConvolution():
            return mixer.width
    return 1


def _groups(kv_heads: int, tp: int) -> str:
    if kv_heads % tp and tp % kv_heads:
        return f"{kv_heads} key-value heads, which neither divide by {tp} nor divide it"
    return ""
