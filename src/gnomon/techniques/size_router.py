"""Short requests go to some replicas and long ones to the others."""

from __future__ import annotations

from gnomon.engines.base import Case, ServingCase
from gnomon.engines.techniques import RouterMaker
from gnomon.sim.serving.routers.size import SizeRouter
from gnomon.techniques.base import SERVING, Parameter, Technique, Trial, Values


class SizeRouting(Technique[ServingCase]):
    """Mélange's routing, for two sizes and replicas that may be unlike."""

    name = "size-router"
    work = (SERVING,)
    title = "Short and long requests on replicas of their own"
    idea = (
        "A router sends requests of up to `tokens` to the slower replicas and longer ones to the faster, so that short "
        "answers do not wait behind long prompts and each size is on the chip that suits it; either part may idle."
    )
    trials = (Trial(paper="melange", words="size-router"),)
    parameters = (
        Parameter("tokens", "of prompt and answer, up to which a request is short", default=1000.0, low=1.0, high=1e7,
                  whole=True),
        Parameter("share", "of the replicas, for short requests", default=0.5, low=0.01, high=0.99),
    )  # fmt: skip
    excludes = ("work-balanced-router",)
    searched = False
    changes = frozenset({"schedule"})

    def router(self, make: RouterMaker, case: Case, values: Values) -> RouterMaker:
        return lambda seed: SizeRouter(int(values["tokens"]), float(values["share"]))

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "the length of every answer is known when its request arrives"


TECHNIQUES = (SizeRouting(),)
