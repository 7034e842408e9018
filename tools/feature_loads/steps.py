"""What vLLM's engine core says of each of its steps."""

from __future__ import annotations

import time
import traceback
from typing import Any

import numpy as np
from tools.feature_loads.works import Ints


class Steps:
    """Outputs of the engine core as they come in, noted on their way to the front end."""

    COLUMNS = (
        "core_us", "received_us", "outputs", "prompts", "prompt_tokens", "running", "waiting", "tokens", "local_cached",
        "external_cached", "kv_usage", "queries", "hits", "connector_queries", "connector_hits", "drafts", "drafted",
        "accepted",
    )  # fmt: skip

    def __init__(self, core: Any) -> None:
        self.rows: list[tuple[float, ...]] = []
        self.cached: dict[str, tuple[int, int]] = {}
        """Local and external cached tokens of a request."""
        self.transfers: list[tuple[int, str]] = []
        self.accepted_at: Ints = np.zeros(0, np.int64)
        self._get = core.get_output_async
        core.get_output_async = self._noted

    def clear(self) -> None:
        self.rows.clear()
        self.cached.clear()
        self.transfers.clear()
        self.accepted_at = np.zeros(0, np.int64)

    async def _noted(self) -> Any:
        got = await self._get()
        now = time.monotonic()
        try:
            self._note(got, now)
        except Exception:
            traceback.print_exc()
        return got

    def _note(self, got: Any, now: float) -> None:
        prefills = []
        for one in got.outputs:
            if one.prefill_stats is not None:
                prefills.append(one.prefill_stats)
                found = (one.prefill_stats.num_local_cached_tokens, one.prefill_stats.num_external_cached_tokens)
                self.cached[one.request_id.split("-")[0]] = found
        stats = got.scheduler_stats
        made = sum(len(one.new_token_ids) for one in got.outputs)
        cached = [sum(values) for values in zip(*(self._cached(prefill) for prefill in prefills), strict=True)] or [
            0,
            0,
        ]
        computed = sum(prefill.num_computed_tokens for prefill in prefills)
        head = (got.timestamp, now, len(got.outputs), len(prefills), computed)
        if stats is None:
            self.rows.append((*head, -1, -1, made, *cached, -1, *([0] * 7)))
            return
        cache, other, drafts = stats.prefix_cache_stats, stats.connector_prefix_cache_stats, stats.spec_decoding_stats
        counted = (cache.queries, cache.hits) if cache else (0, 0)
        connected = (other.queries, other.hits) if other else (0, 0)
        drafted = (drafts.num_drafts, drafts.num_draft_tokens, drafts.num_accepted_tokens) if drafts else (0, 0, 0)
        if drafts:
            found_at = np.array(drafts.num_accepted_tokens_per_pos)
            self.accepted_at = self.accepted_at + found_at if len(self.accepted_at) else found_at
        if stats.kv_connector_stats:
            self.transfers.append((len(self.rows), str(stats.kv_connector_stats)))
        running = (stats.num_running_reqs, stats.num_waiting_reqs + stats.num_skipped_waiting_reqs)
        usage = round(1e4 * stats.kv_cache_usage)
        self.rows.append((*head, *running, made, *cached, usage, *counted, *connected, *drafted))

    def _cached(self, prefill: Any) -> tuple[int, int]:
        return prefill.num_local_cached_tokens, prefill.num_external_cached_tokens

    def columns(self, begin_s: float) -> dict[str, list[int]]:
        """Ends of steps as differences, the first from `begin_s`; what the front end had them after."""
        if not self.rows:
            return {name: [] for name in self.COLUMNS}
        table = np.array(self.rows)
        core, received = table[:, 0] - begin_s, table[:, 1] - table[:, 0]
        whole = [np.diff(np.round(core * 1e6), prepend=0.0), np.round(received * 1e6), *table[:, 2:].T]
        return {name: column.astype(int).tolist() for name, column in zip(self.COLUMNS, whole, strict=True)}
