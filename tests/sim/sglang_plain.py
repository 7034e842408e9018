"""SGLang's loop without any cleverness: every step, every request, every token and every page by itself.

Its scheduler, its budget and its radix tree follow 0.5.23 rule by rule: `get_next_batch_to_run`,
`_get_new_batch_prefill_raw`, `update_running_batch` and `retract_decode` (managers/scheduler.py, schedule_batch.py),
`PrefillAdder` and `SchedulePolicy` (managers/schedule_policy.py), `PrefillBudget` (mem_cache/prefill_budget.py),
`UnifiedRadixCache` with its full component (mem_cache/unified_radix_cache.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from tests.sim.plain import BURST, MOST_SHARE, Plain, PlainClock, Step

from gnomon.cost.step import StepCost
from gnomon.engines.sglang.scheduling import Scheduling
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

Token = tuple[int, int]
CLIP = 4096


@dataclass(eq=False)
class TreeNode:
    parent: TreeNode | None
    tokens: list[Token]
    pages: list[int]
    time: int
    locks: int = 0
    children: dict[tuple[Token, ...], TreeNode] = field(default_factory=dict)


class PlainTree:
    """A radix tree over tokens, and the allocator of its pages."""

    def __init__(self, pages: int, size: int, enabled: bool) -> None:
        self.size, self.enabled = size, enabled
        self.empty = list(range(pages))
        self.root = TreeNode(None, [], [], 0, locks=1)
        self.time = 0

    def tick(self) -> int:
        self.time += 1
        return self.time

    def nodes(self) -> list[TreeNode]:
        found, stack = [], [self.root]
        while stack:
            node = stack.pop()
            found.append(node)
            stack += node.children.values()
        return found[1:]

    def evictable(self) -> int:
        return sum(len(node.pages) for node in self.nodes() if not node.locks)

    def path(self, node: TreeNode) -> list[TreeNode]:
        found = []
        while node is not self.root:
            found.append(node)
            node = node.parent
        return found

    def walk(self, tokens: list[Token], touch: bool) -> TreeNode:
        node, at = self.root, 0
        while at + self.size <= len(tokens):
            child = node.children.get(tuple(tokens[at : at + self.size]))
            if child is None:
                break
            if touch:
                child.time = self.tick()
            same = 0
            while same < len(child.tokens) and child.tokens[same : same + self.size] == tokens[at : at + self.size]:
                same, at = same + self.size, at + self.size
            if same < len(child.tokens):
                return self.split(child, same)
            node = child
        return node

    def split(self, child: TreeNode, same: int) -> TreeNode:
        parent = child.parent
        first = TreeNode(parent, child.tokens[:same], child.pages[: same // self.size], self.tick(), child.locks)
        parent.children[tuple(child.tokens[: self.size])] = first
        child.parent, child.tokens, child.pages = first, child.tokens[same:], child.pages[same // self.size :]
        first.children[tuple(child.tokens[: self.size])] = child
        child.time = self.tick()
        return first

    def match(self, tokens: list[Token]) -> TreeNode:
        tokens = tokens[: len(tokens) // self.size * self.size] if self.enabled else []
        if not tokens:
            return self.root
        node = self.walk(tokens, touch=False)
        time = self.tick()
        for each in self.path(node):
            each.time = time
        return node

    def insert(self, tokens: list[Token], pages: list[int]) -> tuple[int, TreeNode]:
        """Tokens in whole pages: how many pages were known, and the last node."""
        node = self.walk(tokens, touch=True)
        known = sum(len(each.pages) for each in self.path(node))
        if known < len(pages):
            rest = tokens[known * self.size :]
            last = TreeNode(node, rest, pages[known:], self.tick())
            node.children[tuple(rest[: self.size])] = last
            node = last
        return known, node

    def lock(self, node: TreeNode, by: int) -> None:
        for each in self.path(node):
            each.locks += by

    def evict(self, wanted: int) -> None:
        while len(self.empty) < wanted:
            leaves = [node for node in self.nodes() if not (node.locks or node.children)]
            if not leaves:
                return
            node = min(leaves, key=lambda each: each.time)
            del node.parent.children[tuple(node.tokens[: self.size])]
            self.empty += node.pages

    def alloc(self, pages: int) -> list[int]:
        self.evict(pages)
        assert len(self.empty) >= pages
        taken, self.empty = self.empty[:pages], self.empty[pages:]
        return taken


@dataclass(eq=False)
class SglReq:
    index: int
    arrival_s: float
    prompt: int
    output: int
    taken_in_s: float = np.inf
    made: int = 0
    """Output tokens that have come back."""
    prefix: int = 0
    end: int = 0
    """Tokens of its row that are computed, or in flight."""
    goal: int = 0
    row: list[int] = field(default_factory=list)
    protected: int = 0
    node: TreeNode | None = None
    retracted: bool = False
    cached: int | None = None
    matched: int = 0


class PlainSglang(Plain):
    def __init__(self, requests: Requests, cost: StepCost, limits: ServingLimits, options: Scheduling) -> None:
        self.cost, self.limits, self.options = cost, limits, options
        columns = zip(requests.arrival_s, requests.input_tokens, requests.output_tokens, strict=True)
        self.all = [SglReq(i, float(a), int(p), int(o)) for i, (a, p, o) in enumerate(columns)]
        self.prefixes = requests.prefixes
        self.arriving = deque(self.all)
        self.waiting: list[SglReq] = []
        self.running: list[SglReq] = []
        self.merging: list[SglReq] = []
        self.chunked: SglReq | None = None
        self.tree = PlainTree(limits.kv_blocks, limits.block_tokens, options.radix)
        self.full = False
        self.queue: deque[Step] = deque()
        self.steps: list[Step] = []
        self.now, self.device_end, self.left_s, self.busy_s = 0.0, -np.inf, -np.inf, 0.0
        self.warm, self.preemptions, self.refreshes = False, 0, 0
        count = len(self.all)
        self.first_s, self.finish_s, self.scheduled_s = np.zeros(count), np.zeros(count), np.full(count, np.nan)
        self.clock = PlainClock(cost) if cost.governor else None
        self.initial = min(0.7 * options.conservativeness, 1.0)
        self.least = min(self.initial * 0.14, 1.0)
        self.ratio_base, self.decays = self.initial, 0
        self.page = limits.block_tokens
        door = -np.inf
        for req in self.all:
            owed = limits.output_s * self.all[req.index - BURST].output if req.index >= BURST else 0.0
            work = min(limits.request_s + owed, limits.request_s / (1 - MOST_SHARE))
            door = req.taken_in_s = max(door, req.arrival_s) + work

    @property
    def ratio(self) -> float:
        return max(self.ratio_base - self.decays * ((self.initial - self.least) / 600), self.least)

    def token(self, req: SglReq, place: int) -> Token:
        owner = -2 - req.index
        if self.prefixes is not None:
            node = int(self.prefixes.node[req.index])
            while node >= 0 and place < self.prefixes.end[node]:
                owner, node = node, int(self.prefixes.parent[node])
        return owner, place

    def tokens(self, req: SglReq, count: int) -> list[Token]:
        return [self.token(req, place) for place in range(count)]

    def run(self) -> PlainSglang:
        while True:
            self.ingest()
            if not (self.waiting or self.merging or self.chunked or self.queue or self.unfinished()):
                self.ratio_base, self.decays = self.initial, 0
                if not self.arriving:
                    return self.through()
                self.now = max(self.now, self.visible_s(self.arriving[0]))
                self.ingest()
            step = self.schedule()
            ran = bool(step.work)
            self.execute(step)
            if ran:
                self.queue.append(step)
            if len(self.queue) > (ran and self.limits.lookahead):
                self.take_outputs(self.queue.popleft())
            self.check_pages()

    def ingest(self) -> None:
        while self.arriving and self.visible_s(self.arriving[0]) <= self.now:
            self.waiting.append(self.arriving.popleft())

    def unfinished(self) -> bool:
        return any(req.made < req.output for req in self.running)

    def check_pages(self) -> None:
        """Every page is empty, in the tree or in one row, once."""
        own = [page for req in self.all for page in req.row[req.protected :]]
        everywhere = self.tree.empty + [page for node in self.tree.nodes() for page in node.pages] + own
        assert sorted(everywhere) == list(range(self.limits.kv_blocks))

    def finishing(self) -> list[SglReq]:
        if not self.queue:
            return []
        last = {req for req, *_ in self.queue[-1].work}
        return [req for req in self.running if req in last and req.made + 1 >= req.output]

    def schedule(self) -> Step:
        step = Step([], [], self.now)
        if self.chunked:
            self.checkpoint(self.chunked, self.chunked.end)
            self.chunked.prefix = self.chunked.end
        if self.merging:
            done = [req for req in self.merging if req is not self.chunked]
            if len(done) < len(self.merging) or not self.running:
                self.full = False
            self.running = self.running + done
            self.merging = []
        if any(req.made >= req.output for req in self.running):
            self.running = [req for req in self.running if req.made < req.output]
            self.full = False
        self.prefill(step)
        if not step.work and self.running:
            self.decode(step)
        return step

    def prefill(self, step: Step) -> None:
        if not self.running:
            self.full = False
        if (self.full or not self.waiting) and not self.chunked:
            return
        rows = len([req for req in self.all if req.row])
        if self.limits.max_sequences - rows <= 0 and not self.chunked:
            self.full = True
            return
        self.sort()
        batch = self.add_all(self.limits.max_sequences - rows)
        if not batch:
            return
        new_pages = [self.pages(req.prefix + new) - self.pages(req.prefix) for req, new in batch]
        if self.page > 1:
            tokens = sum(new for _, new in batch)
            self.tree.evict(-(-(tokens + len(batch) * self.page) // self.page))
        for (req, new), pages in zip(batch, new_pages, strict=True):
            req.row = req.row + self.tree.alloc(pages)
            req.end = req.prefix + new
            step.work.append((req, new, req.prefix, req is not self.chunked))
        self.merging = [req for req, _ in batch]
        if self.options.mixed and self.running:
            gone = self.finishing()
            if gone:
                self.full = False
            self.running = [req for req in self.running if req not in gone]
            need = sum(req.end % self.page == 0 for req in self.running)
            if self.running and self.fits(need):
                self.step_decodes(step)
                self.merging += self.running
                self.running = []

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.page)

    def pool(self) -> int:
        return (len(self.tree.empty) + self.tree.evictable()) * self.page

    def fits(self, pages: int) -> bool:
        self.tree.evict(pages)
        return len(self.tree.empty) >= pages

    def add_all(self, slots: int) -> list[tuple[SglReq, int]]:
        mixed = len(self.running) if self.options.mixed else 0
        self.total = mixed + sum(min(req.output - req.made, CLIP) for req in self.running) * self.ratio
        self.current = mixed
        self.rem_input = self.options.prefill_tokens - mixed
        self.rem_chunk = None if self.options.chunk_tokens is None else self.options.chunk_tokens - mixed
        self.batch: list[tuple[SglReq, int]] = []
        if self.chunked:
            self.add_chunked(self.chunked)
        admitted = 0
        for req in list(self.waiting):
            if self.budget() == "other":
                break
            if admitted >= slots:
                self.full = True
            if self.full:
                break
            before = len(self.batch)
            said = self.add_one(req)
            if len(self.batch) > before:
                admitted += 1
                self.waiting.remove(req)
            if said == "no token":
                self.full = bool(self.batch) or bool(self.running)
            if said != "continue":
                break
        return self.batch

    def budget(self) -> str:
        if self.pool() - self.total <= 0 or self.pool() - self.current <= 0:
            return "no token"
        if self.rem_input <= 0 or (self.rem_chunk is not None and self.rem_chunk <= 0):
            return "other"
        return "continue"

    def reserve(self, new: int, more: int) -> None:
        paged = self.pages(new) * self.page
        self.total += paged + self.page + more
        self.current += paged + self.page
        self.rem_input -= paged
        if self.rem_chunk is not None:
            self.rem_chunk -= paged

    def add_chunked(self, req: SglReq) -> None:
        left = req.goal - req.prefix
        limit = min(self.rem_chunk, int(self.pool() - self.total))
        limit = limit if limit > 0 else self.rem_chunk
        new = min(left, limit)
        self.batch.append((req, new))
        self.reserve(new, 0 if left > limit else min(req.output, CLIP))
        if left <= limit:
            self.chunked = None

    def add_one(self, req: SglReq) -> str:
        req.goal = req.prompt + req.made
        node = self.tree.match(self.tokens(req, req.goal - 1))
        path = self.tree.path(node)
        req.prefix = sum(len(each.pages) for each in path) * self.page
        if self.options.prefill_requests is not None and len(self.batch) >= self.options.prefill_requests:
            return "other"
        new = req.goal - req.prefix
        total = new + min(req.output - req.made, CLIP) + self.page
        self.tree.lock(node, 1)
        try:
            if not total < self.pool() - self.total:
                return "no token"
            more = min(req.output, CLIP)
            paged = self.pages(new) * self.page
            if self.rem_chunk is None:
                if self.batch and paged >= self.rem_input:
                    return "other"
            elif paged > self.rem_chunk:
                new, more = self.rem_chunk // self.page * self.page, 0
                if new <= 0:
                    return "other"
                self.chunked = req
            self.tree.lock(node, 1)
            req.node, req.protected = node, req.prefix // self.page
            req.row = [page for each in reversed(path) for page in each.pages]
            req.retracted = False
            if not req.made and not np.isfinite(self.scheduled_s[req.index]):
                req.cached = req.prefix
            self.batch.append((req, new))
            self.reserve(new, more)
        finally:
            self.tree.lock(node, -1)
        return self.budget()

    def sort(self) -> None:
        if self.options.order == "lpm" and self.options.radix and len(self.waiting) <= 128:
            later, before = set(), []
            for req in self.waiting:
                tokens = self.tokens(req, req.prompt + req.made)
                node = self.tree.match(tokens)
                found = sum(len(each.pages) for each in self.tree.path(node)) * self.page
                req.matched = min(found, len(tokens) - 1)
                if found <= 32:
                    shared = max((common(tokens, other) for other in before), default=0)
                    if shared >= 32:
                        later.add(req)
                    else:
                        before.append(tokens)
            self.waiting.sort(key=lambda req: np.inf if req in later else -req.matched)
            return
        if self.options.order == "lof":
            self.waiting.sort(key=lambda req: -req.output)
        if self.options.radix and self.waiting:
            if self.refreshes % 32 == 0:
                for req in reversed(self.waiting[:128]):
                    self.tree.match(self.tokens(req, req.prompt + req.made))
            self.refreshes += 1

    def decode(self, step: Step) -> None:
        gone = self.finishing()
        if gone:
            self.full = False
            self.running = [req for req in self.running if req not in gone]
        if not self.running:
            return
        if not self.fits(self.need(self.running)):
            self.full = False
            if gone:
                return
            self.retract(step)
        else:
            self.decays += 1
        self.step_decodes(step)

    def need(self, reqs: list[SglReq]) -> int:
        return sum(req.end % self.page == 0 for req in reqs)

    def step_decodes(self, step: Step) -> None:
        if self.page > 1:
            self.tree.evict(len(self.running))
        for req in self.running:
            if req.end % self.page == 0:
                req.row = req.row + self.tree.alloc(1)
            step.work.append((req, 1, req.end, True))
            req.end += 1

    def retract(self, step: Step) -> None:
        kept = sorted(self.running, key=lambda req: (req.made, -req.prompt), reverse=True)
        first = True
        while first or not self.fits(self.need(kept)):
            if len(kept) == 1:
                break
            first = False
            req = kept.pop()
            self.give_back(req)
            req.retracted = True
            self.tree.evict(-(-len(kept) * 20 // self.page))
            self.waiting.append(req)
            step.preempted.append(req.index)
            self.preemptions += 1
        self.running = [req for req in self.running if req in kept]
        made = sum(req.made for req in kept) + 20 * len(kept)
        self.ratio_base, self.decays = min(1.0, made / (sum(req.output for req in kept) + 1)), 0

    def checkpoint(self, req: SglReq, tokens: int) -> None:
        if not self.tree.enabled:
            return
        pages = tokens // self.page
        known, node = self.tree.insert(self.tokens(req, pages * self.page), req.row[:pages])
        boundary = req.prompt // self.page
        if 0 < boundary < pages:
            self.tree.insert(self.tokens(req, boundary * self.page), req.row[:boundary])
        self.tree.empty += req.row[req.protected : known]
        in_tree = [page for each in reversed(self.tree.path(node)) for page in each.pages]
        req.row = in_tree + req.row[pages:]
        self.tree.lock(node, 1)
        self.tree.lock(req.node, -1)
        req.node, req.protected = node, pages

    def give_back(self, req: SglReq) -> None:
        self.tree.empty += req.row[req.protected :]
        self.tree.lock(req.node, -1)
        req.row, req.protected, req.node = [], 0, None

    def take_outputs(self, step: Step) -> None:
        self.now = max(self.now, step.end_s)
        outputs = sum(makes for *_, makes in step.work)
        self.left_s = max(self.left_s, self.now + self.limits.egress_s + self.limits.egress_sequence_s * outputs)
        for req, _, before, makes in step.work:
            if not makes or req.retracted:
                continue
            req.made += 1
            if req.made == 1:
                self.first_s[req.index] = self.left_s
            if req.made == req.output:
                self.finish_s[req.index] = self.left_s
                self.checkpoint(req, req.end)
                self.give_back(req)
            elif before < req.goal:
                self.checkpoint(req, req.goal)


def common(one: list[Token], other: list[Token]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count
