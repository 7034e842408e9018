"""What a search has run so far, and what it holds decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gnomon.search.base import Candidate, Evaluator, Level, PlanFamily, Score
from gnomon.search.objectives import SearchJob
from gnomon.search.rate import raised

MANY_REPLICAS = 64
"""Of so many replicas one more or less decides nothing."""


@dataclass(slots=True)
class Ledger:
    """Runs each plan once at each rate on its sample, and remembers what ran."""

    evaluator: Evaluator
    job: SearchJob
    seen: dict[tuple[Candidate, float], Score] = field(default_factory=dict)
    barred: dict[Candidate, Score] = field(default_factory=dict)
    """Plans that missed their goals on the full load, or met them by less than the sample promised: they are
    decided, and the search goes on among the others."""
    least: dict[PlanFamily, int] = field(default_factory=dict)
    """Replicas below which a family misses its goals on the full load."""
    seen_in_full: dict[tuple[Candidate, float, Level], Score] = field(default_factory=dict)
    full: dict[Candidate, Score] = field(default_factory=dict)
    """The last run of each plan that had one on the full load."""

    def promises(self, plan: Candidate, rate_per_s: float) -> bool:
        """Whether a plan that is not decided yet meets the goals on its sample; less is run than for its figures."""
        if plan in self.barred or plan.replicas < self.least.get(plan.family, 0):
            return False
        key = (plan, rate_per_s)
        if key not in self.seen:
            self.seen[key] = self.evaluator.evaluate(plan, rate_per_s, Level.VERDICT)
        return self.seen[key].meets(self.job.goals)

    def run(self, plan: Candidate, rate_per_s: float) -> Score:
        if plan in self.barred:
            return replace(self.barred[plan], grows=True)
        if plan.replicas < self.least.get(plan.family, 0):
            return replace(self.sample(plan, rate_per_s), grows=True)
        return self.sample(plan, rate_per_s)

    def sample(self, plan: Candidate, rate_per_s: float) -> Score:
        """A plan on its sample, whatever is decided."""
        key = (plan, rate_per_s)
        if key not in self.seen:
            self.seen[key] = self.evaluator.evaluate(plan, rate_per_s, Level.SEARCH)
        return self.seen[key]

    def run_in_full(self, plan: Candidate, rate_per_s: float) -> Score:
        """At a rate that may be lowered an unclear verdict is a no; at a given one it is worth longer runs."""
        return self._full(plan, rate_per_s, Level.SURE if rate_per_s == self.job.rate_per_s else Level.FULL)

    def _full(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        key = (plan, rate_per_s, level)
        if key not in self.seen_in_full:
            self.seen_in_full[key] = self.evaluator.evaluate(plan, rate_per_s, level)
        self.full[plan] = self.seen_in_full[key]
        return self.full[plan]

    def enough(self, plan: Candidate) -> bool:
        """Whether a plan meets the goals on the full load. Of hundreds of replicas one more or less decides nothing, so
        an unclear verdict is a no there, and is not worth a longer run."""
        level = Level.SURE if plan.replicas < MANY_REPLICAS else Level.FULL
        return self._full(plan, self.job.rate_per_s, level).surely_meets(self.job.goals)

    def more_replicas(self, plan: Candidate) -> int:
        """The fewest replicas of the plan's family that meet the goals on the full load, where the plan's own do not:
        growing steps up, then back to the border. One more than there are where none do."""

        def enough(replicas: int) -> bool:
            return self.enough(replace(plan, replicas=replicas))

        most = plan.family.most
        if plan.replicas >= most:
            return most + 1
        found = raised(enough, plan.replicas + 1, most, max(1, plan.replicas // MANY_REPLICAS))
        return most + 1 if found is None else found

    @property
    def ran(self) -> set[Candidate]:
        """Every plan that was simulated, however far."""
        return {plan for plan, _ in self.seen} | set(self.full)

    def judged(self) -> tuple[Score, ...]:
        """One score a plan: at the highest rate that meets the goals, or else at the lowest. A plan that only its
        sample let through has none."""
        chosen: dict[Candidate, Score] = {}
        for score in self.seen.values():
            if score.plan in self.barred:
                chosen[score.plan] = self.barred[score.plan]
                continue
            if score.meets(self.job.goals) and score.plan.replicas < self.least.get(score.plan.family, 0):
                continue
            other = chosen.setdefault(score.plan, score)
            sign = 1 if score.meets(self.job.goals) else -1
            known = 1 if other.meets(self.job.goals) else -1
            if (sign, sign * score.rate_per_s) > (known, known * other.rate_per_s):
                chosen[score.plan] = score
        return tuple(chosen.values())
