"""The contract of a serving policy: the queue it takes requests from, and what it decides."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.run import StepTotals
from gnomon.spec.workload import Requests

NO_REQUEST = -1
CALL, ONCE, UNTIL_ARRIVAL, UNTIL_END = range(4)
"""How often a policy decides one token for each decode and nothing else, before it must be called again: not at all;
one time; until a request arrives, one of the decodes ends or blocks run out; the same whatever arrives."""

Progress = Callable[[int], None]
"""Called periodically with the number of requests that have finished so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One call of the scheduler. Requests go by their index.

    A call that found nothing to run but took requests out of the batch has no tokens, and ends
    where it starts.
    """

    scheduled_s: float
    start_s: float
    end_s: float
    decodes: int
    decode_context: int
    """Tokens the decodes had cached before the step, together."""
    chunks: tuple[tuple[int, int], ...]
    """Prompt pieces: new tokens, tokens cached before them."""
    tokens: tuple[tuple[int, int], ...]
    """(request, tokens of it the step ran), in the order of the batch."""
    preempted: tuple[int, ...] = ()


@dataclass(slots=True)
class Recorder:
    """Keeps every step of a run; with one, the simulator walks step by step instead of jumping."""

    steps: list[StepRecord] = field(default_factory=list)

    def add(self, step: StepRecord) -> None:
        self.steps.append(step)


class Queue:
    """The requests of one replica that have never run, in order of arrival."""

    __slots__ = ("head", "scheduled_s", "visible_s")

    def __init__(self) -> None:
        self.head = 0
        """The first that has never run."""
        self.visible_s = array("d")
        """When the scheduler can see each request; at last, when it could see one that is not known yet."""
        self.scheduled_s = array("d")
        """When each first ran."""


class Decision(NamedTuple):
    """What one call of a scheduler decided, as long as what changes."""

    decodes: int
    """Sequences that get one more token each: all that decode, or none."""
    context: int
    """Their cached tokens together."""
    chunks: list[tuple[int, int]]
    """Prompt pieces: new tokens, tokens cached before them."""
    prompts: list[int]
    """The requests that these are of."""
    preempted: list[int]
    tokens: int
    """All tokens of the step."""
    variant: int = 0
    """What the cost of a step with prompts depends on beside (`gnomon.cost.step.variant`)."""


class Policy(Protocol):
    """Decides what each step of one replica runs: it turns queue and cache into decisions, and owns no time.

    A policy is deterministic, makes exactly `output_tokens` tokens for each request, and may count
    on requests and limits that `check` has passed. `gnomon.sim.serving.batch.BatchState` has all of it but `horizon`
    and `decide` for schedulers whose decodes move together.
    """

    cache: CacheModel
    in_flight: bool
    """Set by the loop: a step is in flight whose outputs are not known yet."""
    preemptions: int
    count: int
    """Requests that hold a place."""
    decoding: dict[int, tuple[int, int]]
    leaving: dict[int, int]
    """Tokens of the requests that only wait for their last token."""
    resumed: list[int]
    """Preempted requests; some policies have all here that wait and that the scheduler can see."""
    loaded: set[int]
    """Requests whose keys and values were sent here, all but those of their last token."""
    cached: array[int]
    """Tokens that each request found in the cache when it last came in before its first token."""

    held_s: float
    """What the last decision's step waits for on the host before it is launched, where it has prompts."""

    @property
    def away(self) -> int:
        """Requests that were preempted and are not back."""

    @property
    def variant(self) -> int:
        """What steps of the present decodes have that their cost depends on (`gnomon.cost.step.variant`)."""

    @property
    def context(self) -> int:
        """Cached tokens of all decodes together."""

    @property
    def peak_blocks(self) -> int: ...

    def horizon(self, queue: Queue, now: float) -> int:
        """How often the next decision is one token for each decode and nothing else: CALL, ONCE, UNTIL_ARRIVAL or
        UNTIL_END. Such decisions are not asked for: the loop makes them by `advance`."""

    def to_next_end(self) -> tuple[int, int]:
        """Decode steps until one of them finishes a request, and as many of them as find blocks."""

    def advance(self, steps: int) -> None:
        """Make so many decisions of one token for each decode."""

    def retire(self) -> dict[int, int]:
        """Take the decodes that made their last token out of the decodes; their tokens."""

    def decide(self, queue: Queue, now: float) -> Decision:
        """One call of the scheduler."""

    def apply(self, decision: Decision) -> tuple[list[int], dict[int, int], int]:
        """The decision runs: the requests whose first token it makes, those (with their tokens) whose last, and how
        many tokens leave."""

    def release(self) -> None:
        """The last tokens of the leaving have come: free their places and blocks."""

    def ordered(self) -> Iterator[int]:
        """The decodes in the order of the batch."""

    def shares(self) -> Iterator[tuple[int, int]]:
        """Those of the last decision, with their tokens."""

    def totals(self) -> StepTotals: ...

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        """One more request that may come in, the node of its prefix, whether its keys and values were sent here, all
        but those of its last token, and its LoRA adapter and priority; its index."""

    def forked(self, requests: Requests | None) -> Self:
        """A copy, to go on by itself with requests of which the first are those known so far."""
