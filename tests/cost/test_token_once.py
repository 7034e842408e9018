"""Tokens that cross to a node once: fewer bytes than a copy for each expert, none within one node."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.cost.machines import machine

from gnomon.cost import collective, tapes, token_once
from gnomon.graph.ops import TOKENS, Collective
from gnomon.graph.routing import TokenRouting
from gnomon.load import parse_pool
from gnomon.spec import Batch

SIZES = np.unique(np.geomspace(1, 2**34, 200).round())
DEEPSEEK = TokenRouting(experts=256, topk=8, groups=8, topk_groups=4)
ROUTINGS = (
    DEEPSEEK,
    TokenRouting(experts=128, topk=8),
    TokenRouting(experts=64, topk=6),
    TokenRouting(experts=16, topk=1),
)


def drawn(routing: TokenRouting, parts: int, tokens: int = 20000) -> float:
    """Parts that tokens visit on average, by choosing experts at random."""
    rng = np.random.default_rng(0)
    scores = rng.random((tokens, routing.groups, routing.experts // routing.groups))
    closed = np.argsort(rng.random((tokens, routing.groups)), axis=1)[:, routing.topk_groups :]
    np.put_along_axis(scores, closed[:, :, None], -1.0, axis=1)
    chosen = np.argsort(scores.reshape(tokens, -1), axis=1)[:, -routing.topk :]
    part = chosen * parts // routing.experts
    return float(np.mean([np.unique(row).size for row in part]))


@pytest.mark.parametrize(("routing", "parts"), list(product(ROUTINGS[:3], (2, 4, 8, 16, 32))))
def test_nodes_that_a_token_visits_are_counted_as_drawn(routing: TokenRouting, parts: int) -> None:
    assert routing.reached(parts) == pytest.approx(drawn(routing, parts, 4000), rel=0.02)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_token_visits_no_more_parts_than_experts_and_at_least_one(routing: TokenRouting) -> None:
    reached = {parts: routing.reached(parts) for parts in (1, 2, 4, 8, 16)}
    assert reached[1] == pytest.approx(1.0)
    assert all(1 - 1e-9 <= found <= min(parts, routing.topk) + 1e-9 for parts, found in reached.items())
    assert list(reached.values()) == sorted(reached.values())


def test_node_limited_routing_keeps_its_limit() -> None:
    """DeepSeek-V3 takes experts from four of eight groups: a group a node is four nodes at most."""
    free = replace(DEEPSEEK, groups=1, topk_groups=1)
    assert DEEPSEEK.reached(8) <= 4.0 < free.reached(8)
    assert DEEPSEEK.reached(32) <= free.reached(32)


@pytest.mark.parametrize(("routing", "nodes"), list(product(ROUTINGS, (1, 2, 4, 8))))
def test_a_node_alone_sends_nothing_and_once_is_never_more_than_a_copy_each(routing: TokenRouting, nodes: int) -> None:
    ranks = 8 * nodes if routing.experts >= 8 * nodes else routing.experts
    far, near = token_once.volumes(SIZES, routing, ranks, nodes)
    copies = SIZES * (nodes - 1) / nodes
    assert np.all(far <= copies * (1 + 1e-12))
    assert nodes > 1 or np.all(far == 0)
    assert np.all(near <= SIZES)


def test_what_arrives_at_nodes_is_what_their_ranks_hand_on() -> None:
    """Every rank that a token visits gets it once: over all nodes as many as reach any, and no node without a rank."""
    for routing, nodes in product(ROUTINGS[:3], (2, 4, 8)):
        assert routing.reached(nodes) <= routing.reached(8 * nodes) <= 8 * routing.reached(nodes) + 1e-9


def over(size: np.ndarray, ranks: int, routed: TokenRouting | None, chips: str = "H100:64") -> np.ndarray:
    return collective.seconds("all_to_all", size, ranks, parse_pool(chips), library="nccl", routed=routed)


@pytest.mark.parametrize("ranks", [16, 32, 64])
@pytest.mark.parametrize("chip", ["H100", "B200"])
def test_large_exchanges_are_faster_once_than_in_copies(chip: str, ranks: int) -> None:
    large = SIZES[SIZES > 1e8]
    once, copies = (over(large, ranks, routed, f"{chip}:64") for routed in (DEEPSEEK, None))
    assert np.all(once < copies)
    assert np.all(np.diff(over(SIZES, ranks, DEEPSEEK, f"{chip}:64")) >= 0)


def test_inside_a_node_it_is_an_all_to_all() -> None:
    assert np.array_equal(over(SIZES, 8, DEEPSEEK), over(SIZES, 8, None))


def test_more_bandwidth_is_never_slower() -> None:
    level = machine("H100").chip
    for part in ("scaleup", "scaleout"):
        links = {"scaleup": level.scaleup, "scaleout": level.scaleout}
        slow = token_once.seconds(SIZES, DEEPSEEK, (8, links["scaleup"]), (4, links["scaleout"]))
        links[part] = replace(links[part], bandwidth_bytes_s=2 * links[part].bandwidth_bytes_s)
        assert np.all(token_once.seconds(SIZES, DEEPSEEK, (8, links["scaleup"]), (4, links["scaleout"])) <= slow)


def test_a_collective_carries_its_routing_to_its_price() -> None:
    on, batch = replace(machine("H100", 32), framework="nccl"), Batch.prefill([1], [4096])
    plain = Collective(name="x", op="all_to_all", rows=TOKENS, bytes_per_row=8 * 14336.0, ranks=32)
    once = replace(plain, routed=DEEPSEEK)
    assert on.op_seconds(once, batch)[0] < 0.6 * on.op_seconds(plain, batch)[0]
    priced = tapes.price([once, plain], on, batch)
    assert priced[once][0] == on.op_seconds(once, batch)[0]
    assert priced[plain][0] == on.op_seconds(plain, batch)[0]
