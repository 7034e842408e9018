"""The plain simulator with a second tier of blocks in the host's memory, block by block."""

from __future__ import annotations

from typing import Any

from tests.sim.plain import Plain, Req, Step


class PlainTiers(Plain):
    """A request whose next blocks the host has holds blocks and waits for their copy, outside of the batch."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.host: list[Any] = []
        """Hashes of blocks, the one used longest ago first."""
        self.loading: list[tuple[Req, float, int]] = []
        self.heard: list[Req] = []
        self.link_s = 0.0
        self.pool.shares = True

    def has_requests(self) -> bool:
        return super().has_requests() or bool(self.loading)

    def hashes(self, req: Req, blocks: int) -> list[Any]:
        return [self.pool.hash_of(req.index, place) for place in range(blocks)]

    def touch(self, names: list[Any]) -> None:
        for name in reversed([name for name in names if name in self.host]):
            self.host.remove(name)
            self.host.append(name)

    def offer(self, req: Req) -> None:
        names = self.hashes(req, req.hashed)
        new = [name for name in names[req.verified :] if name not in self.host]
        self.host += new
        if new:
            self.touch(names)
        self.host = self.host[max(len(self.host) - self.limits.host_blocks, 0) :]
        req.verified = max(req.verified, req.hashed)

    def allocate(self, req: Req, tokens: int) -> bool:
        held = super().allocate(req, tokens)
        # What a decode makes is offered once it leaves: only it could find it again.
        if held and req.computed < req.goal:
            self.offer(req)
        return held

    def schedule(self) -> Step:
        self.unreported = False
        step = Step([], [], self.now)
        budget, i = self.limits.max_step_tokens, 0
        while i < len(self.running) and budget > 0:
            req = self.running[i]
            i += 1
            if req.made + req.in_flight >= req.output:
                continue
            tokens = min(max(req.goal - req.computed, 1), budget)
            while not self.allocate(req, req.computed + tokens):
                last = self.running.pop()
                self.preempt(last)
                step.preempted.append(last.index)
                if last is req:
                    break
            if req.waiting:
                break
            self.put(step, req, tokens)
            budget -= tokens
        if not step.preempted:
            self.admit(step, self.admit_copied(step, budget))
        self.peak_blocks = max(self.peak_blocks, self.limits.kv_blocks - len(self.pool.queue))
        return step

    def preempt(self, req: Req) -> None:
        self.leave(req)
        super().preempt(req)

    def leave(self, req: Req) -> None:
        self.offer(req)
        req.verified = 0

    def admit_copied(self, step: Step, budget: int) -> int:
        ended = [req for req, ready, _ in self.loading if ready <= self.now]
        for req in self.heard if self.limits.lookahead else ended[:]:
            if budget <= 0 or len(self.running) >= self.limits.max_sequences:
                break
            tokens = next(tokens for one, _, tokens in self.loading if one is req)
            new = min(req.goal - tokens, budget)
            if self.cdiv(tokens + new) - len(req.blocks) > len(self.pool.queue):
                break
            self.loading = [one for one in self.loading if one[0] is not req]
            ended = [one for one in ended if one is not req]
            req.computed = tokens
            assert self.allocate(req, tokens + new)
            req.waiting = False
            self.running.append(req)
            self.put(step, req, new)
            budget -= new
        self.heard = ended
        return budget

    def admit(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_sequences:
            req = self.waiting[0]
            req.goal = req.prompt + req.made
            found = self.pool.found(req)
            names = self.hashes(req, req.goal // self.limits.block_tokens)
            outside = 0
            while len(found) + outside < len(names) and names[len(found) + outside] in self.host:
                outside += 1
            self.touch(names)
            unheld = sum(not block.holders for block in found)
            begun = [one for one, *_ in self.loading] + [one for one in self.running if one.computed < one.goal]
            reserved = sum(max(self.cdiv(one.goal) - len(one.blocks), 0) for one in begun) if outside else 0
            if self.cdiv(req.goal) - len(found) + unheld + reserved > len(self.pool.queue):
                break
            self.pool.hold(found)
            req.blocks, req.hashed = found, len(found)
            req.computed = len(found) * self.limits.block_tokens
            self.waiting.popleft()
            tokens = min(req.goal - req.computed, outside * self.limits.block_tokens if outside else budget)
            assert self.allocate(req, req.computed + tokens)
            if outside:
                self.link_s = max(self.now, self.link_s) + self.limits.host_copy_s
                self.link_s += outside * self.limits.host_block_s
                req.computed = min(req.computed + tokens, req.goal - 1)
                self.loading.append((req, self.link_s, req.computed))
            if not req.made:
                req.cached = req.computed
            if outside:
                continue
            req.waiting = False
            self.running.append(req)
            self.put(step, req, tokens)
            budget -= tokens

    def take_outputs(self, step: Step) -> None:
        ending = [req for req, _, _, makes in step.work if makes and req.made + 1 == req.output and not req.waiting]
        for req in ending:
            self.pool.name(req, req.prompt + req.made)
            self.leave(req)
        super().take_outputs(step)
