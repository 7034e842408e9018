"""Infinite-LLM: decode attention where pieces of the KV cache are, merged by log-sum-exp, against moving them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.errors import InputError
from gnomon.lab.base import BF16_BYTES, Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import graphed
from gnomon.lab.priced import stream_s, torch_machine
from gnomon.lab.stream import link_rates
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

MOVED, PLACED = "copied to the GPU", "attended to by the CPU"
WHOLE, PIECES = "one kernel over all", "pieces merged"
REMOTE = (2, 8)
"""One in so many tokens' cache is in host memory."""
CPU, LINK = "cpu_attention_bytes_s", "host_to_gpu_bytes_s"
PROBE_BYTES = 2**29
"""Of a cache whose attention by the CPU is timed alone."""
KV = 2
"""Keys and values."""
MERGED = 5
"""Kernels of a merge: weights of pieces, to fp32, weighted, summed, to bf16."""
BOUND = 0.05
"""Of the outputs' root mean square, the largest difference: bf16 weights and partial outputs."""
REPEATS = 15


@dataclass(frozen=True, slots=True)
class Cache:
    """Pieces of a sequence's keys and values [pieces, heads, tokens, dim]."""

    keys: Any
    values: Any

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.values.nbytes)


def partials(torch: Any, query: Any, cache: Cache) -> tuple[Any, Any]:
    """Outputs [pieces, heads, dim] of attention to each piece alone, and their log-sum-exps [pieces, heads]."""
    queries = query[None, :, None].expand(len(cache.keys), -1, -1, -1).contiguous()
    given = (queries, cache.keys, cache.values, 0.0, False)
    if query.device.type == "cpu":
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*given)
    else:
        found = torch.ops.aten._scaled_dot_product_flash_attention(*given, False)
    return found[0][:, :, 0], found[1][:, :, 0].float()


def merged(torch: Any, outputs: Any, sums: Any) -> tuple[Any, Any]:
    """Attention to all pieces [heads, dim], and its log-sum-exp [heads]."""
    weights = torch.softmax(sums, 0)
    return (outputs.float() * weights[..., None]).sum(0).to(outputs.dtype), torch.logsumexp(sums, 0)


@dataclass(frozen=True, slots=True)
class _Step:
    """A decode step's attention: a query [heads, dim] on the GPU, a cache there, and one in pinned host memory."""

    bench: Bench
    query: Any
    local: Cache
    remote: Cache
    slot: Cache
    """Room on the GPU for the remote cache."""
    near: Any
    """Room on the host for the query, and for what comes back: an output and its log-sum-exp, in fp32."""
    back: Any
    side: Any

    def moved(self) -> Any:
        """The remote cache is copied while the GPU attends to its own."""
        torch, bench = self.bench.torch, self.bench
        free = bench.recorded()
        with bench.within(self.side):
            bench.wait(free)
            self.slot.keys.copy_(self.remote.keys, non_blocking=True)
            self.slot.values.copy_(self.remote.values, non_blocking=True)
            arrived = bench.recorded()
        own = partials(torch, self.query, self.local)
        bench.wait(arrived)
        theirs = partials(torch, self.query, self.slot)
        return merged(torch, *(torch.cat(both) for both in zip(own, theirs, strict=True)))[0]

    def placed(self) -> Any:
        """The query is copied to the host, whose output and log-sum-exp come back; both attend at once."""
        torch, bench = self.bench.torch, self.bench
        self.near.copy_(self.query, non_blocking=True)
        asked = bench.recorded()
        own = partials(torch, self.query, self.local)
        asked.synchronize()
        output, total = merged(torch, *partials(torch, self.near, self.remote))
        self.back[:, :-1].copy_(output)
        self.back[:, -1].copy_(total)
        theirs = self.back.to(bench.device, non_blocking=True)
        outputs = torch.cat((own[0].float(), theirs[None, :, :-1]))
        return merged(torch, outputs, torch.cat((own[1], theirs[None, :, -1])))[0]

    def truth(self) -> Any:
        """Softmax over all tokens at once, in fp64, head by head."""
        torch, found = self.bench.torch, []
        for head in range(len(self.query)):
            keys, values = (
                torch.cat([getattr(each, name)[:, head].flatten(0, 1).to(self.bench.device) for each in self.caches])
                for name in ("keys", "values")
            )
            scores = keys.double() @ self.query[head].double() / self.query.shape[-1] ** 0.5
            found.append(torch.softmax(scores, 0) @ values.double())
        return torch.stack(found)

    @property
    def caches(self) -> tuple[Cache, Cache]:
        return self.local, self.remote


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    least = max(REMOTE) * sizes["pieces"]
    if sizes["tokens"] % least:
        raise InputError(f"{sizes['tokens']} is not a multiple of {least}", where="--size tokens")
    facts: dict[str, Any] = {"cpu_threads": bench.torch.get_num_threads()}
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    with bench.torch.no_grad():
        facts |= _rates(bench, sizes)
        for row in rows(sizes):
            bench.release()
            bench.tell(row.what)
            ways = (_remote if row.shape["plain"] == MOVED else _local)(bench, sizes, row)
            checks += ways.checks
            notes += ways.notes
            plain, mine = (ways.runs.get(str(row.shape[which])) for which in ("plain", "technique"))
            if plain is not None and mine is not None:
                compared.append(row.compared(plain, mine, deferred_s=0.0))
    notes = [*NOTES, *dict.fromkeys(notes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=tuple(notes))


NOTES = (
    "attention of one layer and one query per head; with a remote cache: wall time from an idle GPU to an idle one, "
    "both sides' attention and copies at once; pieces on the GPU: device time in a CUDA graph",
    "the CPU attends with PyTorch's own kernel on as many threads as PyTorch chooses; the paper's other instances are "
    "GPUs, whose queries and results cross a network",
)


def _remote(bench: Bench, sizes: Mapping[str, int], row: LabRow) -> Ways:
    """Both places checked and timed."""
    step, ways = _drawn(bench, sizes, int(row.shape["one_in"])), Ways(bench)
    truth = step.truth()
    for name, call in ((MOVED, step.moved), (PLACED, step.placed)):
        if _checked(ways, f"{row.what}: {name}", call, truth):
            ways.runs[name] = bench.wall(call, REPEATS if bench.timed else 1, warm=2, host_bytes=step.remote.nbytes)
    return ways


def _local(bench: Bench, sizes: Mapping[str, int], row: LabRow) -> Ways:
    """All of the cache on the GPU: one call of PyTorch's attention, and pieces of it merged."""
    torch, ways = bench.torch, Ways(bench)
    step = _drawn(bench, sizes, 1)
    pieces = Cache(*(each.to(bench.device) for each in (step.remote.keys, step.remote.values)))
    truth = step.truth()
    keys, values = (each.transpose(0, 1).flatten(1, 2)[None] for each in (pieces.keys, pieces.values))
    query = step.query[None, :, None]

    def at_once() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(query, keys, values)[0, :, 0]

    def in_pieces() -> Any:
        return merged(torch, *partials(torch, step.query, pieces))[0]

    for name, call in ((WHOLE, at_once), (PIECES, in_pieces)):
        right = _checked(ways, f"{row.what}: {name}", call, truth)
        run = ways.attempt(f"{name}, timed,", partial(graphed, bench, call)) if right else None
        if run is not None:
            ways.runs[name] = run
    return ways


def _checked(ways: Ways, what: str, call: Callable[[], Any], truth: Any) -> bool:
    found = ways.attempt(what, call)
    if found is None:
        return False
    ways.checks.append(close(f"{what}, against fp64", found, truth, BOUND))
    return ways.checks[-1].ok


def _drawn(bench: Bench, sizes: Mapping[str, int], one_in: int) -> _Step:
    """A cache of which one token's in so many is remote. Its keys are larger, and values of a piece have a mean of
    their own, so that a merge with wrong weights is far off."""
    torch, generator = bench.torch, bench.generator(SEED + 150)
    heads, dim, pieces = (sizes[name] for name in ("heads", "dim", "pieces"))
    remote = sizes["tokens"] // one_in

    def drawn(tokens: int, scale: float, shift: float) -> Cache:
        keys, values = (
            bench.normal(pieces, heads, tokens // pieces, dim, dtype=torch.bfloat16, generator=generator, scale=size)
            for size in (scale, 1.0)
        )
        means = torch.linspace(-1, 1, pieces, device=bench.device) + shift
        return Cache(keys, values.add_(means[:, None, None, None].to(values.dtype)))

    theirs, query = drawn(remote, 1.5, 1.0), bench.normal(heads, dim, dtype=torch.bfloat16, generator=generator)
    return _Step(
        bench=bench,
        query=query,
        local=drawn(sizes["tokens"] - remote, 0.5, -1.0),
        remote=Cache(bench.pinned_copy(theirs.keys), bench.pinned_copy(theirs.values)),
        slot=Cache(torch.zeros_like(theirs.keys), torch.zeros_like(theirs.values)),
        near=bench.pinned(heads * dim, torch.bfloat16).view(heads, dim),
        back=bench.pinned(heads * (dim + 1), torch.float32).view(heads, dim + 1),
        side=bench.stream(),
    )


def _rates(bench: Bench, sizes: Mapping[str, int]) -> dict[str, float]:
    """Of the link to the host, and of the CPU's attention to a smaller cache, each measured alone."""
    if not bench.timed:
        return {}
    torch, heads, dim, pieces = bench.torch, sizes["heads"], sizes["dim"], sizes["pieces"]
    nbytes = PROBE_BYTES if bench.device == "cuda" else 2**16
    tokens = max(1, nbytes // (KV * BF16_BYTES * heads * dim * pieces))
    cache = Cache(*(torch.randn(pieces, heads, tokens, dim).to(torch.bfloat16) for _ in range(KV)))
    query = torch.randn(heads, dim).to(torch.bfloat16)
    took = min(bench.seconds(lambda: partials(torch, query, cache)) for _ in range(5))
    return link_rates(bench) | {CPU: cache.nbytes / took}


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("heads", "dim", "tokens", "pieces")}
    remote = tuple(
        LabRow(
            what=f"1/{one_in} of {sizes['tokens']} tokens in host memory: {PLACED} against {MOVED}",
            shape=shape | {"one_in": one_in, "plain": MOVED, "technique": PLACED},
        )
        for one_in in REMOTE
    )
    local = LabRow(
        what=f"{sizes['tokens']} tokens on the GPU: {PIECES} against {WHOLE}",
        shape=shape | {"one_in": 1, "plain": WHOLE, "technique": PIECES},
    )
    return *remote, local


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Bytes of the remote cache over the link or over the CPU's rate, the GPU's own attention beside them; a merge
    beside the reading of a cache that is all on the GPU."""
    shape, machine = row.shape, torch_machine(chip)
    heads, dim, tokens, pieces = (int(shape[name]) for name in ("heads", "dim", "tokens", "pieces"))
    total, one_in = float(KV * BF16_BYTES * heads * dim * tokens), int(shape["one_in"])
    parts = float(BF16_BYTES * heads * dim * pieces)
    merge = MERGED * stream_s(machine, 2 * parts, 2 * parts)
    if shape["plain"] == WHOLE:
        read = stream_s(machine, total, 0.0)
        by = f"bytes of the cache and {MERGED} small kernels on {chip.name}"
        return Predicted.of_seconds(read, read + merge, by)
    remote = total / one_in
    own = stream_s(machine, total - remote, 0.0)
    plain = max(own, remote / rates[LINK]) + stream_s(machine, remote, 0.0) + merge
    by = "the link and the CPU's attention to another cache, as the run measured them alone"
    return Predicted.of_seconds(plain, max(own, remote / rates[CPU]) + merge, by)


EXPERIMENT = Experiment(
    slug="infinite-llm",
    title="Infinite-LLM: decode attention where pieces of the KV cache are",
    checks="attention merged from pieces equals the softmax over all tokens in fp64 within what bf16 rounds",
    claim=LabClaim(
        what="1.03 to 2.4 times the throughput of prior serving systems and contexts 2 to 19 times longer, on 32 A100",
        comparable=False,
        why="the paper's pieces are on other GPUs of a cluster under load; this is one layer's decode step with a "
        "piece in the memory of one GPU's host",
    ),
    sizes=(
        Size("heads", "query heads, each with keys and values", default=40, on_cpu=3, most=256),
        Size("dim", "of a head", default=128, on_cpu=32, least=16, most=256),
        Size(
            "tokens",
            "of the cache, a multiple of 8 x pieces",
            default=65536,
            on_cpu=512,
            least=8,
            most=2**20,
        ),
        Size("pieces", "of each side's cache", default=8, on_cpu=4, most=256),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(CPU, LINK),
)
