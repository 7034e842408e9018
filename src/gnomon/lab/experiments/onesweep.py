"""Onesweep: keys moved to the bins of a digit in one read and one write, against counting them in a read before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gnomon.cost.machine import Machine
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import graphed
from gnomon.lab.priced import stream_s, torch_machine
from gnomon.lab.ways import Ways
from gnomon.spec import Chip

BITS, BINS = 4, 16
DIGITS = 8
"""Of a key of 31 bits."""
ROW = 128
TWO, ONE, LIBRARY = "counted before", "one pass", "torch.sort"
UNIFORM, SKEWED = "uniform", "skewed"
KEY, INDEX = 4.0, 8.0
COUNT_BLOCK, REPEATS = 4096, 8
RANKED, COUNTED = 77.0, 16.0
"""Instructions of a thread for each of its keys, in the kernels as built for sm_90: ranked and moved, and counted."""
RANKED_AHEAD = 98.0
"""Likewise, with the sums of tiles before."""
LATENCY_S = 0.7e-6
"""Of a load or an atomic in the L2 cache that another one waits for."""
ROW_BYTES = 2 * BINS * KEY / ROW
"""Where rows begin, written and read, for each key."""


class KeyTile(NamedTuple):
    """Rows of 128 keys, warps, and tiles whose sums are read at once."""

    rows: int
    warps: int
    window: int = 0

    @property
    def keys(self) -> int:
        return self.rows * ROW

    @property
    def name(self) -> str:
        return f"tiles of {self.keys}" + (f", {self.window} read at once" if self.window else "")


TWO_TILES = (KeyTile(16, 4), KeyTile(32, 8), KeyTile(64, 16))
ONE_TILES = (KeyTile(16, 4, 64), KeyTile(32, 8, 64), KeyTile(32, 8, 128), KeyTile(64, 16, 128))


@dataclass(frozen=True, slots=True)
class _Keys:
    """Non-negative keys of 32 bits, and room for them to move."""

    torch: Any
    keys: Any
    out: Any
    spare: Any

    def counted(self, tile: KeyTile, keys: Any, out: Any, digit: int) -> Any:
        """Counts of each tile, their prefix sums, then the keys."""
        from gnomon.lab.kernels import binning

        size, tiles = keys.numel(), -(-keys.numel() // tile.keys)
        counts = self._whole(BINS * tiles)
        shift = BITS * digit
        binning.count[(tiles,)](keys, counts, size, shift, tiles, BLOCK=tile.keys, num_warps=tile.warps)
        places = counts.cumsum(0, dtype=self.torch.int32).sub_(counts)
        scratch = self._whole(BINS * tile.rows * tiles)
        binning.scatter[(tiles,)](keys, out, places, scratch, size, shift, tiles, ROWS=tile.rows, num_warps=tile.warps)
        return out

    def starts(self) -> Any:
        """Where the bins of every digit begin, by one read of the keys."""
        from gnomon.lab.kernels import binning

        size = self.keys.numel()
        found = self._whole(DIGITS * BINS).zero_().view(DIGITS, BINS)
        programs = -(-size // (COUNT_BLOCK * REPEATS))
        binning.totals[(programs,)](
            self.keys, found, size, DIGITS=DIGITS, BLOCK=COUNT_BLOCK, REPEATS=REPEATS, num_warps=8
        )
        return found.cumsum(1, dtype=self.torch.int32).sub_(found)

    def swept(self, tile: KeyTile, starts: Any, keys: Any, out: Any, digit: int) -> Any:
        """One kernel; starts [8, 16] has where the bins begin."""
        from gnomon.lab.kernels import binning

        size, tiles = keys.numel(), -(-keys.numel() // tile.keys)
        status = self._whole(BINS * tiles + 1).zero_()
        scratch = self._whole(BINS * tile.rows * tiles)
        binning.one_pass[(tiles,)](
            keys, out, starts[digit], status, scratch, status[BINS * tiles :], size, BITS * digit,
            ROWS=tile.rows, WINDOW=tile.window, num_warps=tile.warps,
        )  # fmt: skip
        return out

    def sorted(self, move: Callable[[Any, Any, int], Any]) -> Any:
        """Every digit, the lowest first; the last of an even number of moves ends in `out`."""
        source = self.keys
        for digit in range(DIGITS):
            target = self.out if digit % 2 else self.spare
            source = move(source, target, digit)
        return source

    def sorted_once_counted(self, tile: KeyTile) -> Any:
        return self.sorted(partial(self.swept, tile, self.starts()))

    def gathered(self, keys: Any, out: Any, digit: int) -> Any:
        """Each bin's keys picked out by PyTorch."""
        digits = (keys >> (BITS * digit)) & (BINS - 1)
        return out.copy_(self.torch.cat([keys[digits == one] for one in range(BINS)]))

    def truth(self) -> Any:
        """Keys in the order of their lowest digit, by PyTorch's stable sort."""
        order = self.torch.sort((self.keys & (BINS - 1)).to(self.torch.uint8), stable=True).indices
        return self.keys[order]

    def _whole(self, count: int) -> Any:
        return self.torch.empty(count, dtype=self.torch.int32, device=self.keys.device)


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.need_triton("keys moved by Triton kernels on a GPU")
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    done: dict[tuple[int, str, bool], Ways] = {}
    for row in rows(sizes):
        count, contents, whole = int(row.shape["keys"]), str(row.shape["contents"]), row.shape["digits"] != 1
        if (count, contents, whole) not in done:
            bench.release()
            bench.tell(f"{count} {contents} keys, {'sorted' if whole else 'one digit'}")
            ways = done[count, contents, whole] = Ways(bench)
            _timed(ways, _drawn(bench, count, contents), contents, whole)
            checks += ways.checks
            notes += ways.notes
        ways = done[count, contents, whole]
        plain, mine = (
            ways.fastest(tuple(name for name in ways.runs if name.startswith(str(row.shape[which]))))
            for which in ("plain", "technique")
        )
        if plain and mine:
            shape = dict(row.shape) | {"plain_way": plain, "way": mine}
            two, one = ways.runs[plain], ways.runs[mine]
            compared.append(row.compared(two, one, deferred_s=0.0, shape=shape))
    return Findings(checks=tuple(checks), compared=tuple(compared), notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "Triton kernels on 31-bit keys in words of 32, digits of 4 bits: moved straight from registers, so that a warp "
    "writes to as many as 16 places; device time in a captured CUDA graph; each side's fastest tile",
    "one digit: where the 16 bins begin is known, as from the one read that counts all digits and is part of a sort; "
    "torch.sort also returns 64-bit indices; skewed: each bit is one with probability 1/8",
)


def _timed(ways: Ways, task: _Keys, contents: str, whole: bool) -> None:
    """Each way checked, timed, and checked again after all those calls."""
    torch, bench = task.torch, ways.bench
    truth = torch.sort(task.keys).values if whole else task.truth()
    for name, call in _calls(bench, task, whole).items():
        task.out.fill_(-1)
        task.spare.fill_(-1)
        what = f"{task.keys.numel()} {contents} keys, {'sorted' if whole else 'one digit'}, {name}"
        found = ways.attempt(f"{what},", call)
        if found is None:
            continue
        ways.checks.append(Check(what=f"{what}: keys out of place", difference=_apart(found, truth), bound=0.0))
        if not ways.checks[-1].ok:
            ways.notes.append(f"{what} is wrong and not timed")
            continue
        run = ways.attempt(f"{what}, timed,", partial(graphed, bench, call))
        if run is None:
            continue
        ways.runs[name] = run
        if name != LIBRARY:
            late = _apart(task.out, truth)
            ways.checks.append(Check(what=f"{what}: keys out of place after timing", difference=late, bound=0.0))


def _apart(found: Any, truth: Any) -> float:
    return float((found != truth).sum())


def _calls(bench: Bench, task: _Keys, whole: bool) -> dict[str, Callable[[], Any]]:
    """Ways by their name; where there is no GPU, bins gathered by PyTorch in place of the kernels."""
    library: dict[str, Callable[[], Any]] = {LIBRARY: lambda: task.torch.sort(task.keys).values} if whole else {}
    if bench.device != "cuda":
        gather = partial(task.sorted, task.gathered) if whole else partial(task.gathered, task.keys, task.out, 0)
        return library | {TWO: gather, ONE: gather}
    if whole:
        two = {f"{TWO}, {one.name}": partial(task.sorted, partial(task.counted, one)) for one in TWO_TILES}
        one_pass = {f"{ONE}, {one.name}": partial(task.sorted_once_counted, one) for one in ONE_TILES}
        return library | two | one_pass
    starts = task.starts()
    two = {f"{TWO}, {one.name}": partial(task.counted, one, task.keys, task.out, 0) for one in TWO_TILES}
    return two | {f"{ONE}, {one.name}": partial(task.swept, one, starts, task.keys, task.out, 0) for one in ONE_TILES}


def _drawn(bench: Bench, count: int, contents: str) -> _Keys:
    torch, generator = bench.torch, bench.generator(SEED + 110)

    def drawn() -> Any:
        return torch.randint(0, 2**31 - 1, (count,), dtype=torch.int32, device=bench.device, generator=generator)

    keys = drawn()
    if contents == SKEWED:
        for _ in range(2):
            keys &= drawn()
    return _Keys(torch, keys, torch.empty_like(keys), torch.empty_like(keys))


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return tuple(_rows(sizes))


def _rows(sizes: Mapping[str, int]) -> Iterator[LabRow]:
    for count in dict.fromkeys((sizes["keys"], sizes["few"])):
        for contents in (UNIFORM, SKEWED):
            shape = {"keys": count, "contents": contents, "digits": 1, "plain": TWO, "technique": ONE}
            yield LabRow(what=f"{count} {contents} keys, one digit: {ONE} against {TWO}", shape=shape)
        for plain in (TWO, LIBRARY):
            shape = {"keys": count, "contents": UNIFORM, "digits": DIGITS, "plain": plain, "technique": ONE}
            yield LabRow(what=f"{count} keys sorted: {ONE} against {plain}", shape=shape)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Memory and then instructions of each pass: few programs fit a multiprocessor, and each waits for its keys first.

    torch.sort moves keys with their indices, which are written before, by digits of eight bits.
    """
    machine, count, lanes = torch_machine(chip), float(row.shape["keys"]), chip.rates_flops["fp32"] / 2
    size, digits = KEY * count, int(row.shape["digits"])

    def passed(read: float, written: float, instructions: float) -> float:
        return stream_s(machine, read, written) + count * instructions / lanes

    extra = ROW_BYTES * count / 2
    tiles = count / (ROW * 32)
    summed = 2 * stream_s(machine, BINS * KEY * tiles, BINS * KEY * tiles)
    counting = max(stream_s(machine, size, 0.0), count * COUNTED / lanes)
    two = counting + summed + passed(size + extra, size + extra, RANKED)
    one = passed(size + extra, size + extra, RANKED_AHEAD) + stream_s(machine, 0.0, BINS * KEY * tiles) + 2 * LATENCY_S
    technique = digits * one
    if digits > 1:
        technique += max(stream_s(machine, size, 0.0), digits * count * COUNTED / lanes)
    plain = digits * two if row.shape["plain"] == TWO else _library_s(machine, count)
    by = f"bytes and instructions of each pass on {chip.name}, one after the other"
    return Predicted.of_seconds(plain, technique, by)


def _library_s(machine: Machine, count: float) -> float:
    shape = {"keys": count, "key_bytes": KEY, "value_bytes": INDEX, "digit_bits": 8.0, "reads": 1.0}
    sort = machine.seconds("radix_sort", "fp32", {name: np.array([value]) for name, value in shape.items()})
    return float(sort[0]) + stream_s(machine, 0.0, INDEX * count)


EXPERIMENT = Experiment(
    slug="onesweep",
    title="Onesweep: a digit's keys moved in one pass over memory",
    checks="every key is where PyTorch's stable sort puts it, at once and after all timed calls",
    claim=LabClaim(
        what="29.4 billion keys of 32 bits per second and about 1.5 times CUB of the time, on an A100",
        comparable=False,
        why="the paper's kernels sort a tile in shared memory and move eight bits at a time, and are under "
        "torch.sort by now; these are Triton kernels of four bits, one pass against two by the same means",
    ),
    sizes=(
        Size("keys", "keys of 31 bits", default=2**28, on_cpu=5000, least=256, most=2**29 - 1),
        Size("few", "fewer keys, which the L2 cache holds", default=2**22, on_cpu=3000, least=256, most=2**29 - 1),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
