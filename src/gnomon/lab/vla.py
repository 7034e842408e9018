"""A vision-language-action network of pi0's parts: pictures, their tokens' keys and values, flow steps of actions.

`plain` has the operators of Hugging Face's modules; `joined` one GEMM for queries, keys and values and one for gate and
up, norms whose gains are folded into the weights after them, and one rotation for queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.lab.base import BF16_BYTES
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.eager_ops import NORM, ROTATION, rms_norm, rotary_angles, rotated
from gnomon.lab.launches import Tally
from gnomon.lab.priced import shared_attention_s

ACTION = 32
"""Values of an action."""
STEP = 0.1
EPSILON, BASE = 1e-6, 10_000.0
"""Of norms, and of the rotary embedding."""
Weights = Mapping[str, Any]
Run = Callable[..., Any]
Moved = Sequence[tuple[float, float]]
"""Reads and writes of kernels, in what the first is given."""
ONE_KERNEL: Moved = ((1, 1),)


@dataclass(frozen=True, slots=True, kw_only=True)
class VlaShape:
    """Layers and widths of the three parts, and what they are given."""

    vision_layers: int = 27
    layers: int = 18
    vision_width: int = 1152
    vision_inner: int = 4304
    vision_heads: int = 16
    width: int = 2048
    inner: int = 16384
    expert_width: int = 1024
    expert_inner: int = 4096
    heads: int = 8
    head_dim: int = 256
    patches: int = 256
    views: int = 2
    actions: int = 64
    steps: int = 10

    @property
    def prefix(self) -> int:
        return self.views * self.patches


SMALL = VlaShape(
    vision_layers=2, layers=2, vision_width=48, vision_inner=80, vision_heads=3, width=64, inner=96, expert_width=32,
    expert_inner=48, heads=4, head_dim=16, patches=9, views=2, actions=5, steps=3,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vla:
    """The network with its weights; `vision` and `gemma` run one layer of each kind."""

    torch: Any
    shape: VlaShape
    weights: Mapping[str, Sequence[Weights]]
    ends: Weights
    angles: Mapping[int, tuple[Any, Any]]
    vision: Run
    gemma: Run

    def __call__(self, pictures: Any, noise: Any) -> tuple[Any, Any]:
        """What flow steps add to the noise [1, actions, values], which is wider than the weights, and the last layer's
        values of the pictures, from patches [views, patches, vision width]."""
        caches, actions, linear = self.prefix(pictures), noise, self.torch.nn.functional.linear
        for _ in range(self.shape.steps):
            x = linear(actions.to(pictures.dtype), self.ends["action"])
            for layer, (keys, values) in zip(self.weights["expert"], caches, strict=True):
                x, _, _ = self.gemma(x, layer, self.angles[x.shape[1]], keys, values)
            actions = actions + STEP * linear(x, self.ends["out"]).to(actions.dtype)
        return actions - noise, caches[-1][1]

    def prefix(self, pictures: Any) -> list[tuple[Any, Any]]:
        """Keys and values of the pictures in each layer."""
        x = pictures
        for layer in self.weights["vision"]:
            x = self.vision(x, layer)
        x = self.torch.nn.functional.linear(x, self.ends["project"]).flatten(0, 1)[None]
        caches = []
        for layer in self.weights["language"]:
            x, keys, values = self.gemma(x, layer, self.angles[x.shape[1]], None, None)
            caches.append((keys, values))
        return caches


@dataclass(frozen=True, slots=True)
class Layers:
    """One layer of each kind, in either form."""

    torch: Any
    shape: VlaShape

    def norm(self, x: Any, gain: Any) -> Any:
        return rms_norm(self.torch, x, gain, EPSILON)

    def turned(self, x: Any, angles: tuple[Any, Any]) -> Any:
        return rotated(self.torch, x, angles)

    def attended(self, query: Any, key: Any, value: Any) -> Any:
        mixed = self.torch.nn.functional.scaled_dot_product_attention(
            query, key, value, enable_gqa=query.shape[1] != key.shape[1]
        )
        return mixed.transpose(1, 2).flatten(2)

    def split(self, x: Any) -> Any:
        """Heads before tokens."""
        return x.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)

    def gemma(self, x: Any, w: Weights, angles: tuple[Any, Any], keys: Any, values: Any) -> tuple[Any, Any, Any]:
        """The output, and the keys and values of these tokens."""
        linear, near = self.torch.nn.functional.linear, self.norm(x, w["norm"])
        query, key, value = (self.split(linear(near, w[name])) for name in ("query", "key", "value"))
        query, key = self.turned(query, angles), self.turned(key, angles)
        x = x + linear(self.attended(query, *self._before(keys, values, key, value)), w["output"])
        near = self.norm(x, w["second_norm"])
        wide = self.torch.nn.functional.gelu(linear(near, w["gate"]), approximate="tanh") * linear(near, w["up"])
        return x + linear(wide, w["down"]), key, value

    def joined_gemma(self, x: Any, w: Weights, angles: tuple[Any, Any], keys: Any, values: Any) -> tuple[Any, Any, Any]:
        functional, heads = self.torch.nn.functional, self.shape.heads
        linear, width = functional.linear, x.shape[-1]
        made = self.split(linear(functional.rms_norm(x, (width,), eps=EPSILON), w["qkv"]))
        turned, value = self.turned(made[:, : heads + 1], angles), made[:, heads + 1 :]
        query, key = turned[:, :heads], turned[:, heads:]
        x = x + linear(self.attended(query, *self._before(keys, values, key, value)), w["output"])
        gate, up = linear(functional.rms_norm(x, (width,), eps=EPSILON), w["gate_up"]).chunk(2, -1)
        return x + linear(functional.gelu(gate, approximate="tanh") * up, w["down"]), key, value

    def _before(self, keys: Any, values: Any, key: Any, value: Any) -> tuple[Any, Any]:
        if keys is None:
            return key, value
        return self.torch.cat((keys, key), 2), self.torch.cat((values, value), 2)

    def vision(self, x: Any, w: Weights) -> Any:
        functional, heads = self.torch.nn.functional, self.shape.vision_heads
        near = functional.layer_norm(x, x.shape[-1:], w["norm"], w["norm_shift"])
        query, key, value = (
            functional.linear(near, w[name], w[f"{name}_shift"]).unflatten(-1, (heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        x = x + functional.linear(self.attended(query, key, value), w["output"], w["output_shift"])
        near = functional.layer_norm(x, x.shape[-1:], w["second_norm"], w["second_norm_shift"])
        return self._mlp(x, near, w)

    def joined_vision(self, x: Any, w: Weights) -> Any:
        functional, heads = self.torch.nn.functional, self.shape.vision_heads
        made = functional.linear(functional.layer_norm(x, x.shape[-1:]), w["qkv"], w["qkv_shift"])
        query, key, value = made.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + functional.linear(self.attended(query, key, value), w["output"], w["output_shift"])
        return self._mlp(x, functional.layer_norm(x, x.shape[-1:]), w)

    def _mlp(self, x: Any, near: Any, w: Weights) -> Any:
        functional = self.torch.nn.functional
        wide = functional.gelu(functional.linear(near, w["up"], w["up_shift"]), approximate="tanh")
        return x + functional.linear(wide, w["down"], w["down_shift"])


def drawn(bench: Bench, shape: VlaShape, dtype: Any) -> Vla:
    """The plain network with random weights."""
    torch, generator = bench.torch, bench.generator(SEED + 81)

    def linear(rows: int, columns: int, scale: float = 0.5) -> Any:
        return bench.normal(rows, columns, dtype=dtype, generator=generator, scale=scale * columns**-0.5)

    def matrices(sizes: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        """Queries and keys are large enough that attention chooses."""
        return {name: linear(*size, scale=1.5 if name in ("query", "key") else 0.5) for name, size in sizes.items()}

    def gain(size: int) -> Any:
        return 1 + bench.normal(size, dtype=dtype, generator=generator, scale=0.1)

    def vision() -> Weights:
        width, inner = shape.vision_width, shape.vision_inner
        sizes = dict.fromkeys(("query", "key", "value", "output"), (width, width))
        sizes |= {"up": (inner, width), "down": (width, inner)}
        made = matrices(sizes)
        made |= {f"{name}_shift": gain(size[0]) - 1 for name, size in sizes.items()}
        made |= {name: gain(width) for name in ("norm", "second_norm")}
        return made | {f"{name}_shift": gain(width) - 1 for name in ("norm", "second_norm")}

    def gemma(width: int, inner: int) -> Weights:
        heads, one = shape.heads * shape.head_dim, shape.head_dim
        sizes = {"query": (heads, width), "key": (one, width), "value": (one, width), "output": (width, heads)}
        sizes |= {"gate": (inner, width), "up": (inner, width), "down": (width, inner)}
        return matrices(sizes) | {name: gain(width) for name in ("norm", "second_norm")}

    weights = {
        "vision": [vision() for _ in range(shape.vision_layers)],
        "language": [gemma(shape.width, shape.inner) for _ in range(shape.layers)],
        "expert": [gemma(shape.expert_width, shape.expert_inner) for _ in range(shape.layers)],
    }
    ends = {
        "project": linear(shape.width, shape.vision_width),
        "action": linear(shape.expert_width, ACTION),
        "out": linear(ACTION, shape.expert_width),
    }
    layers = Layers(torch, shape)
    angles = {
        count: rotary_angles(bench, count, shape.head_dim, BASE, dtype) for count in (shape.prefix, shape.actions)
    }
    return Vla(torch, shape, weights, ends, angles, layers.vision, layers.gemma)


def joined(plain: Vla) -> Vla:
    """The same network, joined: gains and shifts of norms go into the weights and shifts after them."""
    torch = plain.torch

    def gemma(w: Weights) -> Weights:
        qkv = torch.cat([w[name] for name in ("query", "key", "value")]) * w["norm"]
        gate_up = torch.cat([w[name] for name in ("gate", "up")]) * w["second_norm"]
        return {"qkv": qkv, "gate_up": gate_up, "output": w["output"], "down": w["down"]}

    def vision(w: Weights) -> Weights:
        names = ("query", "key", "value")
        weight, shift = torch.cat([w[name] for name in names]), torch.cat([w[f"{name}_shift"] for name in names])
        kept = {name: w[name] for name in ("output", "output_shift", "down", "down_shift")}
        return kept | {
            "qkv": weight * w["norm"],
            "qkv_shift": shift + weight @ w["norm_shift"],
            "up": w["up"] * w["second_norm"],
            "up_shift": w["up_shift"] + w["up"] @ w["second_norm_shift"],
        }

    layers = Layers(torch, plain.shape)
    weights = {name: [(vision if name == "vision" else gemma)(w) for w in each] for name, each in plain.weights.items()}
    return replace(plain, weights=weights, vision=layers.joined_vision, gemma=layers.joined_gemma)


def compiled(network: Vla) -> Vla:
    """Each kind of layer compiled once, for all layers that are alike."""
    compile_layer = network.torch.compile
    return replace(
        network,
        vision=compile_layer(network.vision, dynamic=False),
        gemma=compile_layer(network.gemma, dynamic=False),
    )


@dataclass(frozen=True, slots=True)
class Counted:
    """Kernels of the network in a form: plain or joined, and where it is compiled chains of streams are one kernel."""

    machine: Machine
    shape: VlaShape
    joined: bool
    compiled: bool

    def total(self) -> Tally:
        shape, found = self.shape, Tally(self.machine)
        found.add(self.vision(), shape.vision_layers)
        found.gemm(shape.prefix, shape.width, shape.vision_width)
        found.add(self.gemma(shape.prefix, 0, shape.width, shape.inner), shape.layers)
        step = Tally(self.machine)
        step.add(self.gemma(shape.actions, shape.prefix, shape.expert_width, shape.expert_inner), shape.layers)
        step.gemm(shape.actions, shape.expert_width, ACTION)
        step.gemm(shape.actions, ACTION, shape.expert_width)
        for _ in range(4):  # narrowed, widened, scaled and added
            step.stream(BF16_BYTES * shape.actions * ACTION, BF16_BYTES * shape.actions * ACTION)
        found.add(step, shape.steps)
        return found

    def vision(self) -> Tally:
        shape, rows, found = self.shape, self.shape.prefix, Tally(self.machine, views=16)
        width, inner, size = shape.vision_width, shape.vision_inner, BF16_BYTES * rows * shape.vision_width
        self._residuals(found, size, norm=ONE_KERNEL)
        for columns in [3 * width] if self.joined else [width] * 3:
            found.gemm(rows, columns, width)
        dim = width // shape.vision_heads
        self._attention(found, shape.views, shape.vision_heads, shape.vision_heads, (shape.patches,) * 2, dim)
        found.gemm(rows, width, width)
        found.gemm(rows, inner, width)
        found.gemm(rows, width, inner)
        found.stream(BF16_BYTES * rows * inner, BF16_BYTES * rows * inner)
        return found

    def gemma(self, rows: int, before: int, width: int, inner: int) -> Tally:
        shape, found, size = self.shape, Tally(self.machine, views=24), BF16_BYTES * rows * width
        self._residuals(found, size, norm=ONE_KERNEL if self.joined else NORM)
        heads, one = shape.heads * shape.head_dim, shape.head_dim
        for columns in [heads + 2 * one] if self.joined else [heads, one, one]:
            found.gemm(rows, columns, width)
        for columns in [heads + one] if self.joined and not self.compiled else [heads, one]:
            turned = BF16_BYTES * rows * columns
            for read, written in ONE_KERNEL if self.compiled else ROTATION:
                found.stream(read * turned, written * turned)
        if before:
            both = BF16_BYTES * (before + rows) * one
            for _ in range(2):
                found.stream(both, both)
        self._attention(found, 1, shape.heads, 1, (rows, before + rows), shape.head_dim)
        found.gemm(rows, width, heads)
        for columns in [2 * inner] if self.joined else [inner, inner]:
            found.gemm(rows, columns, width)
        wide = BF16_BYTES * rows * inner
        if not self.compiled:
            found.stream(wide, wide)
        found.stream(2 * wide, wide)
        found.gemm(rows, width, inner)
        return found

    def _attention(
        self, found: Tally, sequences: int, heads: int, kv_heads: int, tokens: tuple[int, int], dim: int
    ) -> None:
        found.device_s += shared_attention_s(self.machine, sequences, heads, kv_heads, *tokens, dim)
        found.flops += 4.0 * sequences * heads * tokens[0] * tokens[1] * dim
        found.attentions += 1

    def _residuals(self, found: Tally, size: float, norm: Moved) -> None:
        """Two norms, of kernels that move so much, and two sums; compiled, a sum and the norm after it are one."""
        for _ in range(2):
            if self.compiled:
                found.stream(2 * size, 2 * size)
                continue
            found.stream(2 * size, size)
            for read, written in norm:
                found.stream(read * size, written * size)
