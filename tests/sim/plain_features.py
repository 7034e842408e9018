"""The plain simulator with drafts, a second tier of blocks, adapters and priorities at once: every token of every
request and every block, as vLLM's scheduler and its offloading connector count them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.sim.plain import Plain, Req, Step

from gnomon.sim.serving.policies.drafts import accepted


@dataclass
class Copies:
    """What a step says of copies once its outputs are taken."""

    ended: list[Req] = field(default_factory=list)
    stored: list[list[Any]] = field(default_factory=list)


class PlainHost:
    """Hashes of blocks in the host; of `idle` ones the one used longest ago first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.idle: list[Any] = []
        self.moving: list[Any] = []

    def touch(self, names: list[Any]) -> None:
        for name in reversed([name for name in names if name in self.idle]):
            self.idle.remove(name)
            self.idle.append(name)

    def store(self, names: list[Any]) -> list[Any] | None:
        new = [name for name in names if name not in self.idle + self.moving]
        more = len(new) + len(self.idle) + len(self.moving) - self.size
        gone = [name for name in self.idle if name not in names][: max(more, 0)]
        if len(gone) < more:
            return None
        self.idle = [name for name in self.idle if name not in gone]
        self.moving += new
        return new

    def rest(self, names: list[Any]) -> None:
        for name in reversed(names):
            self.moving.remove(name)
            self.idle.append(name)


class PlainFeatures(Plain):
    """`computed` of a request has tokens of steps in flight, with all drafts; `in_flight` those that they make then."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.tier = PlainHost(self.limits.host_blocks) if self.limits.host_blocks else None
        self.pool.shares |= self.tier is not None
        self.link_s = 0.0
        self.loads: dict[Req, tuple[float, list[Any]]] = {}
        self.told: list[Req] = []
        self.placeless: list[Req] = []
        self.blocked: list[Req] = []
        self.offered: dict[Req, int] = {}

    def known(self, req: Req) -> int:
        return req.prompt + req.made

    def schedule(self) -> Step:
        self.unreported = False
        step = Step([], [], self.now)
        self.plan: dict[Req, tuple[int, int]] = {}
        self.copies = Copies(
            [req for req, (ready, _) in self.loads.items() if ready <= self.now and req not in self.told]
        )
        self.told += self.copies.ended
        budget = self.go_on(step)
        slots = {req.adapter for req in self.plan} - {-1}
        if not step.preempted:
            self.admit(budget, slots)
        self.store()
        for req, (tokens, drafts) in self.plan.items():
            self.commit(step, req, tokens, drafts)
        step.adapters = len(slots)
        if any(before < req.goal for req, _, before, _ in step.work):
            step.held_s = self.bring_in(slots)
        step.copies = self.copies  # type: ignore[attr-defined]
        self.peak_blocks = max(self.peak_blocks, self.limits.kv_blocks - len(self.pool.queue))
        return step

    def go_on(self, step: Step) -> int:
        budget, i = self.limits.max_step_tokens, 0
        while i < len(self.running) and budget > 0:
            req = self.running[i]
            i += 1
            if req.in_flight and req.computed + 2 - req.in_flight >= req.prompt + req.output:
                continue
            tokens = self.known(req) + req.drafts + req.in_flight - req.computed
            tokens = min(tokens, budget, self.limits.max_context - req.computed - 1)
            if tokens <= 0:
                continue
            while not self.allocate(req, req.computed + tokens):
                last = self.running[-1]
                if self.limits.by_priority:
                    last = max(self.running, key=lambda one: (one.priority, one.index))
                self.running.remove(last)
                if last in self.plan:
                    budget += self.plan.pop(last)[0]
                    i -= 1
                last.drafts = 0
                self.preempt(last)
                step.preempted.append(last.index)
                if last is req:
                    return budget
            self.intend(req, tokens)
            budget -= tokens
        return budget

    def intend(self, req: Req, tokens: int) -> None:
        drafts = min(max(tokens + req.computed - self.known(req) - req.in_flight, 0), req.drafts)
        req.drafts = 0
        self.plan[req] = (tokens, drafts)

    def admit(self, budget: int, slots: set[int]) -> None:
        skipped: list[Req] = []
        while (self.waiting or self.passed) and budget > 0 and len(self.running) < self.limits.max_sequences:
            queue: Any = self.passed or self.waiting
            if self.limits.by_priority and self.passed and self.waiting:
                queue = min((self.passed, self.waiting), key=lambda one: (one[0].priority, one[0].index))
            req = queue[0]
            if req in self.loads:
                skipped.append(queue[0])
                del queue[0]
                continue
            if req in self.blocked:
                self.blocked.remove(req)
                self.pool.name(req, len(req.blocks) * self.limits.block_tokens)
            if len(slots) == self.limits.adapter_slots and req.adapter >= 0 and req.adapter not in slots:
                skipped.append(queue[0])
                del queue[0]
                continue
            fate = self.come_in(req)
            if fate == "stop":
                break
            del queue[0]
            if fate == "skip":
                skipped.append(req)
                continue
            tokens = min(req.goal - req.computed, budget)
            assert self.allocate(req, req.computed + tokens)
            req.waiting = False
            slots |= {req.adapter} - {-1}
            self.running.append(req)
            self.intend(req, tokens)
            budget -= tokens
        self.passed = skipped + self.passed
        if self.limits.by_priority:
            self.passed.sort(key=lambda req: (req.priority, req.index))

    def come_in(self, req: Req) -> str:
        """Whether a waiting request comes in, is passed over, or is in the way of all behind it."""
        free, size = len(self.pool.queue), self.limits.block_tokens
        if req in self.placeless:
            if self.cdiv(req.goal) - len(req.blocks) > free:
                return "stop"
            self.placeless.remove(req)
            return "come"
        req.goal, outside = self.known(req), 0
        found = self.pool.found(req)
        if self.tier is not None:
            names = [self.pool.hash_of(req.index, place) for place in range(req.goal // size)]
            here = [name in self.tier.idle or name in self.tier.moving for name in names[len(found) :]] + [False]
            outside = here.index(False)
            late = any(name in self.tier.moving for name in names[len(found) : len(found) + outside])
            self.tier.touch(names)
            if late:
                return "skip"
        unheld = sum(not block.holders for block in found)
        begun = [
            *self.placeless,
            *(one for one in self.running if one.computed + self.plan.get(one, (0,))[0] < one.goal),
        ]
        reserved = sum(max(self.cdiv(one.goal) - len(one.blocks), 0) for one in begun)
        if self.cdiv(req.goal) - len(found) + unheld > free or (outside and outside + unheld > free - reserved):
            return "stop"
        self.pool.hold(found)
        req.blocks, req.hashed = found + self.pool.new(outside), len(found)
        req.computed = min(len(req.blocks) * size, req.goal - 1) if outside else len(found) * size
        if not req.made:
            req.cached = req.computed
        if not outside:
            return "come"
        self.link_s = max(self.now, self.link_s) + self.limits.host_copy_s + outside * self.limits.host_block_s
        moved = names[len(found) : len(found) + outside]
        self.tier.idle = [name for name in self.tier.idle if name not in moved]
        self.tier.moving += moved
        self.loads[req] = (self.link_s, moved)
        self.placeless.append(req)
        self.blocked.append(req)
        self.offered[req] = len(found) + outside
        return "skip"

    def store(self) -> None:
        for req, (tokens, _) in self.plan.items() if self.tier is not None else ():
            behind = min(req.computed + tokens, req.prompt) // self.limits.block_tokens
            names = [self.pool.hash_of(req.index, place) for place in range(self.offered.get(req, 0), behind)]
            new = self.tier.store(names)
            if new is None:
                continue
            self.offered[req] = behind
            if new:
                full = self.known(req) // self.limits.block_tokens
                self.tier.touch([self.pool.hash_of(req.index, place) for place in range(full)])
                self.copies.stored.append(new)

    def commit(self, step: Step, req: Req, tokens: int, drafts: int) -> None:
        before = req.computed
        req.computed += tokens
        makes = req.computed >= self.known(req) + req.in_flight
        if makes and self.limits.lookahead:
            req.in_flight += 1 + drafts
            req.drafts = self.limits.drafts
        kept = 0
        if drafts:
            req.verified += 1
            kept = min(accepted(self.limits.draft_shares, self.limits.draft_seed, req.index, req.verified), drafts)
        step.drafts[req.index] = (drafts, kept)
        step.work.append((req, tokens, before, makes))

    def allocate(self, req: Req, tokens: int) -> bool:
        new = max(self.cdiv(tokens) - len(req.blocks), 0)
        if new > len(self.pool.queue):
            return False
        req.blocks = req.blocks + self.pool.new(new)
        self.pool.name(req, min(tokens, self.known(req)))
        return True

    def take_outputs(self, step: Step) -> None:
        self.now = max(self.now, step.end_s)
        done = [req.made == req.output for req, *_ in step.work]
        if step.work:
            outputs = sum(makes and not ended for (*_, makes), ended in zip(step.work, done, strict=True))
            left = self.now + self.limits.egress_s + self.limits.egress_sequence_s * outputs
            self.left_s = max(self.left_s, left)
        for (req, _, _, makes), ended in zip(step.work, done, strict=True):
            if makes and not ended:
                self.take_output(req, *step.drafts[req.index])
        for names in step.copies.stored:  # type: ignore[attr-defined]
            self.tier.rest(names)
        for req in step.copies.ended:  # type: ignore[attr-defined]
            self.tier.rest(self.loads.pop(req)[1])
            self.told.remove(req)

    def take_output(self, req: Req, drafts: int, kept: int) -> None:
        new = min(kept + 1, req.output - req.made)
        if req.computed:
            req.computed -= drafts - kept
        if self.limits.lookahead:
            req.in_flight -= drafts - kept + new
        elif not req.waiting:
            req.drafts = self.limits.drafts
        if not req.made:
            self.first_s[req.index] = self.left_s
        req.made += new
        if not req.waiting and self.limits.lookahead:
            self.pool.name(req, req.computed - req.in_flight)
        if req.made == req.output:
            self.finish_s[req.index] = self.left_s
            self.unreported = True
            if not req.waiting and self.limits.lookahead:
                self.pool.name(req, req.prompt + req.made - 1)
            self.pool.give_back(req)
            (self.waiting if req.waiting else self.running).remove(req)
