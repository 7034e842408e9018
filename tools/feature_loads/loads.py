"""The loads of each engine of tools/feature_loads, in the order they are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.feature_loads.bench import Bench
from tools.feature_loads.works import BURST, COUNT, OTHER_SHARED, PLAIN_PER_S, SHARED, SharedPrompts, Work

SHARE = 0.6
"""Of the saturation rate."""


def statics(bench: Bench, counts: Sequence[int] = (1, 8, 32, 128), **options: Any) -> None:
    for count in counts:
        bench.run(bench.make.static(count, **options))


def at_share(bench: Bench, make: Callable[[str, float, int], Work], name: str, most: float = 1e9) -> float:
    """A burst, and Poisson arrivals at a share of the rate it finished with; that share, or `most` where it is less."""
    saturation = bench.run(make(f"{name}-burst", 0.0, BURST))
    rate = min(most, round(SHARE * saturation, 2)) if saturation else min(most, PLAIN_PER_S)
    bench.run(make(name, rate, COUNT))
    return rate


def base(bench: Bench) -> None:
    for name, mix in SHARED.items():
        rate = at_share(bench, lambda n, r, c, m=mix: bench.make.shared(n, m, r, c), name)  # type: ignore[misc]
        if name == "shared-30":
            bench.run(bench.make.shared(name, mix, rate, COUNT, apart=True))
    statics(bench)
    bench.run(bench.make.plain("plain", PLAIN_PER_S, COUNT))
    bench.run(bench.make.over(fill=True))
    bench.run(bench.make.over(fill=False))
    bench.run(bench.make.plain("plain-burst", 0.0, BURST))


def lora_many(bench: Bench) -> None:
    bench.run(bench.make.cold(32))
    bench.warm(adapters=8)
    at_share(bench, lambda n, r, c: bench.make.plain(n, r, c, adapters=32), "plain", PLAIN_PER_S)
    statics(bench, (1, 8, 32), adapters=8)


def lora_few(bench: Bench) -> None:
    bench.run(bench.make.cold(4))
    bench.warm(adapters=4)
    bench.run(bench.make.plain("plain", PLAIN_PER_S, COUNT, adapters=4))
    statics(bench, adapters=4)
    statics(bench, (8, 128))


def ngram_off(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, patterns=True, greedy=1.0)
    bench.run(bench.make.plain("patterns-half", PLAIN_PER_S, COUNT, patterns=True, greedy=0.5))


def ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, patterns=True, greedy=1.0)
    statics(bench)
    bench.run(bench.make.plain("patterns-half", PLAIN_PER_S, COUNT, patterns=True, greedy=0.5))
    bench.run(bench.make.plain("patterns-greedy", PLAIN_PER_S, COUNT, patterns=True, greedy=1.0))


def fp8_kv(bench: Bench) -> None:
    bench.run(bench.make.plain("plain", PLAIN_PER_S, COUNT))
    statics(bench)


def offload(bench: Bench) -> None:
    bench.run(bench.make.over(fill=True))
    bench.run(bench.make.over(fill=False))
    statics(bench, (8, 128))


def other_base(bench: Bench, mixes: Mapping[str, SharedPrompts] = OTHER_SHARED) -> None:
    for name, mix in mixes.items():
        at_share(bench, lambda n, r, c, m=mix: bench.make.shared(n, m, r, c), name)  # type: ignore[misc]
    at_share(bench, lambda n, r, c: bench.make.plain(n, r, c), "plain")


def other_lora(bench: Bench, adapters: int, slots: int) -> None:
    bench.run(bench.make.cold(adapters))
    bench.warm(adapters=slots)
    statics(bench, (8, 64), adapters=slots)
    at_share(bench, lambda n, r, c: bench.make.plain(n, r, c, adapters=adapters), "plain")
    bench.run(bench.make.plain("plain-slow", 4.0, COUNT // 2, adapters=adapters))


def other_ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, (8, 64), patterns=True, greedy=1.0)
    bench.run(bench.make.plain("patterns-greedy", PLAIN_PER_S, COUNT, patterns=True, greedy=1.0))
    bench.run(bench.make.plain("patterns-half", 0.6 * PLAIN_PER_S, COUNT, patterns=True, greedy=0.5))


def check_lora(bench: Bench) -> None:
    bench.warm(adapters=4)
    statics(bench, (8,), adapters=4)
    bench.run(bench.make.plain("plain", 10.0, COUNT, (700, 200), adapters=4))


def check_ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, (8,), patterns=True, greedy=1.0)
    bench.run(bench.make.plain("patterns-most", 9.0, COUNT, patterns=True, greedy=0.8))


def host_base(bench: Bench, adapters: int = 0) -> None:
    bench.warm(adapters=adapters)
    statics(bench, (1, 32), adapters=adapters)
    bench.run(bench.make.plain("plain", 8.0, COUNT // 2, adapters=adapters))
    bench.run(bench.make.plain("short", 20.0, COUNT // 2, (256, 64), adapters=adapters))
    bench.run(bench.make.plain("long", 4.0, COUNT // 8, (4096, 64), adapters=adapters))


def host_adapters(bench: Bench) -> None:
    bench.run(bench.make.cold(32))
    bench.warm(adapters=8)
    statics(bench, (8, 32), adapters=8)
    bench.run(bench.make.plain("plain", 5.0, COUNT // 2, adapters=32))


def host_ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, (8, 32), patterns=True, greedy=1.0)
    statics(bench, (8, 32))
    bench.run(bench.make.plain("patterns-half", 8.0, COUNT // 2, patterns=True, greedy=0.5))
    bench.run(bench.make.plain("patterns-greedy", 10.0, COUNT // 2, patterns=True, greedy=1.0))
