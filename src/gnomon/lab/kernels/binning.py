# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton kernels that move keys to the bins of a four-bit digit, stably: in one pass, or counted in a pass before.

A tile is ROWS rows of 128 keys, four to a lane of a warp. Sixteen counts stand in one integer: of a lane in 4 bits
each, of a row in two words of 8 bits each, so that ranks inside a row are a few scans over one warp.
"""

import triton
import triton.language as tl

BINS = tl.constexpr(16)
LANES = tl.constexpr(32)
EACH = tl.constexpr(4)
LOW = tl.constexpr(0x0F0F0F0F0F0F0F0F)
"""Counts of even digits in a word of sixteen."""
COUNTED = tl.constexpr(1 << 29)
"""Flag of a word that has a tile's own count, which is below it."""
SUMMED = tl.constexpr(1 << 30)
"""Flag of a word that has the count of a tile and all before it."""


@triton.jit
def _at(tile, ROWS: tl.constexpr):
    """Places of a tile's keys [ROWS, 32, 4]."""
    row = tl.arange(0, ROWS)[:, None, None]
    lane = tl.arange(0, LANES)[None, :, None]
    return ((tile * ROWS + row) * LANES + lane) * EACH + tl.arange(0, EACH)[None, None, :]


@triton.jit
def _ranked(digit, there):
    """Keys of the same digit before each key of a row, and the rows' counts [ROWS, 16]."""
    one = tl.where(there, tl.full(digit.shape, 1, tl.int64) << (digit * 4), 0)
    mine = ((tl.cumsum(one, 2) >> (digit * 4)) & 15).to(tl.int32)
    total = tl.sum(one, 2)
    even = total & LOW
    odd = (total >> 4) & LOW
    is_even = (digit & 1) == 0
    lanes = tl.where(is_even, (tl.cumsum(even, 1) - even)[:, :, None], (tl.cumsum(odd, 1) - odd)[:, :, None])
    rank = mine - 1 + ((lanes >> ((digit >> 1) * 8)) & 255).to(tl.int32)
    bins = tl.arange(0, BINS)[None, :]
    row = tl.where((bins & 1) == 0, tl.sum(even, 1)[:, None], tl.sum(odd, 1)[:, None])
    return rank, ((row >> ((bins >> 1) * 8)) & 255).to(tl.int32)


@triton.jit
def _store(key, digit, there, rank, counts, start, tile, out, scratch, ROWS: tl.constexpr):
    """Keys to their bins: start [16] has where the tile's keys of each digit begin. scratch holds where rows begin."""
    bins = tl.arange(0, BINS)
    mine = scratch + (tile * ROWS + tl.arange(0, ROWS)) * BINS
    tl.store(mine[:, None] + bins[None, :], tl.cumsum(counts, 0) - counts + start[None, :])
    tl.debug_barrier()
    place = tl.load(mine[:, None, None] + digit)
    tl.store(out + place + rank, key, mask=there)


@triton.jit(do_not_specialize=["size", "shift", "tiles"])
def count(keys, counts, size, shift, tiles, BLOCK: tl.constexpr):
    """Keys of each digit in each tile: counts [16, tiles]."""
    tile = tl.program_id(0)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    digit = (tl.load(keys + at, mask=there, other=0) >> shift) & (BINS - 1)
    found = tl.histogram(digit, BINS, mask=there)
    tl.store(counts + tl.arange(0, BINS) * tiles + tile, found)


@triton.jit(do_not_specialize=["size", "shift", "tiles"])
def scatter(keys, out, places, scratch, size, shift, tiles, ROWS: tl.constexpr):
    """Keys to their bins; places [16, tiles] has where each tile's keys of each digit begin."""
    tile = tl.program_id(0)
    at = _at(tile, ROWS)
    there = at < size
    key = tl.load(keys + at, mask=there, other=0)
    digit = (key >> shift) & (BINS - 1)
    rank, counts = _ranked(digit, there)
    start = tl.load(places + tl.arange(0, BINS) * tiles + tile)
    _store(key, digit, there, rank, counts, start, tile, out, scratch, ROWS)


@triton.jit(do_not_specialize=["size"])
def totals(keys, found, size, DIGITS: tl.constexpr, BLOCK: tl.constexpr, REPEATS: tl.constexpr):
    """Keys of each value of every digit, in one read: found [DIGITS, 16], zero before."""
    bins = tl.arange(0, BINS)
    for digit in tl.static_range(DIGITS):
        mine = tl.zeros((BINS,), tl.int32)
        for part in range(REPEATS):
            at = (tl.program_id(0) * REPEATS + part) * BLOCK + tl.arange(0, BLOCK)
            there = at < size
            key = tl.load(keys + at, mask=there, other=0)
            mine += tl.histogram((key >> (4 * digit)) & (BINS - 1), BINS, mask=there)
        tl.atomic_add(found + digit * BINS + bins, mine, sem="relaxed")


@triton.jit
def _before(status, tile, WINDOW: tl.constexpr):
    """Keys of each digit in all tiles before: their own counts added up, back to the first that has left a sum.

    A window is read until every tile in it has left something, which those that took a smaller number will do.
    """
    bins = tl.arange(0, BINS)
    found = tl.zeros((BINS,), tl.int32)
    going = tl.full((BINS,), 1, tl.int32)
    place = tl.arange(0, WINDOW)[:, None]
    last = tile - 1
    while last >= 0:
        at = last - place
        seen = tl.load(status + at * BINS + bins[None, :], mask=at >= 0, other=SUMMED, volatile=True)
        ready = tl.min(tl.min(seen, 1), 0) > 0
        first = tl.min(tl.where(seen >= SUMMED, place, WINDOW), 0)
        added = tl.sum(tl.where(place <= first[None, :], seen & (COUNTED - 1), 0), 0)
        found += tl.where(ready & (going > 0), added, 0)
        going = tl.where(ready & (first < WINDOW), 0, going)
        after = tl.where(tl.max(going, 0) > 0, last - WINDOW, -1)
        last = tl.where(ready, after, last)
    return found


@triton.jit(do_not_specialize=["size", "shift"])
def one_pass(keys, out, starts, status, scratch, ticket, size, shift, ROWS: tl.constexpr, WINDOW: tl.constexpr):
    """Keys to their bins in one read and one write, by prefix sums that tiles leave for those after them.

    starts [16] has where each bin begins; status [tiles, 16] and ticket are zero before. A tile takes its number when
    it starts, so that all before it have started too. It leaves its counts, adds up those before it until it meets a
    sum, and leaves its own sum. A word has both flag and count, so that no order of memory operations matters.
    """
    tile = tl.atomic_add(ticket, 1, sem="relaxed")
    bins = tl.arange(0, BINS)
    at = _at(tile, ROWS)
    there = at < size
    key = tl.load(keys + at, mask=there, other=0)
    digit = (key >> shift) & (BINS - 1)
    rank, counts = _ranked(digit, there)
    own = tl.sum(counts, 0)
    mine = status + tile * BINS + bins
    tl.atomic_xchg(mine, own + COUNTED, sem="relaxed")
    tl.debug_barrier()  # the sum must not be left before the counts, whichever threads do it
    before = _before(status, tile, WINDOW)
    tl.atomic_xchg(mine, before + own + SUMMED, sem="relaxed")
    _store(key, digit, there, rank, counts, tl.load(starts + bins) + before, tile, out, scratch, ROWS)
