"""Networks of papers as trace files beside their figures: `python -m tools.paper_networks [NAME…]`, with PyTorch,
diffusers and transformers. Shapes are those of the authors' configurations; weights are never made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tools.decoders import Case, built, network
from torch import nn
from torch.nn import functional as f

import gnomon
from gnomon.catalog import model_config_path

INDEX = Path(gnomon.__file__).parent / "papers" / "index"
Built = tuple[nn.Module, Any]


class Plus(nn.Module):
    """What a module makes, added to what it is given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class OneHead(nn.Module):
    """Attention with a single head over the first channels of a picture; a projection mixes in the others."""

    def __init__(self, width: int, keys: int, part: int) -> None:
        super().__init__()
        self.sizes, self.rest = (keys, keys, part), width - part
        self.norm, self.project = nn.GroupNorm(1, part), nn.Conv2d(part, 2 * keys + part, 1)
        self.out = nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended, rest = x.split([self.sizes[2], self.rest], 1)
        q, k, v = (one.flatten(2) for one in self.project(self.norm(attended)).split(self.sizes, 1))
        scores = (q.transpose(-2, -1) @ k * self.sizes[0] ** -0.5).softmax(-1)
        return self.out(torch.cat([(v @ scores.transpose(-2, -1)).reshape(attended.shape), rest], 1))


class Merging(nn.Module):
    """Half the resolution and other channels, weighed by what a picture has of each."""

    def __init__(self, width: int, wider: int) -> None:
        super().__init__()
        inner = 4 * width
        self.widen, self.halve = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, inner, 3, 2, 1, groups=inner)
        self.weigh = nn.Sequential(nn.Conv2d(inner, width, 1), nn.ReLU(), nn.Conv2d(width, inner, 1), nn.Sigmoid())
        self.narrow = nn.Conv2d(inner, wider, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = f.relu(self.halve(f.relu(self.widen(x))))
        return self.narrow(x * self.weigh(x.mean((2, 3), keepdim=True)))


def _mixed(width: int) -> list[nn.Module]:
    inner = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.ReLU(), nn.Conv2d(2 * width, width, 1))
    return [nn.Conv2d(width, width, 3, 1, 1, groups=width), Plus(inner)]


def shvit(widths: tuple[int, ...], parts: tuple[int, ...], depths: tuple[int, ...], pixels: int) -> Built:
    """SHViT with batch norms folded into convolutions, as its speeds are measured."""
    stem = [3, widths[0] // 8, widths[0] // 4, widths[0] // 2, widths[0]]
    layers: list[nn.Module] = []
    for a, b in pairwise(stem):
        layers += [nn.Conv2d(a, b, 3, 2, 1), nn.ReLU()]
    layers.pop()
    for stage, (width, part, depth) in enumerate(zip(widths, parts, depths, strict=True)):
        for _ in range(depth):
            local, ffn = _mixed(width)
            layers += [local, *([Plus(OneHead(width, 16, part))] if stage else []), ffn]
        if stage < len(widths) - 1:
            wider = widths[stage + 1]
            layers += [*_mixed(width), Merging(width, wider), *_mixed(wider)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 1000)]
    return nn.Sequential(*layers, *head), torch.empty(256, 3, pixels, pixels)


def mobilevit() -> Built:
    """MobileViTv2 1.0, batch norms as PyTorch runs them."""
    from transformers import MobileViTV2Config, MobileViTV2ForImageClassification

    return MobileViTV2ForImageClassification(MobileViTV2Config(num_labels=1000)), torch.empty(256, 3, 256, 256)


class Attended(nn.Module):
    """Softmax attention with heads of keys and values shared, one GEMM for queries, keys and values or three."""

    def __init__(self, width: int, heads: int, kv_heads: int, head: int, *, joined: bool, rotary: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head, self.rotary = heads, kv_heads, head, rotary
        sizes = [heads * head, kv_heads * head, kv_heads * head]
        self.sizes = sizes
        self.inputs = nn.ModuleList(nn.Linear(width, n, bias=not rotary) for n in ([sum(sizes)] if joined else sizes))
        self.out = nn.Linear(heads * head, width, bias=not rotary)

    def forward(self, x: torch.Tensor, turned: Any, before: Any) -> tuple[torch.Tensor, Any]:
        made = [one(x) for one in self.inputs]
        q, k, v = made[0].split(self.sizes, -1) if len(made) == 1 else made
        q, k, v = (one.unflatten(-1, (-1, self.head)).transpose(1, 2) for one in (q, k, v))
        if self.rotary:
            q, k = _turn(q, *turned), _turn(k, *turned)
        if before is not None:
            k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
        made = f.scaled_dot_product_attention(q, k, v, enable_gqa=self.heads != self.kv_heads)
        return self.out(made.transpose(1, 2).flatten(2)), (k, v)


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Gated(nn.Module):
    def __init__(self, width: int, inner: int, *, joined: bool) -> None:
        super().__init__()
        self.inputs = nn.ModuleList(
            nn.Linear(width, n, bias=False) for n in ([2 * inner] if joined else [inner, inner])
        )
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [one(x) for one in self.inputs]
        gate, up = made[0].chunk(2, -1) if len(made) == 1 else made
        return self.out(f.gelu(gate, approximate="tanh") * up)


class Gemma(nn.Module):
    """A layer of Gemma: rotary attention with one key for all heads, a gated feed-forward."""

    def __init__(self, width: int, inner: int, joined: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention = Attended(width, 8, 1, 256, joined=joined, rotary=True)
        self.ffn = Gated(width, inner, joined=joined)

    def forward(self, x: torch.Tensor, turned: Any, before: Any = None) -> tuple[torch.Tensor, Any]:
        made, cache = self.attention(self.norms[0](x), turned, before)
        x = x + made
        return x + self.ffn(self.norms[1](x)), cache


class Siglip(nn.Module):
    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(1152) for _ in range(2))
        self.attention = Attended(1152, 16, 16, 72, joined=joined, rotary=False)
        self.ffn = nn.Sequential(nn.Linear(1152, 4304), nn.GELU("tanh"), nn.Linear(4304, 1152))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), None, None)[0]
        return x + self.ffn(self.norms[1](x))


class Pi0Vision(nn.Module):
    """Pictures through SigLIP, as tokens of the language network."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.patches, self.layers = nn.Conv2d(3, 1152, 14, 14), nn.ModuleList(Siglip(joined) for _ in range(27))
        self.norm, self.project = nn.LayerNorm(1152), nn.Linear(1152, 2048)
        self.place = nn.Parameter(torch.empty(256, 1152))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.project(self.norm(x)).flatten(0, 1)[None]


class Pi0Language(nn.Module):
    """Gemma 2B over all tokens of the pictures. Of its last layer only keys and values are needed."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Gemma(2048, 16384, joined) for _ in range(18))

    def forward(self, x: torch.Tensor) -> list[Any]:
        caches, turned = [], _angles(x.shape[1], x)
        for layer in self.layers[:-1]:
            x, cache = layer(x, turned)
            caches.append(cache)
        last = self.layers[-1]
        own, x = last.attention, last.norms[0](x)
        made = own.inputs[0](x).split(own.sizes, -1)[1:] if len(own.inputs) == 1 else [one(x) for one in own.inputs[1:]]
        k, v = (one.unflatten(-1, (-1, own.head)).transpose(1, 2) for one in made)
        return [*caches, (_turn(k, *turned), v)]


class Pi0Step(nn.Module):
    """One flow step of the expert, which attends to the language network's keys and values."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Gemma(1024, 4096, joined) for _ in range(18))
        self.state, self.action, self.last = nn.Linear(32, 1024), nn.Linear(32, 1024), nn.RMSNorm(1024)
        self.timed = nn.Sequential(nn.Linear(2048, 1024), nn.SiLU(), nn.Linear(1024, 1024))
        self.out = nn.Linear(1024, 32)

    def forward(self, state: torch.Tensor, noise: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        time = noise.new_zeros(1, noise.shape[1], 1024)
        acted = self.timed(torch.cat([self.action(noise), time], -1))
        x = torch.cat([self.state(state)[:, None], acted], 1)
        turned = _angles(x.shape[1], x)
        for at, layer in enumerate(self.layers):
            x, _ = layer(x, turned, (keys[at], values[at]))
        return noise + self.out(self.last(x[:, 1:])) * 0.1


def _angles(length: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_zeros(length, 128), x.new_zeros(length, 128)


def pi0(part: str, views: int, joined: bool) -> Built:
    tokens = 256 * views
    if part == "vision":
        return Pi0Vision(joined), torch.empty(views, 3, 224, 224)
    if part == "language":
        return Pi0Language(joined), torch.empty(1, tokens, 2048)
    cache = (18, 1, 1, tokens, 256)
    return Pi0Step(joined), (torch.empty(1, 32), torch.empty(1, 63, 32), torch.empty(cache), torch.empty(cache))


class ResBlock(nn.Module):
    """A residual block of score-based models; `up` and `down` change the resolution of both of its ways."""

    def __init__(self, width: int, wider: int, way: str = "") -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(min(width // 4, 32), width), nn.GroupNorm(min(wider // 4, 32), wider)])
        self.first, self.second = nn.Conv2d(width, wider, 3, 1, 1), nn.Conv2d(wider, wider, 3, 1, 1)
        self.timed, self.way = nn.Linear(512, wider), way
        self.short = nn.Conv2d(width, wider, 1) if width != wider or way else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        made = f.silu(self.norms[0](x))
        if self.way:
            scaled = {"up": partial(f.interpolate, scale_factor=2.0), "down": partial(f.avg_pool2d, kernel_size=2)}
            made, x = scaled[self.way](made), scaled[self.way](x)
        made = self.first(made) + self.timed(f.silu(time))[:, :, None, None]
        made = self.second(f.silu(self.norms[1](made)))
        return (self.short(x) + made) * 0.5**0.5


class Mixed(nn.Module):
    """Attention of one head over all pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.maps = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.norm(x)
        q, k, v = (one(made).flatten(2) for one in self.maps[:3])
        scores = (q.transpose(1, 2) @ k * x.shape[1] ** -0.5).softmax(-1)
        return (x + self.maps[3]((v @ scores.transpose(1, 2)).reshape(x.shape))) * 0.5**0.5


class ScoreNet(nn.Module):
    """DDPM++ for pictures of 32 pixels: 128 channels and twice as many below, four blocks per level."""

    def __init__(self, width: int = 128, more: tuple[int, ...] = (1, 2, 2, 2), blocks: int = 4) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 512), nn.SiLU(), nn.Linear(512, 512))
        self.first, widths, now = nn.Conv2d(3, width, 3, 1, 1), [width], width
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, factor in enumerate(more):
            for _ in range(blocks):
                self.down.append(_level(now, factor * width, level))
                now = factor * width
                widths.append(now)
            if level < len(more) - 1:
                self.down.append(nn.ModuleList([ResBlock(now, now, "down")]))
                widths.append(now)
        self.middle = nn.ModuleList([ResBlock(now, now), Mixed(now), ResBlock(now, now)])
        for level, factor in reversed(list(enumerate(more))):
            for at in range(blocks + 1):
                self.up.append(_level(now + widths.pop(), factor * width, level if at == blocks else 0))
                now = factor * width
            if level:
                self.up.append(nn.ModuleList([ResBlock(now, now, "up")]))
        self.last = nn.Sequential(nn.GroupNorm(32, now), nn.SiLU(), nn.Conv2d(now, 3, 3, 1, 1))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        time, x = self.time(time), self.first(x)
        kept = [x]
        for part in self.down:
            x = _run(part, x, time)
            kept.append(x)
        x = _run(self.middle, x, time)
        for part in self.up:
            x = _run(part, x if part[0].way else torch.cat([x, kept.pop()], 1), time)
        return self.last(x)


def _level(width: int, wider: int, level: int) -> nn.ModuleList:
    """A block, with attention at 16 pixels."""
    return nn.ModuleList([ResBlock(width, wider), *([Mixed(wider)] if level == 1 else [])])


def _run(parts: nn.ModuleList, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    for part in parts:
        x = part(x, time) if isinstance(part, ResBlock) else part(x)
    return x


def ddpmpp() -> Built:
    """Channels last, as JAX lays pictures out."""
    pictures = torch.empty(512, 3, 32, 32).to(memory_format=torch.channels_last)
    return ScoreNet().to(memory_format=torch.channels_last), (pictures, torch.empty(512, 128))


def stable_diffusion() -> Built:
    """The U-Net of Stable Diffusion 1.4 for a picture of 512 pixels, with guidance."""
    from diffusers import UNet2DConditionModel

    net = UNet2DConditionModel(cross_attention_dim=768)
    given = {"sample": (2, 4, 64, 64), "timestep": (), "encoder_hidden_states": (2, 77, 768)}
    return net, {name: torch.empty(shape) for name, shape in given.items()}


class Decoder(nn.Module):
    """The way from latents to pictures."""

    def __init__(self, inner: nn.Module, **more: Any) -> None:
        super().__init__()
        self.inner, self.more = inner, more

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        return self.inner.decode(latents, **self.more).sample


def picture_decoder() -> Built:
    from diffusers import AutoencoderKL

    sizes = (128, 256, 512, 512)
    down, up = ("DownEncoderBlock2D",) * 4, ("UpDecoderBlock2D",) * 4
    net = AutoencoderKL(3, 3, down, up, sizes, layers_per_block=2)
    return Decoder(net), torch.empty(1, 4, 64, 64)


def clip_text() -> Built:
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    return CLIPTextModel(config), {"input_ids": torch.zeros(2, 77, dtype=torch.long)}


def svd(frames: int) -> Built:
    """The U-Net of Stable Video Diffusion at 1024x576, with guidance."""
    from diffusers import UNetSpatioTemporalConditionModel

    net = UNetSpatioTemporalConditionModel(num_attention_heads=(5, 10, 20, 20))
    given = {
        "sample": (2, frames, 8, 72, 128), "timestep": (), "encoder_hidden_states": (2, 1, 1024),
        "added_time_ids": (2, 3),
    }  # fmt: skip
    return net, {name: torch.empty(shape) for name, shape in given.items()}


def video_decoder(frames: int) -> Built:
    from diffusers import AutoencoderKLTemporalDecoder

    sizes = (128, 256, 512, 512)
    net = AutoencoderKLTemporalDecoder(
        down_block_types=("DownEncoderBlock2D",) * 4, block_out_channels=sizes, layers_per_block=2
    )
    return Decoder(net, num_frames=frames), torch.empty(frames, 4, 72, 128)


def _in_slices(run: Callable[..., torch.Tensor], count: int, at: int, *given: Any) -> torch.Tensor:
    """What a function makes of its tensors, slice by slice along a dimension of the first; the others' is their first
    where they have as many rows there."""
    size = given[0].shape[at]
    each = max(round(size / count), 1)
    made = []
    for start in range(0, size, each):
        part = slice(start, min(start + each, size))
        rest = (one[part] if at == 0 and one is not None and one.shape[0] == size else one for one in given[1:])
        made.append(run(given[0].narrow(at, start, part.stop - start), *rest))
    return torch.cat(made, at)


def sliced(net: nn.Module, count: int) -> nn.Module:
    """Spatial blocks of a video network over slices of frames, temporal ones over slices of places."""
    from diffusers.models.attention import BasicTransformerBlock, TemporalBasicTransformerBlock
    from diffusers.models.resnet import SpatioTemporalResBlock

    for part in net.modules():
        if isinstance(part, SpatioTemporalResBlock):
            part.forward = partial(_sliced_block, part, count)
        elif isinstance(part, TemporalBasicTransformerBlock):
            part.forward = partial(_sliced_temporal, part, type(part).forward, count)
        elif isinstance(part, BasicTransformerBlock):
            part.forward = partial(_sliced_spatial, part, type(part).forward, count)
    return net


def _sliced_block(block: Any, count: int, x: torch.Tensor, temb: Any = None, image_only_indicator: Any = None) -> Any:
    frames = image_only_indicator.shape[-1]
    x = _in_slices(block.spatial_res_block, count, 0, x, temb)
    batch = x.shape[0] // frames
    folded = x[None].reshape(batch, frames, *x.shape[1:]).permute(0, 2, 1, 3, 4)
    times = temb.reshape(batch, frames, -1) if temb is not None else None

    def temporal(part: torch.Tensor) -> torch.Tensor:
        made = block.temporal_res_block(part, times)
        return block.time_mixer(x_spatial=part, x_temporal=made, image_only_indicator=image_only_indicator)

    return _in_slices(temporal, count, 4, folded).permute(0, 2, 1, 3, 4).reshape(x.shape)


def _sliced_spatial(block: Any, plain: Any, count: int, x: torch.Tensor, *_: Any, **rest: Any) -> torch.Tensor:
    context = rest.get("encoder_hidden_states")
    return _in_slices(lambda part, of: plain(block, part, encoder_hidden_states=of), count, 0, x, context)


def _sliced_temporal(block: Any, plain: Any, count: int, x: torch.Tensor, num_frames: int, **rest: Any) -> torch.Tensor:
    context, batch = rest.get("encoder_hidden_states"), x.shape[0] // num_frames

    def run(part: torch.Tensor) -> torch.Tensor:
        own = None if context is None else context[: part.shape[1] * batch]
        return plain(block, part, num_frames=num_frames, encoder_hidden_states=own)

    return _in_slices(run, count, 1, x)


LOCAL, GLOBAL, BORDER = 8, 16, 4
"""Frames of others that a frame's attention sees: before and after its clip, and out of all clips; frames that temporal
convolutions take of each neighbour (Video-Infinity, examples/config.json and src/video_infinity/plugins.py)."""


def _among_clips(attention: Any, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Attention over a clip's frames and those of others, in kernels of its own: scores, scale, mask, softmax, sums.
    What others would send has the sizes of the own frames that stand for it."""
    heads = attention.heads

    def parted(values: torch.Tensor) -> torch.Tensor:
        each = values.unsqueeze(3).reshape(*values.shape[:2], heads, -1).permute(0, 2, 1, 3)
        return each.reshape(-1, *each.shape[2:])

    q, k, v = (parted(project(x)) for project in (attention.to_q, attention.to_k, attention.to_v))
    k, v = (torch.cat([one[:, :LOCAL], one, one[:, -LOCAL:], one[:, :GLOBAL]], 1) for one in (k, v))
    scores = q @ k.transpose(-2, -1)
    scores *= q.shape[-1] ** -0.5
    scores += torch.zeros(q.shape[1], k.shape[1], dtype=q.dtype, device=q.device)
    made = torch.softmax(scores, -1) @ v
    made = made.unsqueeze(0).reshape(-1, heads, *made.shape[1:]).permute(0, 2, 1, 3)
    return attention.to_out[1](attention.to_out[0](made.reshape(x.shape[0], x.shape[1], -1)))


def _beside_clips(layer: Any, x: torch.Tensor, num_frames: int = 1) -> torch.Tensor:
    """Convolutions in time over a clip and the edges of its neighbours."""
    clip = x[None].reshape(-1, num_frames, *x.shape[1:]).permute(0, 2, 1, 3, 4)
    made = torch.cat([clip[:, :, :BORDER], clip, clip[:, :, -BORDER:]], 2)
    for convolve in (layer.conv1, layer.conv2, layer.conv3, layer.conv4):
        made = convolve(made)
    return (clip + made[:, :, BORDER:-BORDER]).permute(0, 2, 1, 3, 4).reshape(x.shape)


def clip_network(frames: int) -> Built:
    """A U-Net over a clip of 512x320, with guidance: spatial and temporal layers in turn, the latter with frames of
    other clips."""
    from diffusers import UNet3DConditionModel

    net = UNet3DConditionModel(cross_attention_dim=1024, attention_head_dim=64)
    kinds = {"Attention": _among_clips, "TemporalConvLayer": _beside_clips}
    for name, part in net.named_modules():
        if ("temp_" in name or "transformer_in" in name) and (forward := kinds.get(type(part).__name__)):
            part.forward = partial(forward, part)
    given = {"sample": (2, 4, frames, 40, 64), "timestep": (), "encoder_hidden_states": (2, 77, 1024)}
    return net, {name: torch.empty(shape) for name, shape in given.items()}


def picture_batch() -> Built:
    """Stable Diffusion's decoder over 24 frames of 512x320."""
    return picture_decoder()[0], torch.empty(24, 4, 40, 64)


class Ends(nn.Module):
    """What a causal video autoencoder does of a clip: encodes it, or decodes its latents."""

    def __init__(self, way: str) -> None:
        super().__init__()
        from diffusers import AutoencoderKLWan

        self.inner, self.way = AutoencoderKLWan(), way

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if self.way == "encode":
            return self.inner.encode(given).latent_dist.mode()
        return self.inner.decode(given).sample


def wan_ends(way: str, latents: int, width: int, height: int) -> Built:
    frames = 4 * latents - 3
    shape = (1, 3, frames, height, width) if way == "encode" else (1, 16, latents, height // 8, width // 8)
    return Ends(way), torch.empty(shape)


class Strip:
    """Attention of a strip's queries to its own keys and values and to those of other strips, which came in the step
    before: all of a layer's are joined, and those of `seen` strips beside its own are attended to (distrifuser's and
    PCPP's modules/pp/attn.py)."""

    def __init__(self, strips: int, seen: float) -> None:
        self.strips, self.seen = strips, seen

    def __call__(self, attn: Any, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, **_: Any) -> Any:
        source = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        q, joined = attn.to_q(hidden_states), attn.to_kv(source)
        if encoder_hidden_states is None and self.strips > 1:
            rows = round((1 + self.seen) * joined.shape[1])
            others = (joined.new_empty(joined.shape) for _ in range(self.strips - 1))
            joined = torch.cat([joined, *others], 1)[:, :rows]
        q, k, v = (one.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for one in (q, *joined.chunk(2, -1)))
        made = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return attn.to_out[0](made)


def _strip_norm(norm: nn.GroupNorm, strips: int, x: torch.Tensor) -> torch.Tensor:
    """A group norm by means and squares of all strips, the others' a step old (modules/pp/groupnorm.py)."""
    grouped = x.view(x.shape[0], norm.num_groups, -1, *x.shape[2:])
    own = torch.stack([grouped.mean((2, 3, 4), keepdim=True), (grouped**2).mean((2, 3, 4), keepdim=True)])
    mean, square = sum(own.new_empty(own.shape) for _ in range(strips)) / strips + (own - own.new_empty(own.shape))
    spread = square - mean**2
    spread = torch.where(spread < 0, own[1] - own[0] ** 2, spread) * 1.001
    made = ((grouped - mean) / (spread + norm.eps).sqrt()).view(x.shape)
    return made * norm.weight.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1)


def _strip_convolution(layer: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    """A convolution over a strip between the edges of its neighbours (modules/pp/conv2d.py)."""
    rows, columns = layer.padding
    edge = x.new_empty(*x.shape[:2], rows, x.shape[3])
    return f.conv2d(torch.cat([edge, x, edge], 2), layer.weight, layer.bias, layer.stride, (0, columns))


def sdxl(pixels: int, strips: int, seen: float, batch: int = 1) -> Built:
    """SDXL's U-Net over one strip of a picture, between others: its layers have those of the authors' libraries."""
    from diffusers import UNet2DConditionModel

    down = ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D")
    up = ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D")
    net = UNet2DConditionModel(
        down_block_types=down, up_block_types=up, block_out_channels=(320, 640, 1280), layers_per_block=2,
        transformer_layers_per_block=(1, 2, 10), attention_head_dim=(5, 10, 20), cross_attention_dim=2048,
        use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
    )  # fmt: skip
    net.set_attn_processor(Strip(strips, seen))
    for part in list(net.modules()):
        if hasattr(part, "to_k"):
            part.to_kv = nn.Linear(part.to_k.in_features, 2 * part.to_k.out_features, bias=False)
            del part.to_k, part.to_v
        elif strips > 1 and isinstance(part, nn.GroupNorm):
            part.forward = partial(_strip_norm, part, strips)
        elif strips > 1 and isinstance(part, nn.Conv2d) and part.padding[0]:
            part.forward = partial(_strip_convolution, part)
    side = pixels // 8
    given = {
        "sample": torch.empty(batch, 4, side // strips, side), "timestep": torch.empty(()),
        "encoder_hidden_states": torch.empty(batch, 77, 2048),
        "added_cond_kwargs": {"text_embeds": torch.empty(batch, 1280), "time_ids": torch.empty(batch, 6)},
    }  # fmt: skip
    return net, given


PORTION = 0.3
"""Of a neighbouring strip, what PCPP attends to."""


def in_parts(build: Callable[[], Built], count: int) -> Built:
    module, inputs = build()
    return sliced(module, count), inputs


class Loop(nn.Module):
    """An LSTM of several heads in plain PyTorch: one step after the other, a GEMM per head and the gates by hand."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.empty(heads, width, 4 * width)),
            nn.Parameter(torch.empty(4, heads, width)),
        )

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        steps, batch, _, heads, width = given.shape
        y, c = given.new_zeros(batch, heads, width), given.new_zeros(batch, heads, width)
        made = []
        for at in range(steps):
            turned = torch.bmm(y.transpose(0, 1), self.weight).transpose(0, 1)
            raw = given[at] + turned.unflatten(-1, (4, width)).transpose(1, 2) + self.bias
            i, o, z = torch.sigmoid(raw[:, 0]), torch.sigmoid(raw[:, 3]), torch.tanh(raw[:, 2])
            c = torch.sigmoid(raw[:, 1]) * c + i * z
            y = o * torch.tanh(c)
            made.append(torch.stack((y, c), 1))
        return torch.stack(made)


STEPS_TRACED = 64
"""Of a loop's steps, those in its trace; all are alike."""


def lstm_loop() -> Built:
    return Loop(12, 64), torch.empty(STEPS_TRACED, 16, 4, 12, 64)


def lstm_cudnn() -> Built:
    return nn.LSTM(768, 768), torch.empty(1024, 16, 768)


def mlp() -> Built:
    """Eleven hidden layers of 64 values."""
    layers = [one for _ in range(11) for one in (nn.Linear(64, 64, bias=False), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 64, bias=False)), torch.empty(2**17, 64)


class Copied(nn.Module):
    """All values once more, elsewhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def copied(values: int) -> Built:
    return Copied(), torch.empty(values)


def prompts(model: str, batch: int, tokens: int) -> Built:
    """Prompts through a decoder of transformers in eager mode, the last token's logits at its end."""
    net = network(json.loads(model_config_path(model).read_text(encoding="utf-8")))
    return built(net, Case(model, "prefill", batch, tokens, 0, "eager"))


FP16, BF16 = {"dtype": "fp16"}, {"dtype": "bf16"}
AMP = {"autocast": "fp16"}
Named = Mapping[str, tuple[str, Callable[[], Built], Mapping[str, Any]]]
NETWORKS: Named = {
    "shvit/s1": ("shvit", partial(shvit, (128, 224, 320), (32, 48, 68), (2, 4, 5), 224), AMP),
    "shvit/s2": ("shvit", partial(shvit, (128, 308, 448), (32, 66, 96), (2, 4, 5), 224), AMP),
    "shvit/s3": ("shvit", partial(shvit, (192, 352, 448), (48, 75, 96), (3, 5, 5), 224), AMP),
    "shvit/s4": ("shvit", partial(shvit, (224, 336, 448), (48, 72, 96), (4, 7, 6), 256), AMP),
    "shvit/mobilevitv2": ("shvit", mobilevit, AMP),
    **{
        f"pi0/{part}-{views}-{'joined' if joined else 'plain'}": (
            "running_vlas_at_real_time_speed", partial(pi0, part, views, joined), BF16
        )
        for part in ("vision", "language", "step")
        for views in (1, 2, 3)
        for joined in (False, True)
    },
    "deis/ddpmpp": ("fast_sampling_of_diffusion_models_with_exponenti", ddpmpp, {}),
    "olss/unet": ("optimal_linear_subspace_search", stable_diffusion, {}),
    "olss/decoder": ("optimal_linear_subspace_search", picture_decoder, {}),
    "olss/text": ("optimal_linear_subspace_search", clip_text, {}),
    "vibid/unet": ("vibidsampler", partial(svd, 25), FP16),
    "vibid/decoder": ("vibidsampler", partial(video_decoder, 4), {}),
    **{
        f"fme/{part}{'-sliced' if count else ''}": (
            "fast_and_memory_efficient_video_diffusion_using",
            partial(in_parts, partial(build, 14), count) if count else partial(build, 14),
            FP16,
        )
        for part, build, count in (("unet", svd, 0), ("decoder", video_decoder, 0), ("decoder", video_decoder, 7))
    },
    "clips/unet": ("video_infinity", partial(clip_network, 288), FP16),
    "clips/decoder": ("video_infinity", picture_batch, FP16),
    **{
        f"wan/{way}-{width}-{latents}": ("streamdiffusionv2", partial(wan_ends, way, latents, width, height), BF16)
        for way in ("encode", "decode")
        for width, height in ((832, 480), (512, 512))
        for latents in (1, 2)
    },
    "sdxl/1024": ("pcpp", partial(sdxl, 1024, 1, 0.0, 2), FP16),
    "sdxl/3840": ("pcpp", partial(sdxl, 3840, 1, 0.0, 2), FP16),
    "sdxl/3840-2": ("pcpp", partial(sdxl, 3840, 1, 0.0), FP16),
    "sdxl/3840-4": ("pcpp", partial(sdxl, 3840, 2, 1.0), FP16),
    "sdxl/3840-8": ("pcpp", partial(sdxl, 3840, 4, 3.0), FP16),
    "sdxl/3840-8-part": ("pcpp", partial(sdxl, 3840, 4, 2 * PORTION), FP16),
    "sdxl/1024-4": ("pcpp", partial(sdxl, 1024, 2, 1.0), FP16),
    "sdxl/1024-4-part": ("pcpp", partial(sdxl, 1024, 2, PORTION), FP16),
    "lstm/loop": ("flashrnn", lstm_loop, BF16),
    "lstm/cudnn": ("flashrnn", lstm_cudnn, FP16),
    "copy/copy": ("hopper_dissection", partial(copied, 2_000_000_000), BF16),
    **{
        f"eager/prefill-{batch}": ("cpu_gpu_coupled", partial(prompts, "llama-3.2-1b", batch, 512), BF16)
        for batch in (1, 2, 4, 8, 16, 32, 64, 128)
    },
    "mlp/infer": ("fused_mlp_intel", mlp, BF16),
    "mlp/train": ("fused_mlp_intel", mlp, BF16 | {"phase": "train"}),
}  # fmt: skip
"""By name: the paper's folder, what builds it, and how it is traced."""


def main(names: list[str]) -> None:
    for name in names or NETWORKS:
        folder, build, options = NETWORKS[name]
        with torch.device("meta"):
            module, inputs = build()
        out = INDEX / folder / f"{name.partition('/')[2]}.trace.json.gz"
        found = gnomon.trace(module, inputs, on="A100-SXM-80GB", out=out, **options)
        words = f"{found.parameters / 1e6:.1f}M parameters, {found.flops / 1e9:.1f} GFLOP, {found.kernels} kernels"
        print(f"{name}: {words}, {out.stat().st_size / 1e3:.0f} KB; unknown: {found.unknown}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
