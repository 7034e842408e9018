"""What vLLM Router and SGLang's router share, the first having begun as the second: policies, and how they are told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gnomon.engines.operations import Routing
from gnomon.spec import Plan
from gnomon.spec.plan import DECODE, PREFILL

POLICIES = {"random": "random", "round-robin": "round_robin", "prefix-aware": "cache_aware"}
DEFAULT_POLICY = POLICIES["prefix-aware"]
NEAREST = {"least-requests": "power_of_two", "least-kv": "power_of_two", "weighted": "random"}
"""Policies for what the router does not have: the less loaded of two random servers, and one at random."""
STARTUP_S = 1800
"""Half an hour to load the weights and capture graphs, as for a container."""


def router_left_out(plan: Plan, router: str, policy: str) -> tuple[str, ...]:
    return (f"the router {plan.router}: {router} does not have it, and has {policy} in its place",)


def routing(words: Sequence[str]) -> Routing:
    """The policy behind `--policy`, or its default, and the servers of each role."""
    values = [after for before, after in pairwise(words) if before == "--policy"]
    values += [word.partition("=")[2] for word in words if word.startswith("--policy=")]
    policy = values[0] if values else DEFAULT_POLICY
    found = next((name for name, known in POLICIES.items() if known == policy), "")
    return Routing(router=found, policy=policy, roles=_roles_told(words))


def _roles_told(words: Sequence[str]) -> dict[str, str]:
    """The servers behind `--prefill URL` and `--decode URL`."""
    flags = {f"--{role}": role for role in (PREFILL, DECODE)}
    found = {after: flags[before] for before, after in pairwise(words) if before in flags}
    for word in words:
        flag, _, url = word.partition("=")
        found |= {url: flags[flag]} if url and flag in flags else {}
    return {url.partition("://")[2] or url: role for url, role in found.items()}
