"""A shell script that starts every replica under its serving engine, and the plan beside it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.export import pool_script
from gnomon.export.base import Rendered, header, in_other_words, operated, require_load
from gnomon.export.pools import check_pools, has_router
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Plan


@dataclass(frozen=True, slots=True)
class ServingScript:
    """The target of one serving engine, which has its name."""

    NAME: str

    def render(self, plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
        require_load(plan, self.NAME)
        if has_router(plan):
            return pool_script.render(plan, self.NAME, warnings)
        engine = operated(plan, self.NAME)
        left_out = engine.not_expressed(in_other_words(plan))
        return Rendered(
            files={"launch.sh": engine.script(plan, header(warnings, left_out)), "plan.yaml": plan_to_yaml(plan)},
            command=shlex.join(engine.command(plan)),
            engine=engine.NAME,
            version=engine.version_of(plan),
            not_expressed=tuple(left_out),
        )

    def words(self, plan: Plan) -> list[str]:
        return operated(plan, self.NAME).command(plan)

    def check(self, plan: Plan) -> None:
        check_pools(plan, self.NAME)
