"""The plain simulator with drafts: every token of every request, as vLLM's scheduler counts them."""

from __future__ import annotations

from tests.sim.plain import Plain, Req, Step

from gnomon.sim.serving.policies.speculative import accepted


class PlainDrafts(Plain):
    """`computed` of a request has tokens of steps in flight, with all drafts; `in_flight` those that they make then."""

    def schedule(self) -> Step:
        self.unreported = False
        step = Step([], [], self.now)
        step.drafts = {}
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
                last = self.running.pop()
                last.drafts = 0
                self.preempt(last)
                step.preempted.append(last.index)
                if last is req:
                    break
            if req.waiting:
                break
            self.put(step, req, tokens)
            budget -= tokens
        while self.waiting and budget > 0 and not step.preempted and len(self.running) < self.limits.max_sequences:
            req = self.waiting[0]
            req.goal = self.known(req)
            found = self.pool.found(req)
            unheld = sum(not block.holders for block in found)
            if self.cdiv(req.goal) - len(found) + unheld > len(self.pool.queue):
                break
            self.pool.hold(found)
            req.blocks, req.hashed = found, len(found)
            req.computed = len(found) * self.limits.block_tokens
            if not req.made:
                req.cached = req.computed
            tokens = min(req.goal - req.computed, budget)
            assert self.allocate(req, req.computed + tokens)
            self.waiting.popleft().waiting = False
            self.running.append(req)
            self.put(step, req, tokens)
            budget -= tokens
        self.peak_blocks = max(self.peak_blocks, self.limits.kv_blocks - len(self.pool.queue))
        return step

    def known(self, req: Req) -> int:
        return req.prompt + req.made

    def put(self, step: Step, req: Req, tokens: int) -> None:
        before = req.computed
        drafts = min(max(tokens + before - self.known(req) - req.in_flight, 0), req.drafts)
        req.computed += tokens
        req.drafts = 0
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
            if not makes or ended:
                continue
            drafts, kept = step.drafts[req.index]
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
                if not req.waiting:
                    self.pool.name(req, req.prompt + req.made - 1)
                self.pool.give_back(req)
                (self.waiting if req.waiting else self.running).remove(req)
