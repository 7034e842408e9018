"""Small networks and all plans to train them, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.engines import training_engine
from gnomon.engines.training import Grid, RankMemory, rank_memory
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.training import bind_training
from gnomon.planning.training.search import Search
from gnomon.planning.training.space import NAMES, space
from gnomon.planning.training.step import held_bytes
from gnomon.spec import Model, TrainingLoad
from gnomon.spec.workload import Floats

ENGINES = ("megatron@2.4", "megatron@3.0", "megatron@2026.08", "torch")
OPTIMIZERS = ("adamw", "adamw-bf16")


def config(folder: Path, kind: str = "llama", layers: int = 8, heads: int = 8, head_dim: int = 128, **more: Any) -> str:
    """A config.json of a Llama-like or a GPT-like network; `more` are fields of it."""
    hidden = heads * head_dim
    llama: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "vocab_size": 32000,
        "max_position_embeddings": 8192,
    }
    gpt: dict[str, Any] = {
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": hidden,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 4096,
        "vocab_size": 50257,
        "torch_dtype": "bfloat16",
    }
    path = folder / f"{kind}-{layers}-{heads}-{head_dim}.json"
    path.write_text(json.dumps({"llama": llama, "gpt": gpt}[kind] | more))
    return str(path)


def search(
    model: str | Model,
    cluster: str,
    engine: str = "megatron",
    optimizer: str = "adamw",
    seq: int = 2048,
    batch: int = 16,
) -> Search:
    """Every plan of a network on a cluster, in bf16."""
    network = load_model(model) if isinstance(model, str) else model
    load, pool, chosen = TrainingLoad(seq=seq, global_batch=batch), parse_pool(cluster), training_engine(engine)
    grid = space(network, pool, load, chosen, optimizer, "bf16")
    return Search(bind_training(network, pool, engine), load, optimizer, "bf16", grid)


def some(found: Search, rows: int, seed: int = 0) -> Search:
    """Some of its plans, drawn."""
    draw = np.random.default_rng(seed)
    taken = np.sort(draw.choice(found.grid.size, min(rows, found.grid.size), replace=False))
    return replace(found, grid=found.grid.pick(taken))


def memory(found: Search, rank: int) -> RankMemory:
    """Parts of a pipeline rank of every plan; of a shorter pipeline, those of its last."""
    place = np.minimum(rank, found.grid.pp - 1)
    return rank_memory(found.figures, found.traits, found.optimizer, place, held_bytes(found.figures, place))


def peaks(found: Search) -> Floats:
    """Bytes of the fullest of all pipeline ranks of every plan."""
    totals = [memory(found, rank).total for rank in range(int(found.grid.pp.max()))]
    return np.asarray(np.max(totals, axis=0))


def pairs(grid: Grid, name: str, low: int, high: int, *also: str) -> Iterator[tuple[int, int]]:
    """Rows that differ in one choice, and in others that may follow from it."""
    others = [other for other in NAMES if other != name and other not in also]
    keys = [tuple(int(getattr(grid, other)[row]) for other in others) for row in range(grid.size)]
    column = getattr(grid, name)
    highs = {keys[row]: row for row in range(grid.size) if column[row] == high}
    for row in range(grid.size):
        if column[row] == low and keys[row] in highs:
            yield row, highs[keys[row]]
