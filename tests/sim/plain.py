"""The serving simulator without any cleverness: every step, every request, one at a time.

It follows the loop of vLLM's engine core literally: a queue of batches in flight, a scheduler that
is called when the queue has room, and outputs that are taken in order. The front end stands before and after it: it
takes requests in one by one, later ones with what it has to do for the outputs of earlier ones, and outputs wait for
requests before them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

SLEEP_S = 1e-3
MOST_SHARE = 0.5
BURST = 512
OUTPUT_WAIT = 0.5
CLOCK_STEP = 0.01


@dataclass(eq=False)
class Block:
    """One block of the cache."""

    hash: tuple[int, ...] | None = None
    holders: int = 0


class PlainPool:
    """All blocks, one by one: a queue of those that nobody holds, and a map from the hash of a block to the blocks that
    have it. Without sharing no block ever gets a hash."""

    def __init__(self, requests: Requests, limits: ServingLimits) -> None:
        self.size, self.shares = limits.block_tokens, limits.cache is HashedBlocks
        self.queue = [Block() for _ in range(limits.kv_blocks)]
        self.known: dict[tuple[int, ...], list[Block]] = {}
        self.prefixes = requests.prefixes
        self.adapter = requests.adapter if limits.adapter_slots else None

    def hash_of(self, index: int, place: int) -> tuple[int, ...]:
        """Of the block at a place: who has these tokens, and where they are. Tokens of different nodes differ."""
        owner, end = -2 - index, (place + 1) * self.size
        if self.prefixes is not None:
            node = int(self.prefixes.node[index])
            while node >= 0 and end <= self.prefixes.end[node]:
                owner, node = node, int(self.prefixes.parent[node])
        if self.adapter is not None:
            return owner, place, int(self.adapter[index])
        return owner, place

    def found(self, req: Req) -> list[Block]:
        blocks: list[Block] = []
        while self.shares and (len(blocks) + 1) * self.size < req.goal:
            same = self.known.get(self.hash_of(req.index, len(blocks)))
            if not same:
                break
            blocks.append(same[0])
        return blocks

    def hold(self, blocks: list[Block]) -> None:
        for block in blocks:
            if not block.holders:
                self.queue.remove(block)
            block.holders += 1

    def new(self, count: int) -> list[Block]:
        taken, self.queue = self.queue[:count], self.queue[count:]
        for block in taken:
            if block.hash is not None:
                self.known[block.hash].remove(block)
            block.hash, block.holders = None, 1
        return taken

    def name(self, req: Req, tokens: int) -> None:
        """Give the full blocks of the first tokens their hash."""
        while self.shares and req.hashed < tokens // self.size:
            block = req.blocks[req.hashed]
            block.hash = self.hash_of(req.index, req.hashed)
            self.known.setdefault(block.hash, []).append(block)
            req.hashed += 1

    def give_back(self, req: Req) -> None:
        for block in req.blocks:
            block.holders -= 1
        left = [block for block in reversed(req.blocks) if not block.holders]
        self.queue = [b for b in left if b.hash is None] + self.queue + [b for b in left if b.hash is not None]
        req.blocks, req.hashed = [], 0


@dataclass(eq=False)
class Req:
    index: int
    arrival_s: float
    prompt: int
    output: int
    adapter: int = -1
    priority: int = 0
    computed: int = 0
    made: int = 0
    in_flight: int = 0
    """Tokens that scheduled steps will make and that have not come back."""
    drafts: int = 0
    """That its next step may verify."""
    verified: int = 0
    """Steps with drafts so far."""
    goal: int = 0
    """Tokens to compute before this stay in the batch makes its first token."""
    blocks: list[Block] = field(default_factory=list)
    hashed: int = 0
    """Blocks of it that have a hash."""
    cached: int | None = None
    """Tokens found in the cache when it came in, the last time before its first token."""
    waiting: bool = True
    tokenized_s: float = np.inf
    """When the tokenizer is through with it."""
    taken_in_s: float = np.inf
    """When the front end is through with it."""
    times: list[float] = field(default_factory=list)
    tokens_s: list[float] = field(default_factory=list)
    """When each of its tokens left the engine, and once all is over, when the client had it."""


@dataclass
class Step:
    """A batch: request, tokens of it, tokens it had before, and whether it makes a token."""

    work: list[tuple[Req, int, int, bool]]
    preempted: list[int]
    scheduled_s: float
    start_s: float = 0.0
    end_s: float = 0.0
    adapters: int = 0
    held_s: float = 0.0
    """What it waits for on the host."""
    drafts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each request by index: drafts, and how many are accepted."""


class PlainClock:
    """The clock of every step by itself. A stretch of work is one step with prompts, or steps of as many decodes
    without a pause; where its clock is not yet the one it ends at, it is cut once a window."""

    def __init__(self, cost: StepCost) -> None:
        self.cost = cost
        self.average = np.zeros(2)
        self.own = np.zeros(2)
        self.begun = self.ended = self.joules = 0.0
        self.decodes: int | None = None
        self.cut = np.inf
        self.slowdown = 1.0

    def seconds(self, start: float, chunks: list[tuple[int, int]], contexts: list[int]) -> float:
        """Of a step that starts then, at the clock that it finds."""
        full, clocked, joules = self.work(1.0, chunks, contexts)
        demand = np.array([clocked, joules]) / full
        window = self.cost.governor.window_s
        if chunks:
            self.begin(start, demand, full / window)
        elif len(contexts) != self.decodes or start >= self.cut or start > self.ended:
            self.begin(start, demand, 1.0)
            self.cut = np.inf if self.slowdown == self.steady(demand) else start + window
        self.decodes = None if chunks else len(contexts)
        seconds, _, _ = self.work(self.slowdown, chunks, contexts)
        self.joules += joules * self.cost.governor.energy_share(self.slowdown)
        self.ended = start + seconds
        return seconds

    def begin(self, start: float, demand: np.ndarray, windows: float) -> None:
        window = self.cost.governor.window_s
        self.average = self.own + (self.average - self.own) * np.exp((self.begun - self.ended) / window)
        self.average = self.average * np.exp(-max(start - self.ended, 0.0) / window)
        self.begun, self.own = start, demand
        # The mean over the stretch of an average that goes from what was to what is.
        before = -np.expm1(-windows) / windows
        self.slowdown = self.steady(demand + (self.average - demand) * before)

    def steady(self, demand: np.ndarray) -> float:
        """The clock at which such work draws the limit, found by halving."""
        governor = self.cost.governor
        clocked, watts = demand

        def drawn(x: float) -> float:
            return governor.active_w + watts * governor.energy_share(x) / (1 + clocked * (x - 1))

        low, high = 1.0, governor.most
        if drawn(low) <= governor.limit_w:
            return 1.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if drawn(middle) > governor.limit_w else (low, middle)
        return 1 + CLOCK_STEP * round((high - 1) / CLOCK_STEP)

    def work(self, slowdown: float, chunks: list[tuple[int, int]], contexts: list[int]) -> tuple[float, float, float]:
        if chunks:
            seconds, clocked, joules = self.cost.mixed_work(len(contexts), sum(contexts), chunks)
            return seconds + (slowdown - 1) * clocked, clocked, joules
        curve, mean = self.cost.decode_curve(len(contexts), slowdown), sum(contexts) / len(contexts)
        figures = (curve.seconds, curve.clocked_s, curve.joules)
        seconds, clocked, joules = (interpolate(curve.context, figure, mean) for figure in figures)
        return seconds, clocked, joules


class Plain:
    def __init__(self, requests: Requests, cost: StepCost, limits: ServingLimits, loaded: bool = False) -> None:
        """`loaded`: keys and values of all prompts were sent here, but for those of their last token."""
        self.cost, self.limits, self.loaded = cost, limits, loaded
        given = (requests.arrival_s, requests.input_tokens, requests.output_tokens)
        adapter = np.full(len(requests), -1) if requests.adapter is None else requests.adapter
        priority = np.zeros(len(requests)) if requests.priority is None else requests.priority
        columns = zip(*given, adapter if limits.adapter_slots else adapter * 0 - 1, priority, strict=True)
        self.all = [Req(i, float(a), int(p), int(o), int(of), int(r)) for i, (a, p, o, of, r) in enumerate(columns)]
        self.slots: list[int] = []
        self.host: list[int] = []
        self.arriving = deque(self.all)
        self.waiting: deque[Req] = deque()
        self.passed: list[Req] = []
        """Requests whose adapter found no slot: they stay before all that wait."""
        self.running: list[Req] = []
        self.pool = PlainPool(requests, limits)
        self.unreported = False
        self.now = 0.0
        self.device_end = -np.inf
        self.queue: deque[Step] = deque()
        self.steps: list[Step] = []
        self.first_s = np.zeros(len(self.all))
        self.finish_s = np.zeros(len(self.all))
        self.scheduled_s = np.full(len(self.all), np.nan)
        self.preemptions = 0
        self.peak_blocks = 0
        self.busy_s = 0.0
        self.clock = PlainClock(cost) if cost.governor else None
        self.left_s = -np.inf
        self.warm = False
        door = tokenized = -np.inf
        for req in self.all:
            tokenized = req.tokenized_s = max(tokenized, req.arrival_s) + limits.tokenize_s * req.prompt
            owed = limits.output_s * self.all[req.index - BURST].output if req.index >= BURST else 0.0
            work = min(limits.request_s + owed, limits.request_s / (1 - MOST_SHARE))
            door = req.taken_in_s = max(door, req.tokenized_s) + work

    def visible_s(self, req: Req) -> float:
        return req.taken_in_s + self.limits.ingress_s

    def run(self) -> Plain:
        depth = 1 + self.limits.lookahead
        while True:
            if not (self.has_requests() or self.queue):
                if not self.arriving:
                    return self.through()
                self.now = max(self.now, self.visible_s(self.arriving[0]))
            while self.arriving and self.visible_s(self.arriving[0]) <= self.now:
                self.waiting.append(self.arriving.popleft())
                self.sort()
            ran = False
            if self.has_requests():
                step = self.schedule()
                ran = bool(step.work)
                self.execute(step)
                self.queue.append(step)
                if len(self.queue) < depth and (ran or self.has_requests()):
                    continue
            self.take_outputs(self.queue.popleft())
            if not ran and self.has_requests():
                self.now += SLEEP_S

    def through(self) -> Plain:
        """Outputs wait for requests that came before them. `left_at` is when last tokens left the engine."""
        self.left_at = self.finish_s.copy()
        for times in (self.first_s, self.finish_s) if self.limits.request_s else ():
            for i, left in enumerate(times):
                earlier = [req.taken_in_s for req in self.all if req.tokenized_s < left]
                times[i] += OUTPUT_WAIT * max([0.0, *(taken_in - left for taken_in in earlier)])
        for req in self.all if self.limits.request_s else ():
            for i, left in enumerate(req.tokens_s):
                earlier = [other.taken_in_s for other in self.all if other.tokenized_s < left]
                req.tokens_s[i] += OUTPUT_WAIT * max([0.0, *(taken_in - left for taken_in in earlier)])
        return self

    def has_requests(self) -> bool:
        return bool(self.running or self.waiting or self.passed or self.unreported)

    def sort(self) -> None:
        if self.limits.by_priority:
            self.waiting = deque(sorted(self.waiting, key=lambda req: (req.priority, req.index)))

    def schedule(self) -> Step:
        self.unreported = False
        step = Step([], [], self.now)
        budget = self.limits.max_step_tokens
        i = 0
        while i < len(self.running) and budget > 0:
            req = self.running[i]
            i += 1
            if req.made + req.in_flight >= req.output:
                continue
            tokens = min(max(req.goal - req.computed, 1), budget)
            while not self.allocate(req, req.computed + tokens):
                last = self.running[-1]
                if self.limits.by_priority:
                    last = max(self.running, key=lambda one: (one.priority, one.index))
                # Who is before it and does not run, for it only waits for its last token, does not count in vLLM's
                # place in the batch: the next one is left out.
                self.running.remove(last)
                for at, (scheduled, new, _, makes) in enumerate(step.work):
                    if scheduled is last:
                        del step.work[at]
                        last.in_flight -= makes
                        budget += new
                        i -= 1
                        break
                self.preempt(last)
                step.preempted.append(last.index)
                if last is req:
                    break
            if req.waiting:
                break
            self.put(step, req, tokens)
            budget -= tokens
        slots, passed = {req.adapter for req, *_ in step.work} - {-1}, []
        while (self.waiting or self.passed) and budget > 0 and not step.preempted:
            if len(self.running) == self.limits.max_sequences:
                break
            queue = self.passed or self.waiting
            if self.limits.by_priority and self.passed and self.waiting:
                queue = min((self.passed, self.waiting), key=lambda one: (one[0].priority, one[0].index))
            req = queue[0]
            if len(slots) == self.limits.adapter_slots and req.adapter >= 0 and req.adapter not in slots:
                passed.append(req)
                del queue[0]
                continue
            req.goal = req.prompt + req.made
            found = self.pool.found(req)
            unheld = sum(not block.holders for block in found)
            if self.cdiv(req.goal) - len(found) + unheld > len(self.pool.queue):
                break
            self.pool.hold(found)
            req.blocks, req.hashed = found, len(found)
            req.computed = len(found) * self.limits.block_tokens
            if not req.made:
                req.cached = req.computed
            if self.loaded and not req.times:
                assert self.allocate(req, req.goal - 1)
                req.computed = req.goal - 1
                req.times.append(self.now)
            tokens = min(req.goal - req.computed, budget)
            assert self.allocate(req, req.computed + tokens)
            del queue[0]
            req.waiting = False
            slots |= {req.adapter} - {-1}
            self.running.append(req)
            self.put(step, req, tokens)
            budget -= tokens
        self.passed = passed + self.passed
        if self.limits.by_priority:
            self.passed.sort(key=lambda req: (req.priority, req.index))
        step.adapters = len(slots)
        if any(before < req.goal for req, _, before, _ in step.work):
            step.held_s = self.bring_in(slots)
        self.peak_blocks = max(self.peak_blocks, self.limits.kv_blocks - len(self.pool.queue))
        return step

    def bring_in(self, adapters: set[int]) -> float:
        """Adapters that are not in a slot are copied there, and read into the host's memory where they are not."""
        missing = adapters - set(self.slots)
        unread = adapters - set(self.host)
        self.slots = [a for a in self.slots if a not in adapters] + sorted(adapters - missing) + sorted(missing)
        self.host = [a for a in self.host if a not in adapters] + sorted(adapters - missing) + sorted(missing)
        self.slots = self.slots[max(len(self.slots) - self.limits.adapter_slots, 0) :]
        self.host = self.host[max(len(self.host) - self.limits.host_adapters, 0) :]
        return len(missing) * self.limits.adapter_copy_s + len(unread) * self.limits.adapter_read_s

    def put(self, step: Step, req: Req, tokens: int) -> None:
        before = req.computed
        req.computed += tokens
        makes = req.computed >= req.goal
        req.in_flight += makes
        step.work.append((req, tokens, before, makes))

    def cdiv(self, tokens: int) -> int:
        return (tokens + self.limits.block_tokens - 1) // self.limits.block_tokens

    def allocate(self, req: Req, tokens: int) -> bool:
        new = self.cdiv(tokens) - len(req.blocks)
        if new > len(self.pool.queue):
            return False
        req.blocks = req.blocks + self.pool.new(new)
        # Only tokens that are known have a hash: the prompt, and what has come back.
        self.pool.name(req, min(tokens, req.prompt + req.made))
        return True

    def preempt(self, req: Req) -> None:
        self.pool.give_back(req)
        req.computed = 0
        req.waiting = True
        self.waiting.appendleft(req)
        self.sort()
        self.preemptions += 1

    def execute(self, step: Step) -> None:
        step.start_s = step.end_s = max(self.now, self.device_end)
        if step.work:
            seconds = self.seconds(step)
            was_idle = self.now > self.device_end
            idle = self.limits.idle_start_s if was_idle else 0.0
            launch = self.launch(step) * (1.0 if self.warm and not was_idle else self.limits.idle_launch)
            if launch and step.adapters:
                tokens = sum(tokens for _, tokens, _, _ in step.work)
                launch += step.held_s + self.cost.varied_launch(tokens, step.adapters)
                if self.limits.adapters_wait:
                    launch += max(self.device_end - self.now, 0.0)
            step.end_s = max(step.start_s + idle + seconds, self.now + launch)
            self.busy_s += seconds
            self.device_end = step.end_s
            self.warm = not was_idle or not self.limits.lookahead
            for req, *_ in step.work:
                if np.isnan(self.scheduled_s[req.index]):
                    self.scheduled_s[req.index] = step.scheduled_s
            self.now += launch
        if step.work or step.preempted:
            self.steps.append(step)

    def seconds(self, step: Step) -> float:
        # A chunk is work below the goal of this stay; the rest are decodes.
        chunks = [(tokens, before) for req, tokens, before, _ in step.work if before < req.goal]
        contexts = [before for req, _, before, _ in step.work if before >= req.goal]
        if self.clock:
            return self.clock.seconds(step.start_s, chunks, contexts)
        if chunks and step.adapters:
            return self.cost.varied_work(len(contexts), sum(contexts), chunks, step.adapters)[0]
        if chunks:
            return self.cost.mixed(len(contexts), sum(contexts), chunks)
        curve = self.cost.decode_curve(len(contexts))
        if step.adapters:
            curve = self.cost.varied_curve(len(contexts), 1.0, step.adapters)
        return interpolate(curve.context, curve.seconds, sum(contexts) / len(contexts))

    def launch(self, step: Step) -> float:
        if not any(before < req.goal for req, _, before, _ in step.work):
            return 0.0
        prompts = sum(before < req.goal for req, _, before, _ in step.work)
        return self.cost.launch(sum(tokens for _, tokens, _, _ in step.work), len(step.work), prompts)

    def take_outputs(self, step: Step) -> None:
        self.now = max(self.now, step.end_s)
        if step.work:
            outputs = sum(makes for *_, makes in step.work)
            left = self.now + self.limits.egress_s + self.limits.egress_sequence_s * outputs
            self.left_s = max(self.left_s, left)
        self.note_outputs(step)

    def note_outputs(self, step: Step) -> None:
        for req, _, _, makes in step.work:
            if not makes:
                continue
            req.in_flight -= 1
            req.made += 1
            req.tokens_s.append(self.left_s)
            if not req.waiting:
                self.pool.name(req, req.computed - req.in_flight)
            if req.made == 1:
                self.first_s[req.index] = self.left_s
            if req.made == req.output:
                self.finish_s[req.index] = self.left_s
                self.unreported = True
                self.pool.give_back(req)
                (self.waiting if req.waiting else self.running).remove(req)


def interpolate(xs: np.ndarray, ys: np.ndarray, x: float) -> float:
    if len(xs) == 1:
        return float(ys[0])
    i = min(max(int(np.searchsorted(xs, x, side="right")) - 1, 0), len(xs) - 2)
    return float(ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i]))
