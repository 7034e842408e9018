"""Long contexts at peak: switching users by the link to the host, against computing their prefill anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.errors import InputError
from gnomon.lab.base import (
    BF16_BYTES,
    Check,
    Compared,
    Experiment,
    Findings,
    LabClaim,
    LabRow,
    LabRun,
    Predicted,
    Rates,
    Size,
)
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.priced import attention_s, gemm_s, stream_s, torch_machine
from gnomon.lab.stream import link_rates
from gnomon.lab.ways import close
from gnomon.spec import Chip

PREFILL, SWAP, AT_ONCE = "prefilled anew", "swapped out and in", "swapped out and in at once"
OUT, IN = "gpu_to_host_bytes_s", "host_to_gpu_bytes_s"
KV = 2
"""Keys and values."""
EPSILON = 1e-5
FEW = 32
"""First tokens, which are checked in fp64; none after them changes them."""
BOUND = 0.1
"""Of the root mean square, the largest difference of a layer in bf16."""
STREAMS = ((1, 1), (2, 1))
"""Reads and writes of a norm and of a residual, in activations."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A Llama layer without positions, whose key-value heads are shared."""

    torch: Any
    heads: int
    weights: Mapping[str, Any]

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Outputs, and keys and values [2, kv_heads, tokens, dim], of one prompt [tokens, width]."""
        functional, (tokens, width) = self.torch.nn.functional, x.shape
        near = functional.rms_norm(x, (width,), eps=EPSILON)
        query, key, value = (
            functional.linear(near, self.weights[name]).view(tokens, -1, width // self.heads).transpose(0, 1)[None]
            for name in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + functional.linear(mixed[0].transpose(0, 1).reshape(x.shape), self.weights["output"])
        near = functional.rms_norm(x, (width,), eps=EPSILON)
        wide = functional.silu(functional.linear(near, self.weights["gate"]))
        wide *= functional.linear(near, self.weights["up"])
        return x + functional.linear(wide, self.weights["down"]), self.torch.cat((key, value))

    def to(self, dtype: Any) -> _Layer:
        return _Layer(self.torch, self.heads, {name: each.to(dtype) for name, each in self.weights.items()})


@dataclass(frozen=True, slots=True)
class _Users:
    """A user whose cache is on the GPU, and another whose cache is in pinned host memory."""

    bench: Bench
    leaving: Any
    coming: Any
    left: Any
    """Room on the host for the one that leaves."""
    arrived: Any
    """Room on the GPU for the one that comes."""
    sides: tuple[Any, Any]

    def swapped(self) -> None:
        self.left.copy_(self.leaving, non_blocking=True)
        self.arrived.copy_(self.coming, non_blocking=True)

    def at_once(self) -> None:
        """Each way on a stream of its own."""
        bench, start = self.bench, self.bench.recorded()
        done = []
        for side, target, source in zip(
            self.sides, (self.left, self.arrived), (self.leaving, self.coming), strict=True
        ):
            with bench.within(side):
                bench.wait(start)
                target.copy_(source, non_blocking=True)
                done.append(bench.recorded())
        for event in done:
            bench.wait(event)

    def checked(self, what: str, swap: Callable[[], None]) -> Check:
        """Bytes that differ after a swap into rooms that were cleared."""
        self.left.zero_()
        self.arrived.zero_()
        swap()
        self.bench.synchronize()
        pairs = ((self.left, self.leaving), (self.arrived, self.coming))
        unlike = sum(float((mine.to(theirs.device) != theirs).sum()) for mine, theirs in pairs)
        return Check(what=f"{what}: numbers of either cache that differ", difference=unlike, bound=0.0)


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if sizes["width"] % sizes["heads"] or sizes["heads"] % sizes["kv_heads"]:
        raise InputError(f"{sizes['width']} channels are not {sizes['heads']} heads", where="--size heads")
    facts: dict[str, Any] = dict(link_rates(bench))
    checks: list[Check] = []
    compared: list[Compared] = []
    with bench.torch.no_grad():
        layer = _drawn(bench, sizes)
        for tokens in _lengths(sizes):
            bench.release()
            bench.tell(f"{tokens} tokens")
            runs, found = _timed(bench, sizes, layer, tokens)
            checks += found
            for row in rows(sizes):
                plain, mine = (runs[str(row.shape[which])] for which in ("plain", "technique"))
                if row.shape["tokens"] == tokens:
                    compared.append(row.compared(plain, mine, deferred_s=0.0))
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "one layer of Yi-34B's shape without positions, whose cache is one contiguous tensor per user in pinned memory; "
    "wall time from an idle GPU to an idle one; all layers take as many times as long either way",
    "prefilled anew: as engines do that preempt by recomputation; swapped out and in: both halves of a switch",
)


def _timed(bench: Bench, sizes: Mapping[str, int], layer: _Layer, tokens: int) -> tuple[dict[str, LabRun], list[Check]]:
    torch, generator = bench.torch, bench.generator(SEED + 161)
    prompts = [bench.normal(tokens, sizes["width"], dtype=torch.bfloat16, generator=generator) for _ in range(2)]
    checks, caches = [], []
    for user, prompt in enumerate(prompts):
        output, cache = layer(prompt)
        caches.append(cache)
        exact = layer.to(torch.float64)(prompt[:FEW].double())
        for name, mine, truth in (("outputs", output[:FEW], exact[0]), ("cache", cache[:, :, :FEW], exact[1])):
            checks.append(close(f"{tokens} tokens, user {user}, first {name} against fp64", mine, truth, BOUND))
        del output, exact

    def host() -> Any:
        return bench.pinned(cache.numel(), cache.dtype).view(cache.shape)

    users = _Users(
        bench, caches[0], host().copy_(caches[1]), host(), torch.zeros_like(cache), (bench.stream(), bench.stream())
    )
    repeats, nbytes = sizes["repeats"], 2 * int(cache.nbytes)
    runs = {PREFILL: bench.wall(partial(layer, prompts[0]), repeats)}
    for name, swap in ((SWAP, users.swapped), (AT_ONCE, users.at_once)):
        checks.append(users.checked(f"{tokens} tokens, {name}", swap))
        runs[name] = bench.wall(swap, repeats, host_bytes=nbytes)
    return runs, checks


def _drawn(bench: Bench, sizes: Mapping[str, int]) -> _Layer:
    torch, generator = bench.torch, bench.generator(SEED + 160)
    width, ffn, narrow = sizes["width"], sizes["ffn"], _narrow(sizes)
    shapes = {"query": (width, width), "key": (narrow, width), "value": (narrow, width), "output": (width, width)}
    shapes |= {"gate": (ffn, width), "up": (ffn, width), "down": (width, ffn)}
    weights = {
        name: bench.normal(n, k, dtype=torch.bfloat16, generator=generator, scale=k**-0.5)
        for name, (n, k) in shapes.items()
    }
    return _Layer(torch, sizes["heads"], weights)


def _narrow(sizes: Mapping[str, int]) -> int:
    """Channels of keys."""
    return sizes["width"] // sizes["heads"] * sizes["kv_heads"]


def _lengths(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((sizes["tokens"], sizes["short"])))


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("width", "heads", "kv_heads", "ffn")}
    return tuple(
        LabRow(what=f"{tokens} tokens: {mine} against {plain}", shape=shape | {"tokens": tokens} | ways)
        for tokens in _lengths(sizes)
        for plain, mine in ((PREFILL, SWAP), (SWAP, AT_ONCE))
        for ways in ({"plain": plain, "technique": mine},)
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The layer's kernels one after the other; bytes of a cache over the link, each way or both at once."""
    shape = row.shape
    cache = float(KV * BF16_BYTES * int(shape["tokens"]) * _narrow(shape))
    out, back = cache / rates[OUT], cache / rates[IN]
    if shape["plain"] == SWAP:
        return Predicted.of_seconds(out + back, max(out, back), "the link each way, as the run measured it alone")
    by = f"kernels of {chip.name}; the link each way, as the run measured it alone"
    return Predicted.of_seconds(_layer_s(torch_machine(chip), shape), out + back, by)


def _layer_s(machine: Machine, shape: Mapping[str, Any]) -> float:
    tokens, width, heads, ffn = (int(shape[name]) for name in ("tokens", "width", "heads", "ffn"))
    size, wide = float(BF16_BYTES * tokens * width), float(BF16_BYTES * tokens * ffn)
    gemms = [(width, width, 2), (_narrow(shape), width, 2), (ffn, width, 2), (width, ffn, 1)]
    total = sum(count * gemm_s(machine, tokens, n, k) for n, k, count in gemms)
    total += sum(2 * stream_s(machine, read * size, written * size) for read, written in STREAMS)
    total += stream_s(machine, wide, wide) + stream_s(machine, 2 * wide, wide)
    return total + attention_s(machine, 1, heads, tokens, width // heads, causal=True)


EXPERIMENT = Experiment(
    slug="long-context-peak",
    title="Long contexts at peak: a user's cache swapped, against prefilled anew",
    checks="swapped caches are equal bit by bit, a layer's first tokens those in fp64 within what bf16 rounds",
    claim=LabClaim(
        what="Yi-34B on one A100: 14.1 s of prefill at 50K tokens, bound by FLOPs; a switch of users, bound by the "
        "link, about 1.1 s",
        comparable=False,
        why="the paper's are bounds at peak rates of an A100 and of PCIe 4; this is one layer of that model on another "
        "generation, measured",
    ),
    sizes=(
        Size("tokens", "of a long context", default=50_000, on_cpu=80, most=2**18),
        Size("short", "tokens of a short one", default=4096, on_cpu=40, most=2**18),
        Size("width", "channels", default=7168, on_cpu=64, least=16, most=2**15),
        Size("heads", "query heads", default=56, on_cpu=4, most=256),
        Size("kv_heads", "key-value heads, a divisor of those", default=8, on_cpu=2, most=256),
        Size("ffn", "channels inside the MLP", default=20_480, on_cpu=96, least=16, most=2**17),
        Size("repeats", "timed passes", default=7, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(OUT, IN),
)
