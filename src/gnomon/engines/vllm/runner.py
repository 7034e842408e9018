"""Real vLLM with dummy weights, under a replayed load.

Runs vLLM's own asynchronous engine in this process (its core in a second one, as `vllm serve` does) and
notes when each token arrives. Needs a GPU and vLLM; nothing here predicts.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.engines.replay import MeasuredRun
from gnomon.errors import GnomonError, MissingExtraError
from gnomon.spec import Requests

ENVIRONMENT = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
"""A forked engine cannot use CUDA once this process has looked at the GPU."""


@dataclass(slots=True)
class _Clock:
    first: float = float("nan")
    last: float = float("nan")
    scheduled: float = float("nan")
    queued: float = float("nan")
    made: float = float("nan")
    tokens: list[float] = field(default_factory=list)


class VllmRunner:
    """One engine, started once; loads are replayed on it one after another."""

    def __init__(self, config: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise MissingExtraError("vllm", "vllm", "running a plan for real")
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._folder = tempfile.TemporaryDirectory(prefix="gnomon-model-")
        Path(self._folder.name, "config.json").write_text(json.dumps(dict(config)))
        self._arguments = dict(arguments)
        self._loop = asyncio.new_event_loop()
        self._serial = 0
        self._vocab = int(config["vocab_size"])
        start = time.monotonic()
        try:
            self._engine = self._loop.run_until_complete(self._start())
        except (RuntimeError, ValueError) as reason:
            hint = "See vLLM's output above."
            raise GnomonError(f"vLLM did not start: {str(reason).splitlines()[0][:200]}", hint=hint) from None
        self.startup_s = time.monotonic() - start

    async def _start(self) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        given = {"enable_prefix_caching": False, **self._arguments}
        arguments = AsyncEngineArgs(model=self._folder.name, load_format="dummy", skip_tokenizer_init=True, **given)
        return AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.OPENAI_API_SERVER)

    @property
    def core(self) -> Any:
        """The front end's side of the engine's core."""
        return self._engine.engine_core

    @property
    def kv_blocks(self) -> int:
        return int(self._engine.vllm_config.cache_config.num_gpu_blocks)

    def settings(self) -> dict[str, Any]:
        """What the engine chose for itself."""
        config = self._engine.vllm_config
        return {
            "kv_blocks": self.kv_blocks,
            "block_tokens": config.cache_config.block_size,
            "gpu_memory_utilization": config.cache_config.gpu_memory_utilization,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "max_model_len": config.model_config.max_model_len,
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "model_runner": "v2" if config.use_v2_model_runner else "v1",
            "capture_sizes": list(config.compilation_config.cudagraph_capture_sizes or []),
            "cudagraph_mode": str(config.compilation_config.cudagraph_mode),
            "startup_s": round(self.startup_s, 1),
        }

    def replay(self, requests: Requests, *, keep_tokens: bool = False, seed: int = 0) -> MeasuredRun:
        """Send every request at its time and wait for the last token of the last one."""
        return self._loop.run_until_complete(self._replay(requests, keep_tokens, seed))

    async def _replay(self, requests: Requests, keep_tokens: bool, seed: int) -> MeasuredRun:
        draw = np.random.default_rng(seed)
        prompts = [draw.integers(10, self._vocab - 10, int(n)).tolist() for n in requests.input_tokens]
        clocks = [_Clock() for _ in prompts]
        epoch = time.monotonic() + 0.05
        await asyncio.gather(
            *(
                self._one(prompts[i], int(requests.output_tokens[i]), epoch + float(at), clocks[i])
                for i, at in enumerate(requests.arrival_s)
            )
        )
        return MeasuredRun(
            requests=requests,
            first_token_s=np.array([c.first for c in clocks]) - epoch,
            finish_s=np.array([c.last for c in clocks]) - epoch,
            scheduled_s=np.array([c.scheduled for c in clocks]) - epoch,
            queued_s=np.array([c.queued for c in clocks]) - epoch,
            made_s=np.array([c.made for c in clocks]) - epoch,
            tokens_s=tuple(tuple(t - epoch for t in c.tokens) for c in clocks) if keep_tokens else (),
        )

    async def _one(self, prompt: Sequence[int], output: int, at: float, clock: _Clock) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        await asyncio.sleep(max(0.0, at - time.monotonic()))
        self._serial += 1
        sampling = SamplingParams(
            max_tokens=output,
            ignore_eos=True,
            detokenize=False,
            temperature=1.0,
            output_kind=RequestOutputKind.DELTA,
        )
        stream = self._engine.generate({"prompt_token_ids": list(prompt)}, sampling, f"g{self._serial}")
        seen = 0
        async for answer in stream:
            now = time.monotonic()
            made = sum(len(part.token_ids) for part in answer.outputs)
            if made and not seen:
                clock.first = now
                clock.queued, clock.scheduled, clock.made = _engine_times(answer.metrics)
            clock.tokens.extend([now] * made)
            seen += made
            clock.last = now
        if seen != output:
            raise GnomonError(f"vLLM made {seen} tokens where {output} were requested")

    def close(self) -> None:
        self._engine.shutdown()
        self._loop.run_until_complete(_cancel_all())
        self._folder.cleanup()
        self._loop.close()

    def __enter__(self) -> VllmRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _cancel_all() -> None:
    """End what vLLM left running on this loop, so that closing it is quiet."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _engine_times(metrics: Any) -> tuple[float, ...]:
    """Queued, scheduled and first token on the engine's own clock, which is the client's; NaN where unknown."""
    names = ("queued_ts", "scheduled_ts", "first_token_ts")
    return tuple(getattr(metrics, name, 0.0) or float("nan") for name in names)


def versions() -> dict[str, str]:
    """Software and hardware a measurement was made with."""
    import torch

    found = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(0)}
    for name in ("vllm", "triton", "transformers"):
        if importlib.util.find_spec(name) is not None:
            found[name] = str(getattr(__import__(name), "__version__", "unknown"))
    return found
