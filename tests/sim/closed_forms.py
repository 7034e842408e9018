"""Seconds of pipelines of equal chunks, in closed form: equal to `Timeline.pipeline_s`, not near it.

`f` and `b` are the forward and the backward of one chunk, `c_f` and `c_b` one send of each. All arguments may be
arrays, which broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Numbers = Any
"""One number, or an array of them."""


def gpipe_s(p: Numbers, m: Numbers, f: Numbers, b: Numbers, c_f: Numbers = 0.0, c_b: Numbers = 0.0) -> Numbers:
    """Holds for all times: p (f + b) + (p - 1)(c_f + c_b) + (m - 1)(max(f, c_f) + max(b, c_b))."""
    several = np.greater(p, 1)
    c_f, c_b = several * c_f, several * c_b
    return p * (f + b) + (p - 1) * (c_f + c_b) + (m - 1) * (np.maximum(f, c_f) + np.maximum(b, c_b))


def one_f_one_b_s(p: Numbers, m: Numbers, f: Numbers, b: Numbers, c_f: Numbers = 0.0, c_b: Numbers = 0.0) -> Numbers:
    """Holds where c_f <= f and c_b <= b: (m + p - 1)(f + b) + (m + p - 2 - ceil((m - 1) / p))(c_f + c_b).

    A rank may start a forward only when it has ended the backward p micro-batches before, so that nearly every
    micro-batch waits for a send each way, not only the first and the last.
    """
    sends = m + p - 2 - np.ceil(np.divide(m - 1, p))
    return (m + p - 1) * (f + b) + sends * (c_f + c_b)


def interleaved_s(
    p: Numbers, v: Numbers, m: Numbers, f: Numbers, b: Numbers, c_f: Numbers = 0.0, c_b: Numbers = 0.0
) -> Numbers:
    """Holds where c_f <= f and c_b <= b: (m v + p - 1)(f + b) + (p v - 1)(c_f + c_b) + (m - p)(v - 1) w.

    Ranks run enough forwards ahead for a send to hide behind one task of the other kind, so that only one way
    through all chunks and back shows them all; w is what stands out, max(0, c_b - f, c_f - b).
    """
    waits = np.maximum(0, np.maximum(np.subtract(c_b, f), np.subtract(c_f, b)))
    return (m * v + p - 1) * (f + b) + (p * v - 1) * np.add(c_f, c_b) + (m - p) * (v - 1) * waits


def blocking_gpipe_s(p: Numbers, m: Numbers, f: Numbers, b: Numbers, c_f: Numbers = 0.0, c_b: Numbers = 0.0) -> Numbers:
    """Holds for all times. A task and its send are one task, but the last rank sends no forward, the first no backward.

    (m + p - 2)(f + c_f + b + c_b) + f + b, with more than one rank.
    """
    sends = np.greater(p, 1) * np.add(c_f, c_b)
    return (m + p - 1) * (f + b) + (m + p - 2) * sends


def blocking_one_f_one_b_s(
    p: Numbers, m: Numbers, f: Numbers, b: Numbers, c_f: Numbers = 0.0, c_b: Numbers = 0.0
) -> Numbers:
    """Holds for all times: (m + p - 1)(f + c_f + b + c_b) - c_f - c_b - min(c_f, b + c_b) with three ranks or more.

    With two, one of them always lacks a send, and the last term is another.
    """
    several = np.greater(p, 1)
    c_f, c_b = several * c_f, several * c_b
    two = np.minimum(np.minimum((m - 1) * c_f, c_f + (m - 2) * c_b), b + (m - 1) * c_b)
    spared = np.where(np.equal(p, 2), two, np.minimum(c_f, b + c_b))
    return (m + p - 1) * (f + c_f + b + c_b) - c_f - c_b - np.where(np.equal(m, 1), 0.0, spared)


def blocking_interleaved_s(
    p: Numbers, v: Numbers, m: Numbers, f: Numbers, b: Numbers, c_f: Numbers = 0.0, c_b: Numbers = 0.0
) -> Numbers:
    """Holds for all times. With F = f + c_f, B = b + c_b and three ranks or more:

    (m v + p - 1)(F + B) - c_b - min(m c_f, F + B, 2 F + c_f, 2 B + c_f).

    The last rank lacks m sends; a path that avoids it gives up a task or two. With two ranks it lacks sends as well.
    """
    task_f, task_b = np.add(f, c_f), np.add(b, c_b)
    more = np.minimum(np.minimum(task_f + task_b, 2 * task_f + c_f), 2 * task_b + c_f)
    turn = np.where(np.equal(m, 2), task_b + c_f, 2 * task_b + c_f + (m - 3) * c_b)
    two = np.minimum(np.minimum(task_f + task_b, 2 * task_f + c_f) + (m - 2) * c_b, turn)
    spared = np.minimum(m * c_f, np.where(np.equal(p, 2), two, more))
    return (m * v + p - 1) * (task_f + task_b) - c_b - spared
