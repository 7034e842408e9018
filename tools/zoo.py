"""Modules of many kinds as plain PyTorch, each after the sizes of its paper: what `gnomon.trace` is measured by."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
Built = tuple[nn.Module, tuple[Tensor, ...]]


class Bottleneck(nn.Module):
    """He et al. 2015, figure 5 right; the stride stands in the 3x3, as in most code."""

    def __init__(self, wide: int, inner: int, stride: int = 1) -> None:
        super().__init__()
        out = 4 * inner
        self.convs = nn.ModuleList(
            (
                nn.Conv2d(wide, inner, 1, bias=False),
                nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
                nn.Conv2d(inner, out, 1, bias=False),
            )
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (inner, inner, out))
        apart = stride > 1 or wide != out
        self.shortcut = (
            nn.Sequential(nn.Conv2d(wide, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if apart else None
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        for place, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = norm(conv(x))
            x = F.relu(x, inplace=True) if place < 2 else x
        return F.relu(x + kept, inplace=True)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        blocks, wide = [], 64
        for inner, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for place in range(depth):
                blocks.append(Bottleneck(wide, inner, stride if place == 0 else 1))
                wide = 4 * inner
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(wide, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.max_pool2d(self.stem(x), 3, 2, 1))
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """Queries of one sequence over keys and values of another, or of itself."""

    def __init__(self, width: int, heads: int, other: int = 0, *, bias: bool = True, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query = nn.Linear(width, width, bias)
        self.key, self.value = (nn.Linear(other or width, width, bias) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        other = x if other is None else other
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), self.key(other), self.value(other))
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer layer with the norms first."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, causal=causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class ViT(nn.Module):
    """Dosovitskiy et al. 2020, ViT-B/16."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Residual(nn.Module):
    """Of a diffusion U-Net: two convolutions with the time step added in between."""

    def __init__(self, wide: int, out: int, time_width: int = 1280) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.GroupNorm(32, wide), nn.GroupNorm(32, out)))
        self.convs = nn.ModuleList((nn.Conv2d(wide, out, 3, 1, 1), nn.Conv2d(out, out, 3, 1, 1)))
        self.time = nn.Linear(time_width, out)
        self.shortcut = nn.Conv2d(wide, out, 1) if wide != out else nn.Identity()

    def forward(self, x: Tensor, moment: Tensor) -> Tensor:
        y = self.convs[0](F.silu(self.norms[0](x)))
        y = y + self.time(F.silu(moment))[:, :, None, None]
        return self.shortcut(x) + self.convs[1](F.silu(self.norms[1](y)))


class Mixer(nn.Module):
    """Self-attention over the image, cross-attention to the text, and a gated feed-forward."""

    def __init__(self, width: int, heads: int = 8, text: int = 768) -> None:
        super().__init__()
        self.norm, self.enter, self.leave = (
            nn.GroupNorm(32, width),
            nn.Conv2d(width, width, 1),
            nn.Conv2d(width, width, 1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.itself = Attention(width, heads, bias=False)
        self.across = Attention(width, heads, text, bias=False)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        y = y + self.itself(self.norms[0](y))
        y = y + self.across(self.norms[1](y), text)
        value, gate = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(value * F.gelu(gate))
        return x + self.leave(y.transpose(1, 2).unflatten(2, x.shape[2:]))


class Stage(nn.Module):
    """One residual block, and a mixer where the resolution has one."""

    def __init__(self, wide: int, out: int, mixed: bool) -> None:
        super().__init__()
        self.residual, self.mixer = Residual(wide, out), Mixer(out) if mixed else None

    def forward(self, x: Tensor, moment: Tensor, text: Tensor) -> Tensor:
        x = self.residual(x, moment)
        return x if self.mixer is None else self.mixer(x, text)


class UNet(nn.Module):
    """Rombach et al. 2022 with the sizes of Stable Diffusion 1.5."""

    def __init__(self, widths: tuple[int, ...] = (320, 640, 1280, 1280)) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.enter = nn.Conv2d(4, widths[0], 3, 1, 1)
        self.downs, self.shrinks = nn.ModuleList(), nn.ModuleList()
        kept, wide = [widths[0]], widths[0]
        for place, out in enumerate(widths):
            for _ in range(2):
                self.downs.append(Stage(wide, out, place < 3))
                wide = out
                kept.append(out)
            if place < 3:
                self.shrinks.append(nn.Conv2d(out, out, 3, 2, 1))
                kept.append(out)
        self.middle = nn.ModuleList((Stage(wide, wide, True), Stage(wide, wide, False)))
        self.ups, self.grows = nn.ModuleList(), nn.ModuleList()
        for place, out in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.ups.append(Stage(wide + kept.pop(), out, place < 3))
                wide = out
            if place:
                self.grows.append(nn.Conv2d(out, out, 3, 1, 1))
        self.norm, self.leave = nn.GroupNorm(32, wide), nn.Conv2d(wide, 4, 3, 1, 1)

    def forward(self, x: Tensor, moment: Tensor, text: Tensor) -> Tensor:
        waves = torch.exp(torch.arange(160, device=x.device) * (-9.21034 / 160))
        angles = moment[:, None] * waves
        moment = self.time(torch.cat((angles.cos(), angles.sin()), -1).to(x.dtype))
        x = self.enter(x)
        kept = [x]
        for place, stage in enumerate(self.downs):
            x = stage(x, moment, text)
            kept.append(x)
            if place % 2 and place < 6:
                x = self.shrinks[place // 2](x)
                kept.append(x)
        for stage in self.middle:
            x = stage(x, moment, text)
        for place, stage in enumerate(self.ups):
            x = stage(torch.cat((x, kept.pop()), 1), moment, text)
            if place % 3 == 2 and place < 11:
                x = self.grows[place // 3](F.interpolate(x, scale_factor=2.0))
        return self.leave(F.silu(self.norm(x)))


class GraphAttention(nn.Module):
    """Velickovic et al. 2018: every node gathers from its neighbours, weighed by a softmax over them."""

    def __init__(self, wide: int, out: int, heads: int) -> None:
        super().__init__()
        self.heads, self.value = heads, nn.Linear(wide, heads * out, bias=False)
        self.source, self.target = (nn.Parameter(torch.empty(heads, out).normal_(0, 0.1)) for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        value = self.value(x).unflatten(-1, (self.heads, -1))
        sent, got = ((value * weight).sum(-1) for weight in (self.source, self.target))
        score = F.leaky_relu(sent.index_select(0, edges[0]) + got.index_select(0, edges[1]), 0.2).exp()
        total = torch.zeros_like(sent).index_add(0, edges[1], score)
        share = score / (total.index_select(0, edges[1]) + 1e-9)
        message = value.index_select(0, edges[0]) * share[..., None]
        return torch.zeros_like(value).index_add(0, edges[1], message).flatten(1)


class Gat(nn.Module):
    def __init__(self, wide: int = 128, inner: int = 64, heads: int = 4, classes: int = 40) -> None:
        super().__init__()
        self.layers = nn.ModuleList((GraphAttention(wide, inner, heads), GraphAttention(inner * heads, inner, heads)))
        self.head = nn.Linear(inner * heads, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.elu(layer(x, edges))
        return self.head(x)


class Nerf(nn.Module):
    """Mildenhall et al. 2020, figure 7: eight layers, the position again after four, the direction at the end."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        sizes = [(63, width), *[(width, width)] * 3, (width + 63, width), *[(width, width)] * 3]
        self.layers = nn.ModuleList(nn.Linear(*size) for size in sizes)
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.late, self.colour = nn.Linear(width + 27, width // 2), nn.Linear(width // 2, 3)

    def forward(self, place: Tensor, direction: Tensor) -> Tensor:
        place, direction = self._waves(place, 10), self._waves(direction, 4)
        x = place
        for index, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat((x, place), -1) if index == 4 else x))
        colour = self.colour(F.relu(self.late(torch.cat((self.feature(x), direction), -1))))
        return torch.cat((torch.sigmoid(colour), F.relu(self.density(x))), -1)

    @staticmethod
    def _waves(x: Tensor, count: int) -> Tensor:
        angles = x[..., None, :] * 2.0 ** torch.arange(count, device=x.device, dtype=x.dtype)[:, None]
        return torch.cat((x, angles.sin().flatten(-2), angles.cos().flatten(-2)), -1)


class LstmModel(nn.Module):
    """Zaremba et al. 2014, the large network: two layers of 1500 over 10,000 words."""

    def __init__(self, words: int = 10_000, width: int = 1500) -> None:
        super().__init__()
        self.table, self.net = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.net(self.table(words))[0])


class Policy(nn.Module):
    """Mnih et al. 2015 with an LSTM behind it: convolutions over frames, then memory, then action values."""

    def __init__(self, actions: int = 18) -> None:
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        )  # fmt: skip
        self.memory, self.value, self.actions = nn.LSTM(512, 512), nn.Linear(512, 1), nn.Linear(512, actions)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.eyes(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        kept = self.memory(seen)[0]
        return self.actions(kept), self.value(kept)


class Gpt(nn.Module):
    """Radford et al. 2019, the small one."""

    def __init__(self, words: int = 50257, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.size(1), device=words.device))
        return self.head(self.norm(self.blocks(x)))


def _indices(most: int, *shape: int) -> Tensor:
    on = torch.empty(0).device
    return torch.zeros(shape, dtype=torch.long) if on.type == "meta" else torch.randint(most, shape)


MODULES: dict[str, Callable[[], Built]] = {
    "resnet50": lambda: (ResNet50(), (torch.rand(64, 3, 224, 224),)),
    "vit-b16": lambda: (ViT(), (torch.rand(64, 3, 224, 224),)),
    "unet": lambda: (UNet(), (torch.rand(4, 4, 64, 64), torch.rand(4), torch.rand(4, 77, 768))),
    "gat": lambda: (Gat(), (torch.rand(100_000, 128), _indices(100_000, 2, 1_000_000))),
    "nerf": lambda: (Nerf(), (torch.rand(262_144, 3), torch.rand(262_144, 3))),
    "lstm": lambda: (LstmModel(), (_indices(10_000, 64, 35),)),
    "policy": lambda: (Policy(), (torch.rand(16, 8, 4, 84, 84),)),
    "gpt2": lambda: (Gpt(), (_indices(50257, 8, 1024),)),
}
"""Each builds a module and its inputs on the default device, in fp32."""
