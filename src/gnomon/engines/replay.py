"""An engine run for real under a replayed load: what starts one gives a `Runner`, and each load a `MeasuredRun`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon.spec import Requests


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredRun:
    """Client-side times of one replayed load, in seconds from its start; NaN where the engine does not report them."""

    requests: Requests
    first_token_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    scheduled_s: NDArray[np.float64]
    queued_s: NDArray[np.float64]
    """When the scheduler first saw the request."""
    made_s: NDArray[np.float64]
    """When the engine's core had the first token, before it travelled to the client."""
    tokens_s: tuple[tuple[float, ...], ...] = ()

    @property
    def ttft_s(self) -> NDArray[np.float64]:
        return self.first_token_s - self.requests.arrival_s

    @property
    def tpot_s(self) -> NDArray[np.float64]:
        steps = np.maximum(self.requests.output_tokens - 1, 1)
        return np.where(self.requests.output_tokens > 1, (self.finish_s - self.first_token_s) / steps, np.nan)


class Runner(Protocol):
    """One engine, started once; loads are replayed on it one after another."""

    def settings(self) -> dict[str, Any]:
        """What the engine chose for itself, `kv_blocks` among it."""

    def replay(self, requests: Requests, *, keep_tokens: bool = False, seed: int = 0) -> MeasuredRun:
        """Send every request at its time and wait for the last token of the last one."""

    def __enter__(self) -> Runner: ...

    def __exit__(self, *_: object) -> None: ...
