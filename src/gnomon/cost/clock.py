"""The clock under the power limit: work that would draw more than the board may is slowed until it does not.

A clock lower by a factor s slows arithmetic by s and lowers its power by s squared, as voltage follows clock; memory
and link bandwidth stay the same. Over a mix of kernels the mean power counts, so that memory-bound kernels leave power
to compute-bound ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.spec import Chip
from gnomon.spec.workload import Floats

LIMIT = "limit"
BURST = "burst_j_per_flop"
ATTENTION = "attention_flop"
KEYS = (LIMIT, BURST, ATTENTION)
"""The held share of the board's limit; joules of a FLOP at full clock; what a FLOP of attention takes beside that, in
kernels as trainers run them."""
BUSY, NARROW = "busy_w", "narrow_flop"
"""Where they were measured: watts of processors that instructions keep busy, for matmuls or not; and
joules of a FLOP of eight bits beside an even share of one of sixteen."""
FULL = 0.8
"""Of the data sheet's rate, what GEMMs reach that keep all processors busy: 784 of 989 TFLOP/s on an H200."""

SPREAD = 0.016
"""What sustained work on one board says of another of its kind: the same eleven loads on two rented H200 (2026-11-15)
differed by 1.6% root mean square, nearly all in one direction."""


def attention_joules(power: Mapping[str, float], chip: Chip, flops: Floats | float, seconds: Floats | float) -> Floats:
    """At full clock: softmax keeps processors busy all the time, matmuls draw in addition what they draw beyond it in
    a GEMM. On an H200 five kernels at 322 to 588 TFLOP/s became slower as this says, to 2%."""
    per_flop = power.get(BURST, power["j_per_flop"])
    if BUSY not in power:
        return np.asarray(per_flop * power.get(ATTENTION, 1.0) * flops)
    beyond = max(per_flop - power[BUSY] / (FULL * chip.rate(chip.half)), 0.0)
    return np.asarray(power[BUSY] * seconds + beyond * flops)


def narrow(power: Mapping[str, float], chip: Chip, compute_dtype: str) -> float:
    """Joules of a FLOP in a format beside those of one of 16 bits: as much at its own full rate, but for what was
    measured of eight bits."""
    even = chip.half_rate(chip.half) / chip.matrix_rate(compute_dtype)
    return even * power.get(NARROW, 1.0) if even < 1 else even


def slowdown(
    power: Mapping[str, float], chip: Chip, *, compute_s: Floats, compute_j: Floats, other_s: Floats, other_j: Floats
) -> Floats:
    """The factor that arithmetic is slowed down by, 1 or more. Energies are at full clock, without the board's constant
    part."""
    if LIMIT not in power:
        return np.ones(np.broadcast(compute_s, other_s).shape)
    cap, base = power[LIMIT] * chip.tdp_w, power["active_w"]
    hot, cool = compute_j + base * compute_s, other_j + base * other_s
    linear = cap * other_s - cool
    square = np.maximum(cap * compute_s, 1e-30)
    root = (-linear + np.sqrt(linear**2 + 4 * square * hot)) / (2 * square)
    return np.asarray(np.where(compute_s > 0, np.maximum(root, 1.0), 1.0))
