"""What a serving engine allows itself: the limits its scheduler works within, and its fixed latencies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Images at the beginning of every prompt, all alike, and what an engine's encoder has room for."""

    count: int
    """Of each request."""
    tokens: int
    """Of one image in the prompt."""
    embeddings: int
    """That the tower makes of one image: its tokens but for marks around them."""
    budget: int
    """Embeddings that one step may make."""
    cache: int
    """Embeddings that are kept at once."""
    whole: bool = False
    """Whether a chunk ends before an image that it does not hold all of, unless it begins with it."""
    unsplit: bool = False
    """And where it begins with it, too: all tokens of an image run in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """Limits of one engine replica, in tokens, sequences, cache blocks and seconds."""

    kv_blocks: int
    """Cache blocks a request may use."""
    block_tokens: int = 16
    max_sequences: int
    max_step_tokens: int
    max_context: int
    lookahead: int = 1
    """Steps scheduled before the outputs of the running one are known: 1 with asynchronous scheduling, else 0."""
    ingress_s: float = 0.0
    """From the client's call until the scheduler can see the request, without the front end's own work on it."""
    egress_s: float = 0.0
    """From the end of a step until the client holds its token."""
    idle_start_s: float = 0.0
    """Added to the first step after the engine was idle: the host's work is exposed."""
    idle_launch: float = 1.0
    """How many times as long launches take before an engine that was idle has its first outputs."""
    request_s: float = 0.0
    """Work of the front end on a request before the scheduler can see it, one after the other."""
    tokenize_s: float = 0.0
    """Work of the tokenizer on a token of a prompt, before the front end's on the request; it runs beside the front
    end, on one prompt after the other."""
    output_s: float = 0.0
    """Work of the front end on an output token."""
    egress_sequence_s: float = 0.0
    """Added to `egress_s` for each sequence whose token leaves in the same step."""
    empty_call_s: float = 1e-3
    """After a call of the scheduler that found nothing to run while requests are open; vLLM's loop sleeps for 1 ms
    (EngineCoreProc._process_engine_step)."""
    by_priority: bool = False
    """Whether requests are served by their priority before their arrival."""
    adapter_slots: int = 0
    """LoRA adapters that one step may have; 0 where adapters of requests do not matter."""
    host_adapters: int = 0
    """Adapters that the host keeps in its memory, at least as many as there are slots."""
    adapter_copy_s: float = 0.0
    """Until an adapter is copied from there into a slot; the step that needs it is launched later by so much."""
    adapter_read_s: float = 0.0
    """Until one that is not in the host's memory is there."""
    adapters_wait: bool = False
    """Whether a step with prompts and adapters is launched only once the step in flight has ended: the host waits for
    the device where it writes down which tokens have which adapter."""
    drafts: int = 0
    """Tokens that are drafted for each decode, and verified in its next step."""
    draft_shares: tuple[tuple[float, tuple[float, ...]], ...] = ()
    """Groups of requests: which share of them are in it, and of its steps with drafts, those in which the first, the
    first two, … are accepted: falling."""
    draft_seed: int = 0
    draft_ragged: bool = False
    """Whether a sequence whose drafts are all rejected had none: a step with such a one costs more."""
    draft_slots: int = 0
    """Tokens that a sequence has room for beyond those that it runs, where a model writes the drafts."""
    host_blocks: int = 0
    """Blocks that the host keeps of those that were computed, where there is a second tier."""
    host_block_s: float = 0.0
    """Until one of them is copied back."""
    host_copy_s: float = 0.0
    """Of each copy of some of them, beside its blocks."""
    images: ImageLimits | None = None
    ranks: int = 1
    """Data-parallel ranks that step together, each with a scheduler and a cache of its own within these limits."""
    stages: int = 1
    """Stages of a pipeline, and so batches that are in flight at most; a request in flight is not scheduled again."""
    balancer: Callable[[int], Any] | None = None
    """What makes the balancer of so many ranks (`gnomon.sim.serving.balancers.Balancer`); round-robin where there is
    none."""
    policy: Callable[..., Any] | None = None
    """What makes the scheduler (`gnomon.sim.serving.base.Policy`); chunked mixed batches where there is none."""
    cache: Callable[..., Any] | None = None
    """What makes the KV cache (`gnomon.sim.serving.caches.base.CacheModel`); blocks that are only counted where there
    is none."""
