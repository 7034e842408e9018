"""SGLang 0.5.23's own radix cache, prefill budget and queue order beside ours, on random loads.

Run with the package installed, or with `GNOMON_SGLANG` naming the folder of an unpacked wheel.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.oracles.sglang_source import load, source
from tests.sim.costs import Cliffs

from gnomon.engines.sglang.adder import PrefillAdder
from gnomon.engines.sglang.policy import PrefillFirst
from gnomon.engines.sglang.radix import RadixNode, RadixTree
from gnomon.engines.sglang.scheduling import Scheduling
from gnomon.sim.serving import simulate
from gnomon.sim.serving.base import NO_REQUEST, Queue
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Prefixes, Requests

pytestmark = [pytest.mark.oracle, pytest.mark.skipif(source() is None, reason="SGLang is not here")]


def shared(rng: np.random.Generator, count: int, nodes: int = 5) -> Prefixes:
    parent = np.array([rng.integers(-1, node) if node else -1 for node in range(nodes)])
    end = np.zeros(nodes, np.int64)
    for node in range(nodes):
        end[node] = (end[parent[node]] if parent[node] >= 0 else 0) + rng.integers(1, 60)
    return Prefixes(rng.integers(-1, nodes, count), parent, end)


def tokens_of(prefixes: Prefixes, request: int, count: int) -> array[int]:
    found = array("q")
    for place in range(count):
        owner, node = 10**6 + request, int(prefixes.node[request])
        while node >= 0 and place < prefixes.end[node]:
            owner, node = node + 1, int(prefixes.parent[node])
        found.append(owner * 10**6 + place)
    return found


def walked(tree: RadixTree) -> list[RadixNode]:
    found, stack = [], list(tree.root.children.values())
    while stack:
        node = stack.pop()
        found.append(node)
        stack += node.children.values()
    return found


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("seed", range(25))
def test_the_radix_cache(seed: int, page: int) -> None:
    """Matches, inserts, locks and evictions in any order."""
    theirs, base = load("sglang.srt.mem_cache.radix_cache"), load("sglang.srt.mem_cache.base_prefix_cache")
    theirs.split_node_hash_value = lambda *given: (None, None)
    theirs.get_eviction_strategy = lambda *given: load("sglang.srt.mem_cache.evict_policy").LRUStrategy()
    rng = np.random.default_rng(seed)
    count = 30
    prefixes = shared(rng, count)
    requests = Requests(np.zeros(count), np.ones(count, np.int64), np.ones(count, np.int64), prefixes=prefixes)
    limits = ServingLimits(
        kv_blocks=10**6, block_tokens=page, max_sequences=99, max_step_tokens=999, max_context=9999
    )  # fmt: skip
    ours = RadixTree(requests, limits)
    freed = SimpleNamespace(device="cpu", free_segment=lambda value, start_pos: None)
    cache = theirs.RadixCache.create_simulated(mock_allocator=freed, page_size=page)
    locks: list[tuple[RadixNode, Any]] = []
    for _ in range(300):
        request, length = int(rng.integers(count)), int(rng.integers(1, 120))
        key = theirs.RadixKey(tokens_of(prefixes, request, length))
        match rng.choice(["match", "insert", "lock", "unlock", "evict"]):
            case "match":
                found, _ = ours.match(request, length // page)
                assert found * page == cache.match_prefix(base.MatchPrefixParams(key=key)).device_prefix_len
            case "insert":
                known, _ = ours._insert(ours.chain(request), length // page)
                assert known * page == cache.insert(base.InsertParams(key=key)).prefix_len
            case "lock":
                _, node = ours.match(request, length // page)
                result = cache.match_prefix(base.MatchPrefixParams(key=key))
                ours._lock(node)
                cache.inc_lock_ref(result.last_device_node)
                locks.append((node, result.last_device_node))
            case "unlock" if locks:
                node, other = locks.pop(int(rng.integers(len(locks))))
                ours._unlock(node)
                cache.dec_lock_ref(other)
            case "evict":
                wanted = int(rng.integers(1, 60))
                ours.make_room(ours.available + -(-wanted // page))
                cache.evict(base.EvictParams(num_tokens=-(-wanted // page) * page))
        unlocked = sum(node.high - node.low for node in walked(ours) if not node.locks) * page
        assert unlocked == cache.evictable_size()
        assert sum(node.high - node.low for node in walked(ours)) * page == cache.total_size()


class TheirTree:
    """What PrefillAdder asks a prefix cache, answered by ours."""

    def __init__(self, state: PrefillFirst) -> None:
        self.cache, self.disable = state.cache, not state.cache.enabled
        self.page_size = state.cache.block

    def supports_mamba(self) -> bool:
        return False

    def supports_prefix_sharing(self) -> bool:
        return not self.disable

    def supports_fast_match_prefix(self) -> bool:
        return False

    def evictable_size(self) -> int:
        return 0

    def available_size(self) -> int:
        return self.cache.free * self.cache.block

    def lock(self, node: RadixNode) -> RadixNode:
        self.cache._lock(node)
        return node

    def unlock(self, node: RadixNode) -> None:
        self.cache._unlock(node)

    def request_slot_reserve(self, **_: Any) -> int:
        return 0

    def create_prefill_budget(self, tree: Any, num_mixed_decode_tokens: int) -> Any:
        made = load("sglang.srt.mem_cache.prefill_budget").PrefillBudget
        return made(self, tree, num_mixed_decode_tokens=num_mixed_decode_tokens)


class TheirReq:
    def __init__(self, state: PrefillFirst, index: int, known: int) -> None:
        self.rid, self.index = str(index), index
        self.sampling_params = SimpleNamespace(max_new_tokens=state.output(index), ignore_eos=False)
        self.output_ids, self.origin_input_ids = range(known), range(state._prompt[index])
        self.full_untruncated_fill_ids = range(state._prompt[index] + known)
        self.prefix_len, self.extend_end, self.host_hit_length = 0, 0, 0
        self.swa_host_hit_length = self.auxiliary_swa_host_hit_length = self.mamba_host_hit_length = 0
        self.kv = SimpleNamespace(req_pool_idx=None, holds_mamba=False)
        self.retracted_stain, self.lock, self.last_node = False, None, state.cache.root
        self.num_matched_prefix_tokens, self.extra_key, self.cache_salt = 0, None, None

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len

    def needs_host_load_back(self) -> bool:
        return False


def their_batch(state: PrefillFirst, options: Scheduling) -> list[tuple[int, int, int]]:
    """The batch of prompts that SGLang's PrefillAdder makes of a state: request, new tokens, tokens before them."""
    policy = load("sglang.srt.managers.schedule_policy")
    policy.page_interleave_shard_size = lambda allocator: 1
    policy.mamba_prefill_chunk_grid = lambda: 1
    policy._use_exact_chunk_fill = lambda: False
    policy.PrefillAdder._account_prefill_cache_admission = lambda *given: None
    tree = TheirTree(state)
    known = state.known_outputs(state.decoding) | {each: state.output(each) - 1 for each in state.leaving}
    running = [TheirReq(state, each, made) for each, made in known.items()]
    adder = policy.PrefillAdder(
        tree.page_size, tree, tree, SimpleNamespace(reqs=running), state.ratio, options.prefill_tokens,
        options.chunk_tokens, len(running) if options.mixed else 0, prefill_max_requests=options.prefill_requests,
    )  # fmt: skip
    cut = None
    if state.partial != NO_REQUEST:
        req = TheirReq(state, state.partial, state.made(state.partial))
        req.prefix_len = state.partial_tokens
        cut = adder.add_chunked_req(req)
    slots, held = state._places - state.count, len(adder.can_run_list)
    for index in state.resumed:
        if adder.budget_state() == policy.AddReqResult.OTHER or state.is_full:
            break
        if len(adder.can_run_list) - held >= slots:
            break
        req = TheirReq(state, index, state.made(index))
        pages, req.last_node = state.cache.match(index, (len(req.full_untruncated_fill_ids) - 1) // tree.page_size)
        req.prefix_len = pages * tree.page_size
        if adder.add_one_req(req, cut is not None, None) != policy.AddReqResult.CONTINUE:
            break
    for req in adder.can_run_list:
        if req.lock is not None:
            tree.unlock(req.lock)
    return [(req.index, req.extend_len, req.prefix_len) for req in adder.can_run_list]


def their_order(state: PrefillFirst) -> list[int]:
    """The queue as SGLang's longest prefix match sorts it."""
    policy = load("sglang.srt.managers.schedule_policy")
    prefixes, block = state.prefixes, state.cache.block  # type: ignore[attr-defined]

    def match(req: TheirReq, tree: Any, tokens: Any = None) -> Any:
        pages, _ = state.cache.match(req.index, len(tokens) // block)
        req.prefix_len = pages * block
        req.num_matched_prefix_tokens = min(req.prefix_len, len(tokens) - 1)

    policy.match_kv_cache = match
    sorter = policy.SchedulePolicy("lpm", TheirTree(state), False, False, False)
    waiting = []
    for index in state.resumed:
        req = TheirReq(state, index, 0)
        req.origin_input_ids = tokens_of(prefixes, index, state.goal(index))  # type: ignore[assignment]
        req.output_ids = array("q")  # type: ignore[assignment]
        waiting.append(req)
    sorter.calc_priority(waiting)
    return [req.index for req in waiting]


class Checked(PrefillFirst):
    """Compares every batch of prompts with SGLang's before it is made."""

    compared = 0
    prefixes: Prefixes

    def _prefill(self, queue: Queue, now: float) -> PrefillAdder | None:
        if not (self.decoding or self.leaving):
            self._full = False
        stopped = self.partial == NO_REQUEST and (self._full or not self.resumed or self.count >= self._places)
        if not stopped and self._options.order == "lpm" and self._options.radix and len(self.resumed) <= 128:
            order = their_order(self)
            self._order.sort(self)
            assert self.resumed == order
        expected = [] if stopped else their_batch(self, self._options)
        adder = super()._prefill(queue, now)
        made = (
            [] if adder is None else [(each, *chunk) for each, chunk in zip(adder.prompts, adder.chunks, strict=True)]
        )
        assert made == expected
        Checked.compared += bool(expected)
        return adder


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("order", ["fcfs", "lpm"])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("seed", range(6))
def test_the_prefill_adder(seed: int, page: int, order: str, mixed: bool) -> None:
    rng = np.random.default_rng(seed)
    count = 80
    prefixes = shared(rng, count)
    load_ = Requests(
        np.cumsum(rng.exponential(0.01, count)), rng.integers(1, 150, count), rng.integers(1, 60, count),
        prefixes=prefixes,
    )  # fmt: skip
    options = Scheduling(
        chunk_tokens=64, prefill_tokens=100, mixed=mixed, order=order, conservativeness=[0.1, 1.0, 1.3][seed % 3],
        prefill_requests=[None, 3][seed % 2],
    )  # fmt: skip

    def policy(requests: Requests, limits: ServingLimits, cache: RadixTree) -> Checked:
        made = Checked(requests, limits, cache, options)
        made.prefixes = prefixes
        return made

    limits = ServingLimits(
        kv_blocks=-(-400 // page), block_tokens=page, max_sequences=12, max_step_tokens=4096, max_context=300,
        lookahead=seed % 2, empty_call_s=0.0,
    )  # fmt: skip
    before = Checked.compared
    simulate(load_, Cliffs(), replace(limits, policy=policy, cache=options.cache))
    assert Checked.compared > before + 10
