"""Refuses what no engine could serve, before anything runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def check(requests: Requests, limits: ServingLimits) -> None:
    """Raise InputError for limits that contradict each other, or for the first request that cannot be served."""
    _check_limits(limits)
    _check_shape(requests)
    arrival, prompt, output = requests.arrival_s, requests.input_tokens, requests.output_tokens
    _refuse(~np.isfinite(arrival), "its arrival time {} is not a number of seconds", arrival)
    own = arrival if requests.follows is None else np.where(requests.follows < 0, arrival, -np.inf)
    late = np.concatenate([[False], own[1:] < np.maximum.accumulate(own)[:-1]]) & np.isfinite(own)
    _refuse(late, "it arrives at {} s, before the request in front of it", arrival, "Sort the requests by arrival.")
    _refuse(prompt < 1, "its prompt has {} tokens", prompt, "A prompt has at least one token.")
    _refuse(output < 1, "it requests {} output tokens", output, "Request at least one token.")
    total = prompt + output
    _refuse(
        total > limits.max_context,
        f"prompt and output are {{}} tokens, more than the context of {limits.max_context}",
        total,
        "Shorten it.",
    )
    # The last token is never fed back, so it needs no place in the cache.
    blocks = -(-(total - 1) // limits.block_tokens)
    _refuse(
        blocks > limits.kv_blocks,
        f"it needs {{}} cache blocks, and there are {limits.kv_blocks}",
        blocks,
        "Give the cache more memory or shorten the request.",
    )


def _check_limits(limits: ServingLimits) -> None:
    for name in ("kv_blocks", "block_tokens", "max_sequences", "max_step_tokens", "max_context"):
        if getattr(limits, name) < 1:
            raise InputError(f"{name} is {getattr(limits, name)}", where="limits", hint="It must be at least 1.")
    if limits.max_step_tokens < limits.max_sequences:
        raise InputError(
            f"max_step_tokens {limits.max_step_tokens} is below max_sequences {limits.max_sequences}",
            where="limits",
            hint="A step must have room for one token of each sequence.",
        )
    if limits.lookahead not in (0, 1):
        raise InputError(f"lookahead is {limits.lookahead}", where="limits", hint="It is 0 or 1.")
    for name in ("ingress_s", "egress_s", "idle_start_s", "request_s", "tokenize_s", "output_s", "egress_sequence_s"):
        seconds = getattr(limits, name)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise InputError(f"{name} is {seconds}", where="limits", hint="It is a time, zero or more.")
    if not (math.isfinite(limits.idle_launch) and limits.idle_launch >= 1):
        raise InputError(f"idle_launch is {limits.idle_launch}", where="limits", hint="It is a factor, 1 or more.")


def _check_shape(requests: Requests) -> None:
    sizes = {requests.arrival_s.size, requests.input_tokens.size, requests.output_tokens.size}
    if len(sizes) > 1:
        raise InputError(f"arrivals, inputs and outputs differ in number: {sorted(sizes)}", where=requests.name)
    if sizes == {0}:
        raise InputError("there are no requests", where=requests.name)


def _refuse(bad: NDArray[np.bool_], why: str, values: NDArray[np.generic], hint: str = "") -> None:
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(why.format(values[index]), where=f"request {index}", hint=hint)
