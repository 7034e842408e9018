"""What is asked of the chips: one step's batch, a stream of requests, the goals they must meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from gnomon.spec.answers import NotModelled
    from gnomon.spec.loads.arrivals.base import ArrivalProcess
    from gnomon.spec.loads.documents import Documents
    from gnomon.spec.loads.images import RequestImages
    from gnomon.spec.loads.lengths.base import Lengths
    from gnomon.spec.loads.popularity import Adapters, Priorities, SharedPrefix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step runs, as sums over its sequences; arrays describe many steps at once.

    A sequence with `q` new tokens over `c` cached ones has `q * c + q * (q + 1) / 2` causal
    query-key pairs and reads `c + q` cached tokens. Decodes have q = 1.
    """

    decodes: Floats
    decode_context: Floats
    prefills: Floats
    prefill_tokens: Floats
    prefill_pairs: Floats
    prefill_context: Floats
    logit_rows: Floats
    documents: Documents | None = field(default=None, kw_only=True)
    """Where prompts are not equally long, and known one by one."""

    @property
    def tokens(self) -> Floats:
        return self.decodes + self.prefill_tokens

    @property
    def prompt(self) -> Floats:
        """Mean new tokens of a prompt."""
        return self.prefill_tokens / np.maximum(self.prefills, 1.0)

    @property
    def cached(self) -> Floats:
        """Tokens cached before the new ones of the prompts, together."""
        return self.prefill_context - self.prefill_tokens

    @property
    def size(self) -> int:
        return int(self.decodes.size)

    @classmethod
    def decode(cls, sequences: ArrayLike, context: ArrayLike) -> Batch:
        """Steps of `sequences` decodes, each with `context` tokens already cached."""
        n, c = np.broadcast_arrays(np.atleast_1d(np.asarray(sequences, float)), np.asarray(context, float))
        zero = np.zeros_like(n)
        return cls(n, n * (c + 1), zero, zero, zero, zero, n)

    @classmethod
    def prefill(cls, sequences: ArrayLike, tokens: ArrayLike, context: ArrayLike = 0) -> Batch:
        """Steps of `sequences` prompts of `tokens` new tokens each, over `context` cached ones."""
        n, q, c = np.broadcast_arrays(
            np.atleast_1d(np.asarray(sequences, float)), np.asarray(tokens, float), np.asarray(context, float)
        )
        zero = np.zeros_like(n)
        return cls(zero, zero, n, n * q, n * (q * c + q * (q + 1) / 2), n * (c + q), n)

    @classmethod
    def stack(cls, batches: Sequence[Batch]) -> Batch:
        """Many batches as one, a step after the other. None of them has documents."""
        names = [name for name in cls.__dataclass_fields__ if name != "documents"]
        return cls(*(np.concatenate([getattr(batch, name) for batch in batches]) for name in names))

    @classmethod
    def step(cls, decode_contexts: Sequence[int], chunks: Sequence[tuple[int, int]]) -> Batch:
        """One step of decodes (their cached tokens) and prompt chunks (new tokens, cached tokens)."""
        pairs = sum(q * c + q * (q + 1) / 2 for q, c in chunks)
        figures = (
            len(decode_contexts),
            sum(decode_contexts) + len(decode_contexts),
            len(chunks),
            sum(q for q, _ in chunks),
            pairs,
            sum(q + c for q, c in chunks),
            len(decode_contexts) + len(chunks),
        )
        return cls(*(np.array([float(x)]) for x in figures))


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """What token sequences of requests have in common, as a tree: a node is a beginning that several of them share.

    Two requests have the same tokens up to the end of the deepest node that both are below, and no further.
    """

    node: Ints
    """Of each request: the deepest node of its tokens, prompt and output; -1 where it shares nothing."""
    parent: Ints
    """Of each node: the node it continues, which stands before it; -1 where it begins a sequence."""
    end: Ints
    """Of each node: its tokens, with those of all nodes above it."""

    @property
    def columns(self) -> tuple[Ints, Ints, Ints]:
        return self.node, self.parent, self.end

    def take(self, at: Ints) -> Prefixes:
        """Of the requests at these places; the tree stays."""
        return Prefixes(self.node[at], self.parent, self.end)


def by_adapter(prefixes: Prefixes, adapter: Ints) -> Prefixes:
    """The same where requests of different adapters share nothing: a tree for each adapter. Nodes are numbered as
    requests first reach them, so that more requests change none."""
    found: dict[tuple[int, int], int] = {}
    parent: list[int] = []
    end: list[int] = []
    above, ends = prefixes.parent.tolist(), prefixes.end.tolist()

    def place(of: int, node: int) -> int:
        path = []
        while node >= 0 and (of, node) not in found:
            path.append(node)
            node = above[node]
        at = found[of, node] if node >= 0 else -1
        for one in reversed(path):
            parent.append(at)
            end.append(ends[one])
            at = found[of, one] = len(parent) - 1
        return at

    node = [place(of, one) for of, one in zip(adapter.tolist(), prefixes.node.tolist(), strict=True)]
    return Prefixes(np.array(node, np.int64), np.array(parent, np.int64), np.array(end, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """A stream of requests in order of arrival. Times in seconds from the start, lengths in tokens."""

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    name: str = "requests"
    prefixes: Prefixes | None = None
    """What prompts have in common, where they do."""
    adapter: Ints | None = None
    """The LoRA adapter of each request; -1 for none."""
    priority: Ints | None = None
    """Lower ones first."""
    follows: Ints | None = None
    """The request before it in its session, which it waits for; -1 where there is none. Such a request arrives
    `think_s` after its client has the whole answer to that one, and its own arrival time is ignored."""
    think_s: Floats | None = None
    images: Ints | None = None
    """How many images each prompt begins with, where they differ."""

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    @property
    def adapters(self) -> int:
        """Different LoRA adapters."""
        return 0 if self.adapter is None else int(np.unique(self.adapter[self.adapter >= 0]).size)

    def take(self, at: Ints) -> Requests:
        """The requests at these places, in that order. Sessions must be taken in full, or not at all."""
        follows = self.follows
        if follows is not None:
            place = np.full(len(self) + 1, -1, np.int64)
            place[at] = np.arange(at.size)
            follows = place[follows[at]]
        return Requests(
            arrival_s=self.arrival_s[at],
            input_tokens=self.input_tokens[at],
            output_tokens=self.output_tokens[at],
            name=self.name,
            prefixes=None if self.prefixes is None else self.prefixes.take(at),
            adapter=None if self.adapter is None else self.adapter[at],
            priority=None if self.priority is None else self.priority[at],
            follows=follows,
            think_s=None if self.think_s is None else self.think_s[at],
            images=None if self.images is None else self.images[at],
        )

    def same(self, other: Requests) -> bool:
        """Whether the other ones have the same columns; their trees of prefixes are taken to be the same."""

        def columns(one: Requests) -> list[Floats | Ints | None]:
            nodes = None if one.prefixes is None else one.prefixes.node
            lists: list[Floats | Ints | None] = [one.arrival_s, one.input_tokens, one.output_tokens, nodes]
            return [*lists, one.adapter, one.priority, one.follows, one.think_s, one.images]

        pairs = zip(columns(self), columns(other), strict=True)
        return all(mine is theirs or np.array_equal(mine, theirs) for mine, theirs in pairs)  # type: ignore[arg-type]

    def first(self, count: int) -> Requests:
        """The first of them."""
        return self.take(np.arange(min(count, len(self))))

    def first_sessions(self, count: int) -> Requests:
        """The first of them, with the turns of no session cut off: as many sessions as have so many requests."""
        if self.follows is None:
            return self.first(count)
        root = self.sessions
        assert root is not None
        begins = np.flatnonzero(self.follows < 0)
        turns = np.bincount(root, minlength=len(self))[begins]
        last = begins[min(int(np.searchsorted(np.cumsum(turns), count)), begins.size - 1)]
        return self.take(np.flatnonzero(root <= last))

    @property
    def sessions(self) -> Ints | None:
        """Of each request: the first one of its session, where there are sessions."""
        return None if self.follows is None else _roots(self.follows, np.arange(len(self)))

    @property
    def prefix_groups(self) -> Ints | None:
        """Of each request: the beginning that it shares with others, by its node of the tree; -1 where it has none."""
        if self.prefixes is None:
            return None
        return np.where(self.prefixes.node < 0, -1, _roots(self.prefixes.parent, np.maximum(self.prefixes.node, 0)))

    @property
    def unshared_tokens(self) -> Ints:
        """Of each prompt, the tokens that no cache can have: at least the last one."""
        if self.prefixes is None:
            return self.input_tokens
        shared = np.append(self.prefixes.end, 0)[self.prefixes.node]
        own: Ints = np.maximum(self.input_tokens - shared, 1)
        return own

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return int((self.input_tokens + self.output_tokens).max())

    @property
    def rate_per_s(self) -> float:
        span = float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) > 1 else 0.0
        return (len(self) - 1) / span if span > 0 else float("inf")


def _roots(above: Ints, at: Ints) -> Ints:
    """Where chains end that lead from some places up; -1 is above the last."""
    found = at.copy()
    while (behind := above[found] >= 0).any():
        found[behind] = above[found[behind]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestTrace:
    """What the file of a trace says: its requests, and whether it has the times at which they arrive."""

    requests: Requests
    """In the order of the file; arrivals are zero where it has none."""
    timed: bool
    file: str
    spot_of: Callable[[int], str]
    """Where the request at a place stands: `line 3`."""
    not_modelled: tuple[NotModelled, ...] = ()
    """What is in the file and acts on no request."""
    image_tokens: int = 0
    """Of one image in a prompt, where the file says so."""

    @property
    def most_images(self) -> int:
        """Of one request."""
        return 0 if self.requests.images is None else int(self.requests.images.max(initial=0))

    @property
    def pictured(self) -> bool:
        """Whether some request has an image."""
        return self.most_images > 0

    def __len__(self) -> int:
        return len(self.requests)

    def first(self, count: int) -> RequestTrace:
        """The first of them."""
        return self if count >= len(self) else replace(self, requests=self.requests.first(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLoad:
    """How a stream of requests is made: from a trace, or drawn at a rate. Small, readable, repeatable."""

    trace: str = ""
    rate_per_s: float | None = None
    """Requests a second, turns of sessions included."""
    input_tokens: int | Lengths | None = None
    """Of a session's turn: what it adds to those before it."""
    output_tokens: int | Lengths | None = None
    requests: int = 1000
    seed: int = 0
    arrivals: ArrivalProcess | None = None
    """Poisson, or those of the trace, where there is none."""
    prefix: SharedPrefix | None = None
    turns: int = 1
    """Of a session; each waits for the answer to the one before it."""
    think_s: float = 0.0
    """From an answer to the next turn."""
    adapters: Adapters | None = None
    priorities: Priorities = ()
    images: RequestImages | None = None
    """Of every request, before its `input_tokens` of text."""

    @property
    def alike(self) -> bool:
        """Whether requests are drawn that differ only in their arrivals, which are those of a Poisson process."""
        from gnomon.spec.loads.arrivals.poisson import Poisson

        drawn = isinstance(self.input_tokens, int) and isinstance(self.output_tokens, int) and self.turns == 1
        plain = self.arrivals is None or isinstance(self.arrivals, Poisson)
        return not self.trace and drawn and plain and not (self.prefix or self.adapters or self.priorities)


MAX_TOKENS = 100_000_000
MAX_ARRIVAL_S = 1e9
"""Of a request: more tokens, or a later arrival, is taken as a typing error."""
METRICS = ("ttft", "tpot", "e2e")
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
STATISTICS = ("mean", *QUANTILES)


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit on one statistic of one metric, in seconds: `ttft_p90=1s`."""

    metric: str
    statistic: str
    limit_s: float

    @property
    def name(self) -> str:
        return f"{self.metric}_{self.statistic}"
