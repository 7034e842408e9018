"""What no schedule can beat, read off the cost of single steps.

Two things are assumed of a step's cost: more work in a step never takes less time, and time grows no
slower than in a straight line with the decodes and prompt tokens beyond the first (`SLACK` leaves room
for the small dents that tiles and captured sizes make in that line).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.ranked import busy_cost
from gnomon.cost.step import Curve, StepCost
from gnomon.search.base import Bounds
from gnomon.spec import Goal, Requests, ServingLimits
from gnomon.spec.workload import QUANTILES, Floats

SLACK = 1.05
ROUNDS, PRICES = 9, 33
"""Rounds in which the best price is closed in on, and prices tried in each: to one part in 16 to the ninth."""
LEAST_DECODES = 1e-9
"""Decode steps of requests that ask for one token: no bound, and no division by zero."""
BINS = 16
"""Equal shares of the requests over which a mean is bounded, each by its shortest."""


@dataclass(frozen=True, eq=False)
class Demand:
    """The lengths of a load's requests, as the bounds need them; each array is sorted."""

    inputs: NDArray[np.int64]
    """Prompt tokens that are computed at least: a prefix cache may have the others."""
    outputs: NDArray[np.int64]
    decoded_inputs: NDArray[np.int64]
    """Prompts of the requests that ask for more than one token."""
    decode_context: float
    """Cached tokens of a decode, on average over all decodes."""

    @classmethod
    def of(cls, requests: Requests) -> Demand:
        later = requests.output_tokens - 1.0
        cached = float((requests.input_tokens * later + later * (later - 1) / 2).sum())
        return cls(
            np.sort(requests.unshared_tokens),
            np.sort(requests.output_tokens),
            np.sort(requests.input_tokens[requests.output_tokens > 1]),
            cached / max(1.0, float(later.sum())),
        )

    @cached_property
    def mean_input(self) -> float:
        return float(self.inputs.mean())

    @cached_property
    def mean_decodes(self) -> float:
        """Decode steps of a request: the first token comes from the prompt."""
        return float(self.outputs.mean()) - 1

    def least(self, lengths: NDArray[np.int64], statistic: str) -> NDArray[np.int64]:
        """Lengths whose mean time is at most the statistic of the times of all lengths, in a rising function."""
        if statistic == "mean":
            return lengths[(np.arange(BINS) * lengths.size) // BINS]
        place = int(np.floor(QUANTILES[statistic] * (lengths.size - 1)))
        return lengths[place : place + 1]


@dataclass(frozen=True, eq=False)
class KnownSteps:
    """Single steps of one cost, each worked out once however many budgets are tried on it."""

    cost: StepCost
    demand: Demand
    _prompts: dict[tuple[int, int], float] = field(default_factory=dict)
    _steps: dict[tuple[int, int], float] = field(default_factory=dict)
    _curves: dict[int, Curve] = field(default_factory=dict)

    def prompt_s(self, tokens: int, budget: int) -> float:
        """A prompt alone, in chunks of at most `budget` tokens: what device or host needs for all of them."""
        key = (tokens, min(tokens, budget))
        if key not in self._prompts:
            chunks = [(min(budget, tokens - at), at) for at in range(0, tokens, budget)]
            device = sum(self.cost.mixed(0, 0, [chunk]) for chunk in chunks)
            self._prompts[key] = max(device, sum(self.cost.launch(new, 1) for new, _ in chunks))
        return self._prompts[key]

    def decode_s(self, sequences: int, context: float) -> float:
        curve = self._curves.get(sequences)
        if curve is None:
            curve = self._curves[sequences] = self.cost.decode_curve(sequences)
        return _along(curve, context)

    def step_s(self, decodes: int, tokens: int) -> float:
        """A step of decodes and prompt tokens of the load's mean lengths; of data-parallel ranks, all have as many."""
        key = (decodes, tokens)
        if key not in self._steps:
            context = self.demand.decode_context
            busy = busy_cost(self.cost)
            if tokens:
                self._steps[key] = busy.mixed(decodes, int(decodes * context), self._chunks(tokens))
            elif busy is not self.cost:
                self._steps[key] = _along(busy.decode_curve(decodes), context)
            else:
                self._steps[key] = self.decode_s(decodes, context)
        return self._steps[key]

    def _chunks(self, tokens: int) -> list[tuple[int, int]]:
        prompt = max(1, int(self.demand.mean_input))
        if tokens < prompt:
            return [(tokens, (prompt - tokens) // 2)]
        return [(prompt, 0)] * (tokens // prompt) + ([(tokens % prompt, 0)] if tokens % prompt else [])


def bounds(times: KnownSteps, limits: ServingLimits, goals: Iterable[Goal], watts: float = 0.0) -> Bounds:
    """Least times of a request served alone, and the highest request rate one replica sustains."""
    return Bounds(
        floors_s={goal.name: _floor(times, limits, goal.metric, goal.statistic) for goal in goals},
        e2e_s=_floor(times, limits, "e2e", "mean"),
        rate_per_s=most_requests_per_s(times, limits),
        watts=watts,
    )


def disaggregated_bounds(
    ahead: tuple[KnownSteps, ServingLimits, int],
    behind: tuple[KnownSteps, ServingLimits],
    transfer_s: Callable[[int], float],
    goals: Iterable[Goal],
    watts: tuple[float, float] = (0.0, 0.0),
) -> Bounds:
    """Of decode replicas behind so many prefill replicas: a request alone waits for its prompt, for the transfer of its
    KV cache and for decode steps of its own; the rate is bounded by either kind. `watts` are those of one replica of
    each kind."""
    (prompts, first, replicas), (decodes, second) = ahead, behind
    demand = decodes.demand
    fixed = first.ingress_s + second.ingress_s + second.egress_s

    def ttft(lengths: Iterable[int]) -> float:
        return fixed + float(np.mean([prompts.prompt_s(n, first.max_step_tokens) + transfer_s(n) for n in lengths]))

    def floor(metric: str, statistic: str) -> float:
        if metric == "tpot":
            return _floor(decodes, second, metric, statistic)
        soonest = ttft(demand.least(demand.inputs, statistic).tolist())
        if metric == "ttft":
            return soonest
        shortest = int(demand.inputs[0])
        later = float(demand.least(demand.outputs, statistic).mean()) - 1
        return max(soonest, ttft([shortest]) + later * decodes.decode_s(1, float(shortest)))

    return Bounds(
        floors_s={goal.name: floor(goal.metric, goal.statistic) for goal in goals},
        e2e_s=floor("e2e", "mean"),
        rate_per_s=_most_decoded_per_s(decodes, second),
        watts=watts[1],
        most_per_s=replicas * most_requests_per_s(prompts, first),
        fixed_watts=replicas * watts[0],
    )


def _most_decoded_per_s(times: KnownSteps, limits: ServingLimits) -> float:
    """Requests per second of a replica that gets prompts with their KV cache: it makes all tokens but the first by
    decode steps."""
    sizes = [size for size in _decode_sizes(limits, times.demand) if size]
    seconds = min(times.step_s(size, 0) / size for size in sizes)
    return limits.ranks * SLACK / (seconds * max(times.demand.mean_decodes, LEAST_DECODES))


def _floor(times: KnownSteps, limits: ServingLimits, metric: str, statistic: str) -> float:
    demand, budget, most = times.demand, limits.max_step_tokens, 1 + limits.drafts
    fixed = limits.ingress_s + limits.egress_s
    prompts = demand.least(demand.inputs, statistic)
    first = fixed + float(np.mean([times.prompt_s(int(tokens), budget) for tokens in prompts]))
    if metric == "ttft":
        return first
    if metric == "tpot":
        decoded = demand.decoded_inputs
        known = demand.least(decoded, statistic) if decoded.size else ()
        # A step makes no more tokens of a sequence than all drafts and one.
        return float(np.mean([times.decode_s(1, float(tokens)) for tokens in known])) / most if len(known) else 0.0
    shortest = int(demand.inputs[0])
    token = times.decode_s(1, float(shortest)) / most
    outputs = demand.least(demand.outputs, statistic)
    whole = fixed + times.prompt_s(shortest, budget) + (float(outputs.mean()) - 1) * token
    return max(first, whole)


def most_requests_per_s(times: KnownSteps, limits: ServingLimits) -> float:
    """Request rate beyond which the backlog of one replica grows.

    A request brings some decodes D and prompt tokens C; a step of kind k does d_k and c_k of them in t_k
    seconds. The least time a request costs is the linear program min sum x_k t_k with sum x_k d_k >= D and
    sum x_k c_k >= C, whatever mixture of steps a scheduler finds. Its dual has two prices, u a decode
    and v a prompt token: max u D + v C with u d_k + v c_k <= t_k for every kind.
    """
    demand = times.demand
    sizes = [(d, c) for d in _decode_sizes(limits, demand) for c in _token_sizes(d, limits, demand) if d + c]
    kinds = [(d, c, times.step_s(d, c)) for d, c in sizes]
    d, c, t = (np.array(column, float) for column in zip(*kinds, strict=True))
    seconds = _least_seconds(d, c, t, demand.mean_decodes / (1 + limits.drafts), demand.mean_input)
    return limits.ranks * SLACK / seconds


def _least_seconds(d: Floats, c: Floats, t: Floats, decodes: float, prompt: float) -> float:
    """The dual over its one free price: concave and piecewise linear, so its best lies where slopes change."""
    with_decodes = d > 0
    ceiling = float(np.min(t[c > 0] / c[c > 0]))
    if decodes <= 0:
        return ceiling * prompt
    low, high = 0.0, ceiling
    dd, dc, dt = d[with_decodes], c[with_decodes], t[with_decodes]

    best = -np.inf
    for _ in range(ROUNDS):
        prices = np.linspace(low, high, PRICES)
        values = ((dt - prices[:, None] * dc) / dd).min(axis=1) * decodes + prices * prompt
        at = int(values.argmax())
        best = max(best, float(values[at]))
        low, high = float(prices[max(at - 1, 0)]), float(prices[min(at + 1, PRICES - 1)])
    return best


def _decode_sizes(limits: ServingLimits, demand: Demand) -> list[int]:
    """Doublings from below and from above, up to what places and cache hold on average."""
    cache_tokens = limits.kv_blocks * limits.block_tokens
    held = int(cache_tokens / max(1.0, demand.decode_context))
    most = max(1, min(limits.max_sequences, held, limits.max_step_tokens))
    powers = [2**power for power in range(most.bit_length())]
    left = [limits.max_sequences - power for power in powers]
    return sorted({0, most, *(size for size in powers + left if 0 < size < most)})


def _token_sizes(decodes: int, limits: ServingLimits, demand: Demand) -> list[int]:
    """Prompt tokens beside some decodes: none, and halvings of what the budget and the places left can take."""
    places = (limits.max_sequences - decodes) * max(1, int(demand.mean_input))
    most = min(limits.max_step_tokens - decodes, places)
    return [0, *sorted({most >> shift for shift in range(8)} - {0})]


def _along(curve: Curve, context: float) -> float:
    """A curve at a context; beyond its last point the last slope goes on."""
    x, y = curve.context, curve.seconds
    if x.size > 1 and context > x[-1]:
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        return float(y[-1] + slope * (context - x[-1]))
    return float(np.interp(context, x, y))
