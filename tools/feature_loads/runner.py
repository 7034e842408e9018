"""A running vLLM that is sent the loads of tools/feature_loads, and its LoRA adapters."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.feature_loads.works import Work

from gnomon.engines.vllm.runner import VllmRunner

RANK = 16


@dataclass(slots=True)
class Seen:
    """What came back of a request."""

    name: str = ""
    queued: float = float("nan")
    scheduled: float = float("nan")
    made: float = float("nan")
    first: float = float("nan")
    last: float = float("nan")
    tokens: int = 0
    pieces: int = 0
    cached: int = -1
    error: str = ""


class FeatureRunner(VllmRunner):
    """An engine whose requests may have adapters and given prompts."""

    adapters: Path | None = None

    def forget(self) -> None:
        """Drop cached prefixes."""
        self._loop.run_until_complete(self._engine.reset_prefix_cache())

    def config(self) -> Any:
        return self._engine.vllm_config

    def send(self, work: Work, limit_s: float) -> tuple[float, list[Seen]]:
        """When the load began on the monotonic clock, and what came back of each request."""
        return self._loop.run_until_complete(self._send(work, limit_s))

    async def _send(self, work: Work, limit_s: float) -> tuple[float, list[Seen]]:
        seen = [Seen() for _ in work.prompts]
        epoch = time.monotonic() + 0.1
        tasks = [asyncio.ensure_future(self._ask(work, i, epoch, one)) for i, one in enumerate(seen)]
        _, late = await asyncio.wait(tasks, timeout=limit_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return epoch, seen

    async def _ask(self, work: Work, index: int, epoch: float, seen: Seen) -> None:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind

        await asyncio.sleep(max(0.0, epoch + float(work.requests.arrival_s[index]) - time.monotonic()))
        greedy = work.greedy is not None and bool(work.greedy[index])
        sampling = SamplingParams(
            max_tokens=int(work.requests.output_tokens[index]),
            ignore_eos=True,
            detokenize=False,
            temperature=0.0 if greedy else 1.0,
            output_kind=RequestOutputKind.DELTA,
        )
        adapter = int(work.adapter[index]) if work.adapter is not None else 0
        lora = LoRARequest(f"a{adapter}", adapter, str(adapter_path(self.adapters, adapter))) if adapter else None
        self._serial += 1
        seen.name = f"g{self._serial}"
        prompt = {"prompt_token_ids": list(work.prompts[index])}
        try:
            async for answer in self._engine.generate(prompt, sampling, seen.name, lora_request=lora):
                now = time.monotonic()
                made = sum(len(part.token_ids) for part in answer.outputs)
                if made and not seen.tokens:
                    seen.first = now
                    names = ("queued_ts", "scheduled_ts", "first_token_ts")
                    times = (getattr(answer.metrics, name, 0.0) or float("nan") for name in names)
                    seen.queued, seen.scheduled, seen.made = times
                if answer.num_cached_tokens is not None:
                    seen.cached = max(seen.cached, int(answer.num_cached_tokens))
                seen.tokens += made
                seen.pieces += bool(made)
                seen.last = now
        except Exception as reason:
            seen.error = f"{type(reason).__name__}: {reason}"[:200]


def adapter_path(folder: Path | None, adapter: int) -> Path:
    if folder is None:
        raise ValueError("this engine has no adapters")
    return folder / f"a{adapter}"


def write_adapters(folder: Path, config: Mapping[str, Any], count: int) -> None:
    """Random adapters of every product of a decoder's layers, in PEFT's format; they share one file of weights."""
    import torch
    from safetensors.torch import save_file

    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    head = int(config.get("head_dim") or hidden // int(config["num_attention_heads"]))
    heads, keys = head * int(config["num_attention_heads"]), head * int(config["num_key_value_heads"])
    shapes = {
        "self_attn.q_proj": (hidden, heads), "self_attn.k_proj": (hidden, keys), "self_attn.v_proj": (hidden, keys),
        "self_attn.o_proj": (heads, hidden), "mlp.gate_proj": (hidden, inner), "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }  # fmt: skip
    weights = {}
    for layer in range(int(config["num_hidden_layers"])):
        for name, (before, after) in shapes.items():
            stem = f"base_model.model.model.layers.{layer}.{name}"
            weights[f"{stem}.lora_A.weight"] = (0.01 * torch.randn(RANK, before)).bfloat16()
            weights[f"{stem}.lora_B.weight"] = (0.01 * torch.randn(after, RANK)).bfloat16()
    about = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "bias": "none",
        "target_modules": [name.split(".")[1] for name in shapes],
    }  # fmt: skip
    for adapter in range(1, count + 1):
        into = adapter_path(folder, adapter)
        into.mkdir(parents=True)
        (into / "adapter_config.json").write_text(json.dumps(about))
        path = into / "adapter_model.safetensors"
        if adapter == 1:
            save_file(weights, path)
        else:
            os.link(adapter_path(folder, 1) / path.name, path)
