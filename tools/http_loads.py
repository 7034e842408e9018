"""`vllm serve` under short requests over HTTP: `python -m tools.http_loads MODEL OUT.json`.

Needs a GPU, vLLM and aiohttp. Starts vLLM's own server with dummy weights and a made-up tokenizer of one word a token,
and sends the loads `bursts` and `rates` of tools/server_loads.py to /v1/completions as streams from this process, so
that the client takes no time from the front end. Beside the same loads of server_loads.py, which calls the front end
itself, this shows what HTTP, JSON and detokenizing add. Times are whole microseconds: `first_us` from the arrival that
was planned, `finish_us` from the first token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tools.server_loads import MAX_MODEL_LEN, SHARED, wait_at

from gnomon.calibrate.server_loads import Load, bursts, rates
from gnomon.engines.vllm.runner import ENVIRONMENT, versions
from gnomon.load import config_of

PORT = 8011
START_S = 400.0


def write_model(folder: Path, config: Mapping[str, Any]) -> None:
    """A folder that vLLM takes for a checkpoint: shapes, and a tokenizer of as many words as the model has tokens."""
    words = {f"w{i}": i for i in range(int(config["vocab_size"]))}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
    tokenizer: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0"}
    for name, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", kind)):
        (folder / f"{name}.json").write_text(json.dumps(content))


def server_command(folder: Path, kv_gib: float) -> list[str]:
    flags = {
        "--model": folder, "--served-model-name": "m", "--load-format": "dummy", "--max-model-len": MAX_MODEL_LEN,
        "--dtype": "bfloat16", "--port": PORT, "--kv-cache-memory-bytes": int(kv_gib * 2**30),
        "--gpu-memory-utilization": SHARED,
    }  # fmt: skip
    given = chain.from_iterable((name, str(value)) for name, value in flags.items())
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *given, "--no-enable-prefix-caching"]


class Client:
    """Sends loads and notes when the first and the last piece of every stream came."""

    def __init__(self, session: Any, vocab: int, base: str = f"http://127.0.0.1:{PORT}") -> None:
        self._session, self._vocab, self._base = session, vocab, base

    async def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Return once the server answers."""
        begun = time.monotonic()
        while time.monotonic() - begun < START_S:
            if process.poll() is not None:
                raise SystemExit("the server ended; its log says why")
            try:
                async with self._session.get(f"{self._base}/health") as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            await asyncio.sleep(0.5)
        raise SystemExit("the server did not start in time")

    async def run(self, load: Load) -> dict[str, Any]:
        draw = np.random.default_rng(len(load.requests))
        asked = load.requests
        bodies = [
            self._body(draw.integers(10, self._vocab - 10, int(tokens)).tolist(), int(output))
            for tokens, output in zip(asked.input_tokens, asked.output_tokens, strict=True)
        ]
        begun = time.monotonic() + 0.1
        times = np.array(
            await asyncio.gather(
                *(self._one(body, begun + float(at)) for body, at in zip(bodies, asked.arrival_s, strict=True))
            )
        )
        micro = np.round((times - begun) * 1e6).astype(int)
        arrival = np.round(np.asarray(asked.arrival_s) * 1e6).astype(int)
        each = {
            "arrival_us": arrival.tolist(), "first_us": (micro[:, 0] - arrival).tolist(),
            "finish_us": (micro[:, 1] - micro[:, 0]).tolist(), "input_tokens": int(asked.input_tokens[0]),
            "output_tokens": int(asked.output_tokens[0]),
        }  # fmt: skip
        wall = float(times[:, 1].max() - begun)
        return {"name": load.name, **load.about, "requests": len(asked), "wall_s": round(wall, 4), "each": each}

    def _body(self, prompt: Sequence[int], output: int) -> bytes:
        asked = {"model": "m", "prompt": list(prompt), "max_tokens": output, "ignore_eos": True, "stream": True}
        return json.dumps(asked).encode()

    async def _one(self, body: bytes, at: float) -> tuple[float, float]:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        first = last = float("nan")
        kind = {"Content-Type": "application/json"}
        async with self._session.post(f"{self._base}/v1/completions", data=body, headers=kind) as answer:
            if answer.status != 200:
                raise SystemExit(f"status {answer.status}: {(await answer.text())[:300]}")
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    last = time.monotonic()
                    first = last if np.isnan(first) else first
        return first, last


async def measure(asked: argparse.Namespace, process: subprocess.Popen[bytes], vocab: int) -> None:
    import aiohttp

    connector, patience = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=patience) as session:
        client = Client(session, vocab)
        await client.wait(process)
        facts = {
            "schema": "gnomon.http-loads/1", "engine": "vllm", "date": time.strftime("%Y-%m-%d"),
            "versions": versions(), "host": f"{os.cpu_count()} cores, Python {platform.python_version()}",
            "model": asked.model, "loads": [],
        }  # fmt: skip
        print(f"{asked.model} serves", file=sys.stderr, flush=True)
        if asked.hold:
            wait_at(asked.hold)
        given = [float(rate) for rate in asked.rates.split(",")]
        for warm_up in list(bursts())[-3:]:
            await client.run(warm_up)
        for load in chain(bursts(), rates(given)):
            row = await client.run(load)
            facts["loads"].append(row)
            asked.out.write_text(json.dumps(facts, separators=(",", ":")) + "\n")
            first = np.quantile(row["each"]["first_us"], (0.5, 0.9)) / 1e3
            print(f"{row['name']} {dict(load.about)}: {row['wall_s']:.2f} s, TTFT {first.round(1)} ms", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model of the catalog, or a folder with its config.json")
    parser.add_argument("out", type=Path, help="file of the measurement; the server's log goes beside it as .log")
    parser.add_argument("--rates", default="25,50,100,200,300,400,600", help="requests per second of the part rates")
    parser.add_argument("--kv-gib", type=float, default=8.0, help="size of the KV cache")
    parser.add_argument("--hold", type=Path, help="touch HOLD.ready once started, go on when HOLD.go exists")
    asked = parser.parse_args()
    config = config_of(asked.model)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    with tempfile.TemporaryDirectory() as folder, asked.out.with_suffix(".log").open("wb") as log:
        write_model(Path(folder), config)
        command = server_command(Path(folder), asked.kv_gib)
        environment = ENVIRONMENT | dict(os.environ)
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            asyncio.run(measure(asked, process, int(config["vocab_size"])))
        finally:
            os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
