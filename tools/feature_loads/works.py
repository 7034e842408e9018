"""Loads of tools/feature_loads: requests with their prompts, prefixes, adapters and ways of sampling."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.spec import Requests

COUNT, BURST = 410, 160
PLAIN_PER_S = 11.0
"""A bit more than half of what an 8B model sustains on an H200 at 1,024 tokens in and 256 out."""
PLAIN = (1024, 256)
STATIC = (1024, 128)
OVER_GROUPS, OVER_PER_S = 80, 9.0
"""Prefixes of 2,560 tokens that 21 GiB of KV cache cannot all hold and 32 GiB of host memory can."""
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrompts:
    """Prompts of groups: `share` of about `tokens` is the group's prefix. Less is found in the cache, since the first
    request of a group finds none."""

    share: float
    groups: int = 16
    tokens: int = 2048


SHARED = {"shared-30": SharedPrompts(share=0.32), "shared-80": SharedPrompts(share=0.84)}
OTHER_SHARED = {
    "shared-50": SharedPrompts(share=0.55, groups=40, tokens=1200),
    "shared-70": SharedPrompts(share=0.75, groups=24, tokens=5000),
}
"""For a model that no fit has seen: more groups, shorter and longer prompts."""
CHECK_SHARED = {
    "shared-20": SharedPrompts(share=0.22, groups=60, tokens=1600),
    "shared-60": SharedPrompts(share=0.65, groups=12, tokens=3000),
}
"""For another one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """A load with its prompts, adapters and ways of sampling."""

    name: str
    requests: Requests
    prompts: Sequence[Sequence[int]]
    group: Ints | None = None
    prefix_tokens: Ints | None = None
    adapter: Ints | None = None
    """From 1 on; 0 is none."""
    greedy: Ints | None = None
    about: Mapping[str, float] = field(default_factory=dict)
    fresh: bool = True
    """Whether cached prefixes are forgotten before."""

    def columns(self) -> dict[str, Any]:
        given = {"group": self.group, "prefix_tokens": self.prefix_tokens, "adapter": self.adapter}
        found = given | {"greedy": self.greedy}
        return {name: values.tolist() for name, values in found.items() if values is not None}


class Maker:
    """Loads for one model, the same ones each time."""

    def __init__(self, vocabulary: int, scale: float = 1.0) -> None:
        self._vocabulary, self._scale = vocabulary, scale

    def _draw(self, name: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(name.encode()))

    def _tokens(self, draw: np.random.Generator, count: int) -> list[int]:
        return [int(token) for token in draw.integers(10, self._vocabulary - 10, count)]

    def _arrivals(self, name: str, rate_per_s: float, count: int) -> NDArray[np.float64]:
        """Poisson arrivals at a rate; all at once where it is 0."""
        count = max(1, round(count * self._scale))
        if not rate_per_s:
            return np.zeros(count)
        times = np.cumsum(self._draw(f"{name} arrivals").exponential(1 / rate_per_s, count))
        return np.asarray(times - times[0])

    def plain(
        self,
        name: str,
        rate_per_s: float,
        count: int,
        lengths: tuple[int, int] = PLAIN,
        *,
        adapters: int = 0,
        patterns: bool = False,
        greedy: float = 0.0,
    ) -> Work:
        """Requests of one length that share nothing.

        adapters: how many are asked for, each as often as the others.
        patterns: whether a prompt is a few tokens over and over.
        greedy:   share of the requests that take the likeliest token each time.
        """
        arrivals = self._arrivals(name, rate_per_s, count)
        draw = self._draw(name)
        prompts = []
        for _ in arrivals:
            length = int(draw.integers(24, 65)) if patterns else lengths[0]
            tokens = self._tokens(draw, length)
            prompts.append((tokens * (lengths[0] // length + 1))[: lengths[0]])
        each = len(arrivals)
        requests = Requests(arrivals, np.full(each, lengths[0], np.int64), np.full(each, lengths[1], np.int64))
        return Work(
            name=name,
            requests=requests,
            prompts=prompts,
            adapter=draw.permutation(np.arange(each) % adapters) + 1 if adapters else None,
            greedy=(draw.random(each) < greedy).astype(np.int64),
            about={
                "rate_per_s": rate_per_s, "count": each, "adapters": adapters, "patterns": int(patterns),
                "greedy_share": greedy,
            },
        )  # fmt: skip

    def static(self, count: int, **options: Any) -> Work:
        return self.plain("static", 0.0, count, STATIC, **options)

    def shared(
        self,
        name: str,
        mix: SharedPrompts,
        rate_per_s: float,
        count: int,
        *,
        apart: bool = False,
    ) -> Work:
        """Prompts of which a share is the prefix of their group; some groups are asked for more.

        apart: the same lengths, but no prompt has a token in common with another.
        """
        share, groups, tokens = mix.share, mix.groups, mix.tokens
        arrivals = self._arrivals(name, rate_per_s, count)
        draw = self._draw(name)
        each = len(arrivals)
        weights = 1 / np.arange(1, groups + 1) ** 0.7
        group = draw.choice(groups, each, p=weights / weights.sum())
        mean = tokens * share
        lengths = draw.integers(round(0.7 * mean), round(1.3 * mean), groups)
        prefixes = [self._tokens(draw, int(length)) for length in lengths]
        own = draw.integers(round(0.5 * (tokens - mean)), round(1.5 * (tokens - mean)), each)
        outputs = draw.integers(64, 193, each)
        prompts = []
        for index, length in zip(group, own, strict=True):
            prefix = self._tokens(draw, int(lengths[index]))
            prompts.append((prefix if apart else prefixes[index]) + self._tokens(draw, int(length)))
        inputs = np.array([len(prompt) for prompt in prompts], np.int64)
        return Work(
            name=f"{name}-apart" if apart else name,
            requests=Requests(arrivals, inputs, outputs.astype(np.int64)),
            prompts=prompts,
            group=np.full(each, -1) if apart else group,
            prefix_tokens=np.zeros(each, np.int64) if apart else lengths[group],
            about={"rate_per_s": rate_per_s, "share": share, "count": each},
        )

    def over(self, fill: bool) -> Work:
        """Prefixes of 2,560 tokens that together exceed the KV cache: each once (fill), then any of them."""
        arrivals = np.zeros(OVER_GROUPS) if fill else self._arrivals("over", OVER_PER_S, COUNT)
        draw = self._draw("prefixes")
        prefixes = [self._tokens(draw, 2560) for _ in range(OVER_GROUPS)]
        draw = self._draw("over-fill" if fill else "over")
        each = len(arrivals)
        group = np.arange(OVER_GROUPS) if fill else draw.integers(0, OVER_GROUPS, each)
        own = draw.integers(64, 321, each)
        prompts = [prefixes[i] + self._tokens(draw, int(n)) for i, n in zip(group, own, strict=True)]
        return Work(
            name="over-fill" if fill else "over",
            requests=Requests(arrivals, own + 2560, np.full(each, 8 if fill else 64, np.int64)),
            prompts=prompts,
            group=group,
            prefix_tokens=np.full(each, 2560),
            about={"rate_per_s": 0.0 if fill else OVER_PER_S, "count": each},
            fresh=fill,
        )

    def cold(self, adapters: int) -> Work:
        """A short request for each adapter, one after another, none of which was loaded before."""
        draw = self._draw("cold")
        prompts = [self._tokens(draw, 64) for _ in range(adapters)]
        lengths = (np.full(adapters, 64, np.int64), np.full(adapters, 4, np.int64))
        requests = Requests(np.arange(adapters) * np.float64(0.4), *lengths)
        return Work(name="cold", requests=requests, prompts=prompts, adapter=np.arange(adapters) + 1)
