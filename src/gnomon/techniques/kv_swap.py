"""More sessions than the KV cache holds: idle sessions are swapped out to host memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from gnomon.cost.host_link import LINK_SPREAD
from gnomon.cost.lines import Steps, Wait
from gnomon.cost.tiers import HOST, rooms
from gnomon.engines.base import MemoryUse, ServingCase
from gnomon.graph.dtypes import width
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import no_host

BLOCKING, OVERLAPPED = "blocking", "overlapped"


class KvSwap(Technique[ServingCase]):
    name = "kv-swap"
    work = (SERVING,)
    aliases = ("swapped-sessions",)
    title = "KV caches of idle sessions swapped to the host"
    idea = (
        "The KV cache of a session that waits for its user is swapped to host memory, and another is swapped in: many "
        "more sessions are open at once, and every turn begins with one cache copied out and one copied in."
    )
    trials = (
        Trial(paper="long-context-peak", words="kv-swap"),
        Trial(
            paper="fastswitch",
            words="kv-swap:group=1024,copies=overlapped",
            against="kv-swap:group=16,copies=blocking",
            note="Block groups copied beside the steps, against vLLM's copies of one block, layer and half of it "
            "at a time that steps wait for.",
        ),
    )
    parameters = (
        Parameter(
            "turn", "tokens generated before a session is swapped out", default=250.0, low=1.0, high=1e6, whole=True
        ),
        bandwidth("link_gb_s", "bandwidth of one chip's copies; 0 for the link's bandwidth"),
        Parameter(
            "group", "tokens whose keys, or values, of a layer are copied at once; 0 for a session's cache as a whole",
            default=0.0, high=1e6, whole=True,
        ),
        Parameter(
            "copies", "whether steps wait for copies, or run beside them", default=BLOCKING,
            choices=(BLOCKING, OVERLAPPED),
        ),
    )  # fmt: skip
    simulated = False

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield True, no_host(case.pool)

    def waits(self, steps: Steps, case: ServingCase, values: Values) -> Wait | None:
        """A mean decode step's share of the swap that ends a turn, or what of it goes beyond the step. Prefills wait
        for no swap."""
        batch = steps.batch
        if batch is None or not batch.decodes.any():
            return None
        seconds = batch.size * switch_s(case, steps.cached_bytes, values) / float(values["turn"])
        if values["copies"] == OVERLAPPED:
            seconds = max(seconds - float(steps.seconds), 0.0)
        host = case.pool.host
        return Wait(seconds=seconds, spread=LINK_SPREAD, source=host.link.name if host else "")

    def metrics(self, used: MemoryUse, case: ServingCase, values: Values) -> Mapping[str, float]:
        """Sessions of the maximum context that cache and host hold, and the seconds of one swap."""
        context = used.context
        each = used.sequence_bytes(context, 1)
        if each <= 0 or case.pool.machine is None:
            return {}
        room = rooms(case.pool.machine)[HOST] - used.host_bytes
        return {
            "sessions_in_cache": max(used.kv_blocks, 0) // max(used.blocks_of(context), 1),
            "sessions_on_host": max(room, 0.0) // (each * _neighbours(case)),
            "switch_s": switch_s(case, each, values),
        }


def switch_s(case: ServingCase, cached_bytes: float, values: Values) -> float:
    """Seconds to copy so many bytes per rank to the host, then as many back: in pieces, each of which takes the link's
    latency beside its bytes, as small copies that follow one another do (FastSwitch, arXiv:2411.18424)."""
    host = case.pool.machine
    assert host is not None  # checked by `reject`
    bandwidth = float(values["link_gb_s"]) * 1e9 or host.copy_bytes_s(_neighbours(case))
    group = float(values["group"])
    pieces = ceil(cached_bytes / (group * _token_bytes(case))) * 2 * case.model.layers if group else 0
    return 2 * (cached_bytes / bandwidth + pieces * host.link.latency_s)


def _token_bytes(case: ServingCase) -> float:
    """What a rank keeps of a token."""
    return case.model.kv_bytes_per_token(width(case.kv_dtype or case.model.working_dtype), case.strategy.tp)


def _neighbours(case: ServingCase) -> int:
    """Ranks that share one host."""
    return min(case.strategy.ranks, case.pool.machine_chips)


TECHNIQUES = (KvSwap(),)
