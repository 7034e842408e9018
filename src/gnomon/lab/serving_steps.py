"""Steps of a small decoder that serves: decodes of a batch with its KV cache, chunks of a prompt, or both in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import Check
from gnomon.lab.bench import SEED, Bench


@dataclass(frozen=True, slots=True)
class ServingDecoder:
    """Blocks, the cache of sequences that decode, whose last place is the new token's, and that of one prompt."""

    torch: Any
    flats: Sequence[Any]
    heads: int
    cache: Sequence[tuple[Any, Any]]
    """Keys and values of each block, [sequences, heads, context, head_dim]."""
    prompt: Sequence[tuple[Any, Any]]
    """[1, heads, tokens, head_dim]."""

    def step(self, decodes: Any, chunk: Any, start: int = 0) -> tuple[Any, Any]:
        """Outputs of one token of each sequence [sequences, width] and of the prompt's tokens from `start` on
        [tokens, width]; either may have no rows."""
        count = len(decodes)
        functional, x = self.torch.nn.functional, self.torch.cat([decodes, chunk])
        width = x.shape[-1]
        for flat, cache, prompt in zip(self.flats, self.cache, self.prompt, strict=True):
            qkv, out, up, down = blocks.views(flat, width)
            split = functional.linear(functional.layer_norm(x, (width,)), qkv).view(len(x), 3, self.heads, -1)
            mixed = []
            if count:
                mixed.append(self._decoded(split[:count], cache))
            if len(x) > count:
                mixed.append(self._prefilled(split[count:], prompt, start))
            x = x + functional.linear(self.torch.cat(mixed).view(x.shape), out)
            wide = functional.linear(functional.layer_norm(x, (width,)), up)
            x = x + functional.linear(functional.gelu(wide), down)
        return x[:count], x[count:]

    def _decoded(self, split: Any, cache: tuple[Any, Any]) -> Any:
        """One query of each sequence over all of its cache."""
        query, key, value = split.unbind(1)
        keys, values = cache
        keys[:, :, -1], values[:, :, -1] = key, value
        found = self.torch.nn.functional.scaled_dot_product_attention(query[:, :, None], keys, values)
        return found[:, :, 0].flatten(1)

    def _prefilled(self, split: Any, prompt: tuple[Any, Any], start: int) -> Any:
        """Queries over all of the prompt up to each of them."""
        from torch.nn.attention.bias import causal_lower_right

        query, key, value = split.permute(1, 2, 0, 3)[:, None]
        end = start + len(split)
        keys, values = prompt
        keys[:, :, start:end], values[:, :, start:end] = key, value
        attend, seen = self.torch.nn.functional.scaled_dot_product_attention, (keys[:, :, :end], values[:, :, :end])
        if not start:
            found = attend(query, *seen, is_causal=True)
        else:
            found = attend(query, *seen, attn_mask=causal_lower_right(query.shape[2], end))
        return found[0].transpose(0, 1).flatten(1)

    def chunked(self, decodes: Any, prompt: Any, chunk: int) -> tuple[Any, Any]:
        """A prompt in chunks, each in a step with a decode; the last decode's output and the prompt's."""
        found, mine = [], decodes
        for start in range(0, len(prompt), chunk):
            mine, some = self.step(decodes, prompt[start : start + chunk], start)
            found.append(some)
        return mine, self.torch.cat(found)

    def prefill(self, prompt: Any) -> Any:
        return self.step(prompt[:0], prompt)[1]

    def decode(self, decodes: Any) -> Any:
        return self.step(decodes, decodes[:0])[0]


def served(bench: Bench, sizes: dict[str, int], dtype: Any = None) -> ServingDecoder:
    """A decoder of random weights, with random caches."""
    torch, width, heads = bench.torch, sizes["width"], sizes["heads"]
    dtype = dtype or torch.bfloat16
    generator = bench.generator(SEED + 200)

    def cache(sequences: int, tokens: int) -> list[tuple[Any, Any]]:
        shape = (sequences, heads, tokens, width // heads)
        return [
            (
                bench.normal(*shape, dtype=dtype, generator=generator),
                bench.normal(*shape, dtype=dtype, generator=generator),
            )
            for _ in range(sizes["layers"])
        ]

    flats = [
        bench.normal(blocks.parameters(width), dtype=dtype, generator=generator, scale=0.4 * width**-0.5)
        for _ in range(sizes["layers"])
    ]
    return ServingDecoder(
        torch, flats, heads, cache(sizes["sequences"], sizes["context"]), cache(1, sizes["prompt"])
    )  # fmt: skip


def against_definition(bench: Bench) -> Check:
    """A prompt in chunks and a token after it, in fp32, against all of them at once by definition in fp64."""
    torch, tokens = bench.torch, 21
    sizes = {"layers": 2, "width": 64, "heads": 4, "sequences": 1, "context": tokens, "prompt": tokens - 1}
    small = served(bench, sizes, torch.float32)
    x = bench.normal(tokens, 64, dtype=torch.float32, generator=bench.generator(SEED + 201))
    others = x[:1]
    prompt = small.chunked(others, x[:-1], 8)[1]
    for (keys, values), (there, here) in zip(small.cache, small.prompt, strict=True):
        keys[:, :, :-1], values[:, :, :-1] = there, here
    mine = torch.cat([prompt, small.decode(x[-1:])]).double()
    truth = x.double()[None]
    for flat in small.flats:
        truth = blocks.plainly(torch, truth, flat.double(), 4)
    found = float((mine - truth[0]).abs().max() / truth.abs().max())
    return Check(what="a prompt in chunks and a token after it against their definition", difference=found, bound=1e-4)
