"""What the reader of a format gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.spec import NotModelled, Requests
from gnomon.spec.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class Found:
    """The requests of a file."""

    requests: Requests
    timed: bool
    """Whether the file says when they arrive."""
    spot_of: Callable[[int], str]
    """Where the request at a place stands: `line 3`."""
    not_modelled: tuple[NotModelled, ...] = ()
    image_tokens: int = 0
    """Of one image in a prompt, where the file says so."""


def sorted_by_start(starts: Floats, inputs: Ints, outputs: Ints, name: str) -> tuple[Requests, Ints]:
    """Requests that were written down as they ended, in order of arrival, the first at zero; and their places."""
    order = np.argsort(starts, kind="stable")
    arrival = starts[order] - starts[order[0]]
    return Requests(arrival, inputs[order], outputs[order], name=name), order
