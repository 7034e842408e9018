"""More sessions than the KV cache holds: idle sessions are swapped out to host memory."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.cost.host_link import LINK_SPREAD, ROOM
from gnomon.cost.lines import Wait
from gnomon.engines.base import Deployment, MemoryUse
from gnomon.spec import Batch
from gnomon.techniques.base import Parameter, Trial, Values, bandwidth
from gnomon.techniques.hosts import no_host
from gnomon.techniques.serving import DeploymentDraft, ServingTechnique


class KvSwap(ServingTechnique):
    name = "kv-swap"
    aliases = ("swapped-sessions",)
    title = "KV caches of idle sessions swapped to the host"
    idea = (
        "The KV cache of a session that waits for its user is swapped to host memory, and another is swapped in: many "
        "more sessions are open at once, and every turn begins with one cache copied out and one copied in."
    )
    trials = (Trial(paper="long-context-peak", words="kv-swap"),)
    parameters = (
        Parameter(
            "turn", "tokens generated before a session is swapped out", default=250.0, low=1.0, high=1e6, whole=True
        ),
        bandwidth("link_gb_s", "bandwidth of one chip's copies; 0 for the link's bandwidth"),
    )
    simulated = False

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        return no_host(draft.pool)

    def wait(self, deployment: Deployment, steps: Batch, cached_bytes: float, values: Values) -> Wait | None:
        """A mean decode step's share of the swap that ends a turn. Prefills wait for no swap."""
        if not steps.decodes.any():
            return None
        seconds = steps.size * switch_s(deployment, cached_bytes, values) / float(values["turn"])
        return Wait(name=self.name, seconds=seconds, spread=LINK_SPREAD, source=_link(deployment))

    def metrics(self, used: MemoryUse, deployment: Deployment, values: Values) -> Mapping[str, float]:
        """Sessions of the maximum context that cache and host hold, and the seconds of one swap."""
        context = used.context
        each = used.sequence_bytes(context, 1)
        machine = deployment.pool.machine
        if each <= 0 or machine is None:
            return {}
        room = ROOM * machine.memory_bytes
        return {
            "sessions_in_cache": max(used.kv_blocks, 0) // max(used.blocks_of(context), 1),
            "sessions_on_host": room // (each * _neighbours(deployment)),
            "switch_s": switch_s(deployment, each, values),
        }


def switch_s(deployment: Deployment, cached_bytes: float, values: Values) -> float:
    """Seconds to copy so many bytes per rank to the host, then as many back."""
    host = deployment.pool.machine
    assert host is not None  # checked by `reject_reason`
    bandwidth = float(values["link_gb_s"]) * 1e9 or host.copy_bytes_s(_neighbours(deployment))
    return 2 * cached_bytes / bandwidth


def _neighbours(deployment: Deployment) -> int:
    """Ranks that share one host."""
    return min(deployment.strategy.ranks, deployment.pool.machine_chips)


def _link(deployment: Deployment) -> str:
    host = deployment.pool.host
    return host.link.name if host else ""


TECHNIQUES = (KvSwap(),)
