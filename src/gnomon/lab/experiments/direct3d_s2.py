"""Direct3D-S2: attention of voxels over compressed keys, chosen blocks and their own block, against full attention."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.cost.machine import Machine
from gnomon.errors import InputError
from gnomon.lab.base import (
    BF16_BYTES,
    FP32_BYTES,
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
from gnomon.lab.priced import attention_s, gemm_s, shared_attention_s, stream_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

KV_HEADS, DIM = 2, 64
BLOCK, COMPRESSED, CHOSEN = 64, 16, 8
"""Tokens of a block that is chosen, and of one that is compressed to a key; blocks chosen. As many voxels as a surface
has in 8^3 and in 4^3."""
SHARES = (4, 2, 1)
"""The numbers of tokens that are compared, as parts of the largest."""
FULL = ("FlashAttention", "cuDNN")
BACKENDS = {"FlashAttention": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"}
KERNELS = ((1, 4), (2, 4), (2, 8))
"""Heads of a program, and its warps."""
SPARSE = "chosen blocks"
BOUND = 0.1
"""Of the outputs' root mean square, the largest difference: bf16 in and out, shares of keys in bf16; 0.04 on a CPU."""


@dataclass(frozen=True, slots=True)
class Voxels:
    """Queries [heads, tokens, dim], keys and values of fewer heads, and gates [3, heads, tokens] of the branches."""

    torch: Any
    query: Any
    key: Any
    value: Any
    gates: Any

    @property
    def group(self) -> int:
        return len(self.query) // KV_HEADS

    def pooled(self, x: Any, count: int) -> Any:
        """Means of so many consecutive tokens."""
        return x.unflatten(1, (-1, count)).mean(2)

    def chosen(self) -> Any:
        """The blocks of keys whose mean is nearest to the mean query of each block and all heads that share keys."""
        query = self.pooled(self.query.unflatten(0, (KV_HEADS, -1)).mean(1), BLOCK).float()
        scores = query @ self.pooled(self.key, BLOCK).float().transpose(1, 2)
        return scores.topk(CHOSEN, sorted=False).indices.to(self.torch.int32)

    def compressed(self) -> Any:
        """Attention over means of keys and of values."""
        key, value = (self.pooled(each, COMPRESSED)[None] for each in (self.key, self.value))
        return self.torch.nn.functional.scaled_dot_product_attention(self.query[None], key, value, enable_gqa=True)[0]

    def sparse(self, pack: int, warps: int) -> Any:
        """All three branches, the last two by a kernel."""
        return self.attend(self.chosen(), self.compressed(), pack, warps)

    def attend(self, blocks: Any, out: Any, pack: int, warps: int) -> Any:
        """Into `out`, which has the outputs of compressed keys; heads and tokens may lie in either order there."""
        from gnomon.lab.kernels.chosen_blocks import attend

        heads, tokens, _ = self.query.shape
        attend[(tokens // BLOCK, heads // pack)](
            self.query, self.key, self.value, blocks, self.gates, out, tokens, *out.stride()[:2],
            math.log2(math.e) * DIM**-0.5, GROUP=self.group, PACK=pack, COUNT=CHOSEN, D=DIM, BLOCK=BLOCK,
            num_warps=warps,
        )  # fmt: skip
        return out

    def gathered(self) -> Any:
        """The same by PyTorch's operators: keys and values of chosen blocks copied out."""
        blocks, group, functional = self.chosen(), self.group, self.torch.nn.functional
        query = self.query.unflatten(1, (-1, BLOCK))
        out = self.gates[0][..., None] * self.compressed()
        own = self.torch.arange(query.shape[1], device=query.device)[None, :, None].expand(KV_HEADS, -1, 1)
        for gate, lists in ((self.gates[1], blocks), (self.gates[2], own)):
            key, value = (self._of(each, lists).repeat_interleave(group, 0) for each in (self.key, self.value))
            out = out + gate[..., None] * functional.scaled_dot_product_attention(query, key, value).flatten(1, 2)
        return out.to(self.query.dtype)

    def _of(self, x: Any, lists: Any) -> Any:
        """Tokens [kv heads, blocks, tokens, dim] of each block's list of blocks."""
        parts = x.unflatten(1, (-1, BLOCK))
        return self.torch.stack([parts[i][lists[i].long()].flatten(1, 2) for i in range(KV_HEADS)])

    def full(self, backend: str, key: Any, value: Any) -> Any:
        """Attention over all tokens, keys repeated beforehand."""
        there = self.query.is_cuda
        if there:
            from torch.nn.attention import SDPBackend, sdpa_kernel
        with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])) if there else nullcontext():
            return self.torch.nn.functional.scaled_dot_product_attention(self.query[None], key[None], value[None])[0]

    def definition(self, block: int, chosen: Any, *, full: bool) -> Any:
        """One block's outputs [heads, BLOCK, dim] in fp64, its chosen blocks given."""
        torch = self.torch
        rows = slice(block * BLOCK, (block + 1) * BLOCK)
        key, value = (each.double().repeat_interleave(self.group, 0) for each in (self.key, self.value))
        query = self.query[:, rows].double()

        def over(key: Any, value: Any) -> Any:
            return (query @ key.transpose(1, 2) * DIM**-0.5).softmax(-1) @ value

        if full:
            return over(key, value)
        compressed = over(*(each.unflatten(1, (-1, COMPRESSED)).mean(2) for each in (key, value)))
        lists = chosen[:, block].long().repeat_interleave(self.group, 0)
        parts = [
            torch.stack([each.unflatten(1, (-1, BLOCK))[head, lists[head]].flatten(0, 1) for head in range(len(each))])
            for each in (key, value)
        ]
        gates = self.gates[:, :, rows, None].double()
        return gates[0] * compressed + gates[1] * over(*parts) + gates[2] * over(key[:, rows], value[:, rows])


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if sizes["tokens"] % (BLOCK * SHARES[0]) or sizes["tokens"] < BLOCK * CHOSEN * SHARES[0]:
        hint = f"Give a multiple of {BLOCK * SHARES[0]} from {BLOCK * CHOSEN * SHARES[0]} on."
        raise InputError(f"{sizes['tokens']} tokens make no blocks", where="--size tokens", hint=hint)
    if sizes["heads"] % (2 * KV_HEADS):
        raise InputError(f"{sizes['heads']} heads are no multiple of 4", where="--size heads", hint="Give 4, 8 or 16.")
    bench.need_triton("attention over chosen blocks on a GPU")
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    for row in rows(sizes):
        tokens = int(row.shape["tokens"])
        bench.tell(row.what)
        bench.release()
        ways = Ways(bench)
        with bench.torch.no_grad():
            _timed(ways, drawn(bench, sizes["heads"], tokens))
        checks += ways.checks
        notes += ways.notes
        plain, mine = ways.fastest(FULL), ways.fastest(_kernels(bench))
        if plain and mine:
            shape = dict(row.shape) | {"way": mine, "plain_way": plain, "ways_s": _seconds(ways.runs)}
            runs = ways.runs
            compared.append(row.compared(runs[plain], runs[mine], deferred_s=0.0, shape=shape))
    return Findings(checks=tuple(checks), compared=tuple(compared), notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "forward only; every block has all its voxels, 64 in one that is chosen and 16 in one that is compressed; random "
    "queries and keys",
    "blocks are chosen by the mean query and the mean keys of blocks, where the paper sums scores of compressed keys",
    "full attention by the faster of two backends, its keys repeated for all heads beforehand; sparse: pooling, the "
    "choice, compressed keys by scaled_dot_product_attention and one kernel for the other branches",
)


def _seconds(runs: Mapping[str, LabRun]) -> dict[str, float | None]:
    return {name: run.seconds for name, run in runs.items()}


def _kernels(bench: Bench) -> tuple[str, ...]:
    if bench.device != "cuda":
        return (SPARSE,)
    return tuple(f"{SPARSE}, {pack} heads, {warps} warps" for pack, warps in KERNELS)


def _timed(ways: Ways, voxels: Voxels) -> None:
    """Each way checked on some blocks and timed."""
    bench, blocks = ways.bench, voxels.query.shape[1] // BLOCK
    key, value = (each.repeat_interleave(voxels.group, 0) for each in (voxels.key, voxels.value))
    chosen, tokens = voxels.chosen(), voxels.query.shape[1]
    some = (0, blocks // 3, blocks - 1)

    def near(what: str, full: bool, found: Any) -> Check:
        mine = bench.torch.stack([found[:, block * BLOCK : (block + 1) * BLOCK] for block in some])
        truth = bench.torch.stack([voxels.definition(block, chosen, full=full) for block in some])
        return close(f"{tokens} tokens, {what}: against fp64", mine, truth, BOUND)

    for name in FULL:
        ways.run(name, partial(voxels.full, name, key, value), partial(near, name, True))
    del key, value
    if bench.device != "cuda":
        ways.run(SPARSE, voxels.gathered, partial(near, SPARSE, False))
        return
    for name, (pack, warps) in zip(_kernels(bench), KERNELS, strict=True):
        ways.run(name, partial(voxels.sparse, pack, warps), partial(near, name, False))


def drawn(bench: Bench, heads: int, tokens: int, dtype: Any = None) -> Voxels:
    torch, generator = bench.torch, bench.generator(SEED + 45)
    dtype = dtype or torch.bfloat16
    query, key, value = (
        bench.normal(count, tokens, DIM, dtype=dtype, generator=generator) for count in (heads, KV_HEADS, KV_HEADS)
    )
    gates = bench.normal(3, heads, tokens, dtype=torch.float32, generator=generator).sigmoid()
    return Voxels(torch, query, key, value, gates)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return tuple(_rows(sizes))


def _rows(sizes: Mapping[str, int]) -> Iterator[LabRow]:
    for share in reversed(SHARES):
        tokens = sizes["tokens"] // share
        shape = {"tokens": tokens, "heads": sizes["heads"]}
        yield LabRow(what=f"attention over {tokens:,} tokens, {SPARSE} against full", shape=shape)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Full attention, and each branch as attention over its keys by kernels as good, with what chooses blocks."""
    machine, tokens, heads = torch_machine(chip), int(row.shape["tokens"]), int(row.shape["heads"])
    full = attention_s(machine, 1, heads, tokens, DIM, causal=False)
    compressed = shared_attention_s(machine, 1, heads, KV_HEADS, tokens, tokens // COMPRESSED, DIM)
    blocks, keys = tokens // BLOCK, (CHOSEN + 1) * BLOCK
    kernel = shared_attention_s(machine, blocks, heads, KV_HEADS, BLOCK, keys, DIM)
    by = f"attention of {chip.name} over the keys of each branch, by kernels as good as full attention's"
    return Predicted.of_seconds(full, compressed + kernel + _choice_s(machine, tokens, heads), by)


def _choice_s(machine: Machine, tokens: int, heads: int) -> float:
    """Means of queries over heads, then over a block; of keys over both kinds of blocks, of values over one; a GEMM,
    and what finds the largest, which reads scores as a sort by digits does."""
    side, shared, blocks = BF16_BYTES * tokens * DIM, KV_HEADS * BF16_BYTES * tokens * DIM, tokens // BLOCK
    pooled = stream_s(machine, heads * side, shared) + 4 * stream_s(machine, shared, shared / COMPRESSED)
    scores = FP32_BYTES * KV_HEADS * blocks**2
    found = gemm_s(machine, blocks, blocks, DIM, "fp32", batch=KV_HEADS) + 4 * stream_s(machine, scores, 0.0)
    return pooled + found + stream_s(machine, FP32_BYTES * blocks * CHOSEN, FP32_BYTES * blocks * CHOSEN)


EXPERIMENT = Experiment(
    slug="direct3d-s2",
    title="Direct3D-S2: attention of voxels over compressed keys, chosen blocks and their own",
    checks="full attention and each kernel against fp64 over some blocks, with the blocks that were chosen",
    claim=LabClaim(
        what="3.9 times FlashAttention-2's forward speed and 9.6 times its backward speed; version 1.1: 12.2 and 19.7",
        comparable=False,
        why="the paper's are of shapes whose blocks have unlike numbers of voxels, on another generation; here every "
        "block is full, and only the forward pass runs",
    ),
    sizes=(
        Size("tokens", "the largest number of tokens; a half and a quarter too", default=131_072, on_cpu=2048,
             least=2048, most=2**22),
        Size("heads", "of queries; two of keys", default=16, on_cpu=4, least=4, most=128),
    ),
    work=work,
    rows=rows,
    predict=predict,
)  # fmt: skip
