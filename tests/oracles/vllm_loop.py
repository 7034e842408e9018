"""vLLM's own engine loop and scheduler on a CPU, against a clock that is not real.

What is decided and when is vLLM's code. Made up are the device (its seconds come from a StepCost, its
tokens from nowhere), the queue of requests, and the sleeps, which move the clock.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from tests.oracles import vllm_release  # noqa: F401  which vLLM
from tests.sim.plain import interpolate
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    LoRAConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import scheduler as offloading
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequestType
from vllm.v1.engine import core as engine_core
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
)
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from gnomon.cost.step import StepCost, variant_of
from gnomon.sim.serving import StepRecord
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.policies.drafts import accepted
from gnomon.spec.serving import ImageLimits, ServingLimits
from gnomon.spec.workload import Requests

TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 65536,
    "torch_dtype": "bfloat16",
}


BLOCK_BYTES = 1024
"""Of the KV cache; any number will do."""


def write_model(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(TINY_LLAMA))
    return folder


def make_scheduler(model: Path, limits: ServingLimits) -> Scheduler:
    lookahead = bool(limits.lookahead)
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(model),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            seed=0,
            max_model_len=limits.max_context,
        ),
        cache_config=CacheConfig(
            block_size=limits.block_tokens, enable_prefix_caching=limits.cache not in (None, CountedBlocks)
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=limits.max_sequences,
            max_num_batched_tokens=limits.max_step_tokens,
            max_model_len=limits.max_context,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            async_scheduling=lookahead,
            policy="priority" if limits.by_priority else "fcfs",
        ),
        lora_config=LoRAConfig(max_loras=limits.adapter_slots) if limits.adapter_slots else None,
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
        speculative_config=_drafts(limits),
        kv_transfer_config=_offloading(limits),
    )
    # One block of the pool is vLLM's null block. The CPU platform may have changed the block and the budget.
    config.cache_config.num_gpu_blocks = limits.kv_blocks + 1
    assert config.cache_config.block_size == limits.block_tokens
    assert config.scheduler_config.max_num_batched_tokens == limits.max_step_tokens
    assert config.scheduler_config.scheduler_reserve_full_isl
    spec = FullAttentionSpec(block_size=limits.block_tokens, num_kv_heads=2, head_size=16, dtype=torch.bfloat16)
    scheduler = (AsyncScheduler if lookahead else Scheduler)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=limits.kv_blocks + 1,
            kv_cache_tensors=_tensors(limits),
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=limits.block_tokens,
        log_stats=False,
    )
    if limits.images is not None:  # the tiny model takes none: the rest is what a model that does has
        scheduler.max_num_encoder_input_tokens = limits.images.budget
        scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=limits.images.cache)
        config.scheduler_config.disable_chunked_mm_input = limits.images.whole
    return scheduler


def _tensors(limits: ServingLimits) -> list[KVCacheTensor]:
    """What the connector copies from."""
    size = BLOCK_BYTES * (limits.kv_blocks + 1)
    return [KVCacheTensor(size=size, shared_by=["layer"])] if limits.host_blocks else []


def _offloading(limits: ServingLimits) -> KVTransferConfig | None:
    """vLLM's native connector, with as many blocks in the host."""
    if not limits.host_blocks:
        return None
    size = {"cpu_bytes_to_use": limits.host_blocks * BLOCK_BYTES}
    return KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=size)


def _drafts(limits: ServingLimits) -> SpeculativeConfig | None:
    if not limits.drafts:
        return None
    method = "ngram_gpu" if limits.lookahead else "ngram"
    more = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
    return SpeculativeConfig(method=method, num_speculative_tokens=limits.drafts, **more)


def images_of(index: int, images: ImageLimits | None) -> list[MultiModalFeatureSpec] | None:
    """Images of a request, one after the other at the beginning of its prompt, no two alike."""
    if images is None:
        return None
    return [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=f"{index}-{which}",
            mm_position=PlaceholderRange(offset=which * images.tokens, length=images.tokens),
        )
        for which in range(images.count)
    ]


def make_request(
    index: int, prompt: list[int], output: int, limits: ServingLimits, adapter: int, priority: int
) -> Request:
    sampling = SamplingParams(max_tokens=output, min_tokens=output, ignore_eos=True, temperature=0.0)
    return Request(
        request_id=str(index),
        prompt_token_ids=prompt,
        sampling_params=sampling,
        pooling_params=None,
        arrival_time=float(index),
        lora_request=LoRARequest(f"a{adapter}", adapter + 1, "nowhere") if adapter >= 0 else None,
        priority=priority,
        block_hasher=get_request_block_hasher(limits.block_tokens, sha256),
        mm_features=images_of(index, limits.images),
    )


def tokens_of(requests: Requests, index: int) -> list[int]:
    """The tokens of a request, prompt and output: those of a node are its own, and so are a request's beyond them."""
    total = int(requests.input_tokens[index] + requests.output_tokens[index])
    parts: list[list[int]] = []
    if requests.prefixes is not None:
        node = int(requests.prefixes.node[index])
        while node >= 0:
            above = int(requests.prefixes.parent[node])
            start = int(requests.prefixes.end[above]) if above >= 0 else 0
            parts.insert(0, [1000 + node] * (int(requests.prefixes.end[node]) - start))
            node = above
    shared = [token for part in parts for token in part][:total]
    return shared + [100_000 + index] * (total - len(shared))


class Clock:
    """Simulated seconds. Stands in for the `time` module of the engine loop."""

    def __init__(self, most_s: float) -> None:
        self.now, self.most_s = 0.0, most_s

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.most_s:
            raise TimeoutError("the loop goes round and nothing runs")

    def monotonic(self) -> float:
        return self.now

    time = monotonic


class Reversed(set):
    """A set that is walked from its last key to its first. vLLM's connector keeps the blocks of a copy in a set, so
    their order among those that may be evicted is any: here it is the one in which it touches blocks."""

    def __init__(self, keys: Any = ()) -> None:
        super().__init__(keys)
        self.keys = keys.keys if isinstance(keys, Reversed) else list(keys)

    def __iter__(self) -> Any:
        return reversed(self.keys)


class Link:
    """Stands in for the connector's worker: blocks are copied to the GPU one request after the other, and are in the
    host once the step that computes them has ended."""

    def __init__(self, limits: ServingLimits) -> None:
        self.limits, self.free_s = limits, 0.0
        self.loads: dict[int, tuple[float, str]] = {}

    def launch(self, metadata: Any, now: float) -> KVConnectorOutput:
        """What a step that is launched now reports with its outputs."""
        ended = {job: name for job, (ready_s, name) in self.loads.items() if ready_s <= now}
        for job, transfer in metadata.load_jobs.items():
            _, target = transfer.transfer_spec
            seconds = self.limits.host_copy_s + len(target.block_ids) * self.limits.host_block_s
            self.free_s = max(now, self.free_s) + seconds
            self.loads[job] = (self.free_s, transfer.req_id)
        for job in ended:
            del self.loads[job]
        done = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys([*ended, *metadata.store_jobs], 1))
        return KVConnectorOutput(finished_recving=set(ended.values()), kv_connector_worker_meta=done)


class Batch:
    """What one call of the scheduler decided; also the future of its outputs."""

    def __init__(self, output: Any, scheduler: Scheduler, goals: dict[str, int], clock: Clock, tokens: Any) -> None:
        self.output, self.clock, self.sequences = output, clock, tokens
        self.requests = scheduler.requests
        resumed = set(output.scheduled_cached_reqs.resumed_req_ids)
        running = set(output.scheduled_cached_reqs.req_ids) - resumed
        self.tokens: dict[str, int] = dict(output.num_scheduled_tokens)
        self.makes: set[str] = set()
        self.chunks: list[tuple[int, int]] = []
        self.contexts: list[int] = []
        self.scheduled_s = self.start_s = self.end_s = clock.now
        self.images = sum(map(len, output.scheduled_encoder_inputs.values()))
        self.drafts = {name: len(ids) for name, ids in output.scheduled_spec_decode_tokens.items()}
        self.kept: dict[str, int] = {}
        self.copies: KVConnectorOutput | None = None
        for name, tokens in self.tokens.items():
            request = scheduler.requests[name]
            cached = request.num_computed_tokens - tokens
            if name not in running:
                goals[name] = request.num_tokens
            if request.num_computed_tokens >= goals[name]:
                self.makes.add(name)
            if cached < goals[name]:
                self.chunks.append((tokens, cached))
            else:
                self.contexts.append(cached)

    def seconds(self, cost: StepCost) -> float:
        if self.images:
            variant = variant_of(0, 0, self.images)
            return cost.varied_work(len(self.contexts), sum(self.contexts), self.chunks, variant)[0]
        if self.chunks:
            return cost.mixed(len(self.contexts), sum(self.contexts), self.chunks)
        curve = cost.decode_curve(len(self.contexts))
        return interpolate(curve.context, curve.seconds, sum(self.contexts) / len(self.contexts))

    def launch(self, cost: StepCost) -> float:
        return cost.launch(sum(self.tokens.values()), len(self.tokens), len(self.chunks)) if self.chunks else 0.0

    def result(self) -> ModelRunnerOutput:
        self.clock.now = max(self.clock.now, self.end_s)
        names = list(self.tokens)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[self.next_tokens(name) if name in self.makes else [] for name in names],
            kv_connector_output=self.copies,
        )

    def next_tokens(self, name: str) -> list[int]:
        """The tokens that a sequence has next; one that has gone since does not matter, nor what is beyond its end."""
        known = self.requests[name].num_tokens if name in self.requests else 0
        tokens = self.sequences[int(name)]
        found = tokens[known : known + 1 + self.kept.get(name, 0)]
        return found + tokens[:1] * (1 + self.kept.get(name, 0) - len(found))

    def record(self) -> StepRecord:
        return StepRecord(
            scheduled_s=self.scheduled_s,
            start_s=self.start_s,
            end_s=self.end_s,
            decodes=len(self.contexts),
            decode_context=sum(self.contexts),
            chunks=tuple(self.chunks),
            tokens=tuple((int(name), tokens) for name, tokens in self.tokens.items()),
            preempted=tuple(sorted(int(name) for name in self.output.preempted_req_ids or ())),
        )


class Device:
    """Stands in for the executor: runs batches one after the other."""

    def __init__(self, scheduler: Scheduler, cost: StepCost, limits: ServingLimits, clock: Clock) -> None:
        self.scheduler, self.cost, self.limits, self.clock = scheduler, cost, limits, clock
        self.verified: dict[str, int] = {}
        self.end_s = -np.inf
        self.goals: dict[str, int] = {}
        self.sequences: list[list[int]] = []
        self.steps: list[StepRecord] = []
        self.link = Link(limits)

    def execute_model(self, output: Any, non_block: bool) -> Batch:
        batch = self.last = Batch(output, self.scheduler, self.goals, self.clock, self.sequences)
        for name, drafts in batch.drafts.items():
            self.verified[name] = self.verified.get(name, 0) + 1
            kept = accepted(self.limits.draft_shares, self.limits.draft_seed, int(name), self.verified[name])
            batch.kept[name] = min(kept, drafts)
        if output.kv_connector_metadata is not None:
            batch.copies = self.link.launch(output.kv_connector_metadata, self.clock.now)
        if batch.tokens:
            batch.start_s = max(self.clock.now, self.end_s)
            idle = self.limits.idle_start_s if self.clock.now > self.end_s else 0.0
            launched = self.clock.now + batch.launch(self.cost)
            batch.end_s = self.end_s = max(batch.start_s + idle + batch.seconds(self.cost), launched)
            self.clock.now = launched
        if batch.tokens or output.preempted_req_ids:
            self.steps.append(batch.record())
        return batch

    def sample_tokens(self, grammar: Any, non_block: bool) -> Batch:
        return self.last

    def take_draft_token_ids(self) -> DraftTokenIds:
        names = list(self.last.tokens)
        return DraftTokenIds(names, [[7] * self.limits.drafts for _ in names])


class Arrivals:
    """Stands in for the input queue: waiting on it moves the clock to the next arrival."""

    def __init__(self, requests: Requests, limits: ServingLimits, clock: Clock) -> None:
        self.clock = clock
        visible = (requests.arrival_s + limits.ingress_s).tolist()
        none = [-1] * len(requests)
        adapters = none if requests.adapter is None or not limits.adapter_slots else requests.adapter.tolist()
        priorities = none if requests.priority is None else requests.priority.tolist()
        self.tokens = [tokens_of(requests, index) for index in range(len(requests))]
        lengths = zip(self.tokens, requests.input_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
        made = (
            make_request(i, all_[:inputs], outputs, limits, adapters[i], priorities[i])
            for i, (all_, inputs, outputs) in enumerate(lengths)
        )
        self.coming = deque(zip(visible, made, strict=True))

    def empty(self) -> bool:
        return not self.coming or self.coming[0][0] > self.clock.now

    def get_nowait(self) -> tuple[EngineCoreRequestType, Request]:
        return EngineCoreRequestType.ADD, self.coming.popleft()[1]

    def get(self, block: bool) -> tuple[EngineCoreRequestType, Request]:
        self.clock.now = max(self.clock.now, self.coming[0][0])
        return self.get_nowait()


class Client:
    """Stands in for the output queue: notes when tokens come out."""

    def __init__(self, count: int, egress_s: float, clock: Clock) -> None:
        self.clock, self.egress_s = clock, egress_s
        self.first_s, self.finish_s = np.full(count, np.nan), np.full(count, np.nan)
        self.tokens, self.cached = np.zeros(count, int), np.zeros(count, int)

    def put_nowait(self, item: tuple[int, EngineCoreOutputs]) -> None:
        for output in item[1].outputs:
            index = int(output.request_id)
            self.tokens[index] += len(output.new_token_ids)
            if output.prefill_stats is not None:
                stats = output.prefill_stats
                found = stats.num_local_cached_tokens + stats.num_external_cached_tokens
                self.cached[index] = min(found, stats.num_prompt_tokens - 1)  # the last is computed again
            if np.isnan(self.first_s[index]):
                self.first_s[index] = self.clock.now + self.egress_s
            if output.finished:
                self.finish_s[index] = self.clock.now + self.egress_s


class Engine(engine_core.EngineCoreProc):
    """vLLM's engine core with nothing but what its busy loop needs."""

    def __init__(self, model: Path, requests: Requests, cost: StepCost, limits: ServingLimits, most_s: float) -> None:
        self.clock = Clock(most_s)
        self.scheduler = make_scheduler(model, limits)
        self.vllm_config = self.scheduler.vllm_config
        self.model_executor = self.device = Device(self.scheduler, cost, limits, self.clock)
        self.input_queue = self.arrivals = Arrivals(requests, limits, self.clock)
        self.device.sequences = self.arrivals.tokens
        self.output_queue = self.client = Client(len(requests), limits.egress_s, self.clock)
        self.aborts_queue: Queue[Any] = Queue()
        self.batch_queue_size = 1 + limits.lookahead
        self.batch_queue = deque(maxlen=2) if limits.lookahead else None
        self.step_fn = self.step_with_batch_queue if limits.lookahead else self.step
        self.async_scheduling = bool(limits.lookahead)
        self.is_ec_consumer, self.is_pooling_model, self.check_for_draft_tokens = True, False, limits.drafts > 0
        self.engines_running, self.process_input_queue_block = False, True
        # Of releases after 0.24.
        self.publish_dp_lb_stats = self.enable_fault_tolerance = self.is_mm_encoder_only = self.log_stats = False
        self._weight_version = None
        self._idle_state_callbacks: list[Any] = []

    def _handle_shutdown(self) -> bool:
        return bool(self.has_work() or self.arrivals.coming)

    def is_running(self) -> bool:
        return True

    def _handle_client_request(self, kind: EngineCoreRequestType, request: Request) -> None:
        self.scheduler.add_request(request)


def run(
    model: Path, requests: Requests, cost: StepCost, limits: ServingLimits, most_s: float = np.inf
) -> tuple[list[StepRecord], Client]:
    """Serve the requests with vLLM's loop; its steps, and what the client saw. TimeoutError where it sleeps beyond
    `most_s`."""
    init_none_hash(sha256)
    engine = Engine(model, requests, cost, limits, most_s)
    in_order = patch.object(offloading, "set", Reversed, create=True)
    with patch.object(engine_core, "time", engine.clock), in_order, suppress(SystemExit):
        engine.run_busy_loop()
    return engine.device.steps, engine.client
