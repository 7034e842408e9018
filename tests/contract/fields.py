"""Fields of the files that users write, each with another value: a new one needs a line here.

`LABELS` are fields that only name or document things: they are shown by the command that shows the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gnomon.load.shapes import KINDS
from gnomon.spec import Block, Format, Model, Tower, VisionPreprocessor
from gnomon.spec.mixers import Indexer

Entry = dict[str, Any]
GONE = None
"""The value of a field that is left out."""

CHIP: dict[str, Any] = {
    "schema": "gnomon.plan/1",
    "vendor": "AMD",
    "architecture": "Own",
    "like": "A100-PCIe-40GB",
    "replaces": "A100",
    "rates_tflops": {"bf16": 900, "fp32": 60},
    "memory": "GDDR6",
    "memory_mib": 70_000,
    "memory_gb_s": 3000,
    "l2_mib": 40,
    "processors": 120,
    "boost_mhz": 1900,
    "tdp_w": 600,
    "idle_w": 50,
    "price_usd_h": 2,
    "node": "PCIe5-8",
    "scaleup_gb_s": 200,
    "scaleup_size": 4,
    "bridge": {"link": "NVLink4 bridge", "gb_s": 300},
    "bridge.link": "NVLink2 bridge",
    "bridge.gb_s": 40,
    "bridge.size": 4,
}
CHIP_LABELS: dict[str, Any] = {
    "name": "other",
    "aliases": ["another"],
    "year": 2020,
    "sparse_tflops": {"bf16": 1200},
    "note": "a note",
    "source": "a page",
    "date": "2020-01",
    "confidence": "read",
    "sources": {"tdp_w": "the label"},
}
"""What `gnomon chips show` shows and no step depends on: names, where figures are from, rates of sparse products."""
CHIP_LINES = (
    "predict llama-3.2-1b --on chip.yaml:8 --batch 8 --context 512",
    "simulate train llama-3.2-1b --on chip.yaml:16 --tp 2 --seq 512 --global-batch 16",
    "predict llama-3.2-1b --on bridged.yaml:2 --batch 8 --context 512",
    "predict llama-3.2-1b --on bridged.yaml:4 --batch 8 --context 512",
)

LINK = {"name": "own", "gb_s": 40, "latency_us": 3}
HOST = {
    "name": "own", "cores": 64, "memory_gib": 512, "memory_gb_s": 300, "adam_gparam_s": 4, "nvme_tb": 4,
    "nvme_read_gb_s": 6, "nvme_write_gb_s": 3, "link": "PCIe 4.0 x16", "link_sharing": 2,
}  # fmt: skip
CLUSTER: dict[str, tuple[Entry, Any]] = {
    "schema": ({}, "gnomon.chip/1"),
    "chip": ({}, "H200"),
    "count": ({}, 8),
    "nodes": ({"count": GONE, "nodes": 2}, 1),
    "per_node": ({}, 4),
    "node": ({}, "AWS p5"),
    "scaleup": ({}, "PCIe 5.0 x16"),
    "scaleup.gb_s": ({"scaleup": LINK}, 200),
    "scaleup.latency_us": ({"scaleup": LINK}, 30),
    "scaleup.direct": ({"scaleup": LINK}, False),
    "scaleup.mesh": ({"scaleup": LINK}, True),
    "scaleout": ({}, "Ethernet 100"),
    "scaleout.gb_s": ({"scaleout": LINK}, 4),
    "scaleout.latency_us": ({"scaleout": LINK}, 300),
    "adapters": ({}, 2),
    "oversubscription": ({}, 4),
    "pod_nodes": ({"oversubscription": 4, "count": 32}, 4),
    "bridged": ({"chip": "A100-PCIe"}, True),
    "sockets": ({"chip": "A100-PCIe"}, 8),
    "host": ({}, "Workstation"),
    "host.cores": ({"host": HOST}, 8),
    "host.memory_gib": ({"host": HOST}, 16),
    "host.memory_gb_s": ({"host": HOST}, 20),
    "host.adam_gparam_s": ({"host": HOST}, 1),
    "host.nvme_tb": ({"host": HOST}, 1),
    "host.nvme_read_gb_s": ({"host": HOST}, 1),
    "host.nvme_write_gb_s": ({"host": HOST}, 0.5),
    "host.link": ({"host": HOST}, "PCIe 3.0 x16"),
    "host.link.gb_s": ({"host": HOST | {"link": LINK}}, 10),
    "host.link.latency_us": ({"host": HOST | {"link": LINK}}, 30),
    "host.link_sharing": ({"host": HOST}, 8),
    "price_usd_h": ({}, 2),
    "cloud": ({}, "aws"),
    "region": ({"cloud": "aws"}, "us-east-1"),
    "spot": ({"cloud": "aws"}, True),
    "grid": ({}, "FR"),
    "pools": ({"chip": GONE, "count": GONE, "pools": [{"chip": "H100", "count": 16}]}, [{"chip": "H200", "count": 16}]),
}
"""By field: what the file has beside chip and count, and another value."""
CLUSTER_LABELS = ("name", "scaleup.name", "scaleout.name", "host.name", "host.link.name")
CLUSTER_LINES = (
    "simulate train llama-3.2-1b --on cluster.yaml --tp 2 --seq 512 --global-batch 32",
    "simulate train llama-3.2-1b --on cluster.yaml --seq 512 --global-batch 32 --with offload-optimizer",
    "simulate train llama-3.2-1b --on cluster.yaml --seq 512 --global-batch 8 --with checkpoints:every=2,storage=local",
    "predict llama-3.2-1b --on cluster.yaml:4 --batch 8 --context 512",
)

SERVED = {
    "schema": "gnomon.plan/1", "model": "llama-3.2-1b", "chip": "H100", "replicas": 2, "strategy": {"tp": 2},
    "dtype": "bf16", "kv_dtype": "bf16",
    "engine": {"name": "vllm", "version": "0.24.0", "settings": {"max_num_seqs": 128}},
    "load": {"rate_per_s": 4.0, "input_tokens": 512, "output_tokens": 64}, "goals": {"ttft_p90": "1s"},
}  # fmt: skip
TRAINED = {
    "schema": "gnomon.plan/1", "model": "llama-3.2-1b", "chip": "H100", "replicas": 1,
    "strategy": {"tp": 2, "cp": 2, "dp": 2}, "dtype": "bf16",
    "engine": {"name": "megatron", "settings": {"micro_batch": 1, "zero": 1}},
    "load": {"seq": 1024, "global_batch": 16, "tokens": "1B"},
}  # fmt: skip
LENGTHS = {"seq": 1024, "global_batch": 16, "lengths": "lognormal:mean=300,cv=1", "packing": "bfd"}
TRAINED_ON_LENGTHS = TRAINED | {"load": LENGTHS}
MIXTURE = TRAINED | {"model": "qwen3-30b-a3b", "strategy": {"tp": 2, "dp": 8, "ep": 4}}
UNSHARDED = MIXTURE | {"engine": {"name": "megatron", "settings": {"expert_tp": 1, "zero": 1}}}
PLAN: dict[str, tuple[Entry, Any]] = {
    "schema": (SERVED, "gnomon.chip/1"),
    "id": (SERVED, "plan-7"),
    "model": (SERVED, "llama-3.1-8b"),
    "chip": (SERVED, "H200"),
    "per_node": (TRAINED, 4),
    "power_limit_w": (SERVED, 300.0),
    "replicas": (SERVED, 3),
    "router": (SERVED, "round-robin"),
    "kv_transfer": (SERVED, "layerwise"),
    "checkpoint": (SERVED, "some/other-weights"),
    "strategy": (SERVED, {"tp": 4}),
    "strategy.tp": (SERVED, 4),
    "strategy.pp": (SERVED, 2),
    "strategy.ep": (MIXTURE, 8),
    "strategy.cp": (TRAINED, 4),
    "strategy.dp": (TRAINED, 4),
    "strategy.vp": (TRAINED, 2),
    "strategy.techniques": (SERVED, ["int4-weights"]),
    "dtype": (SERVED, "fp8"),
    "kv_dtype": (SERVED, "fp8"),
    "engine": (SERVED, {"name": "vllm"}),
    "engine.name": (SERVED, "sglang"),
    "engine.version": (SERVED, "0.23"),
    "engine.settings": (SERVED, {"max_num_seqs": 64}),
    "engine.settings.micro_batch": (TRAINED, 2),
    "engine.settings.schedule": (TRAINED | {"strategy": {"tp": 2, "pp": 2, "dp": 2}}, "gpipe"),
    "engine.settings.recompute": (TRAINED, "full"),
    "engine.settings.zero": (TRAINED, 3),
    "engine.settings.optimizer": (TRAINED, "sgd"),
    "engine.settings.sequence_parallel": (TRAINED, False),
    "engine.settings.cp_comm": (TRAINED, "a2a"),
    "engine.settings.expert_tp": (MIXTURE, 1),
    "engine.settings.dp_shard": (TRAINED | {"strategy": {"tp": 2, "dp": 4}}, 2),
    "engine.settings.tp_overlap": (TRAINED, True),
    "engine.settings.cp_a2a": (
        TRAINED | {"engine": {"name": "megatron", "settings": {"cp_comm": "a2a+p2p", "cp_a2a": 1}}},
        2,
    ),
    "engine.settings.fp8_param_gather": (TRAINED | {"dtype": "fp8"}, True),
    "engine.settings.bf16_layers": (TRAINED | {"dtype": "fp8-current"}, "1,1"),
    "engine.settings.hpz": (
        TRAINED | {"strategy": {"dp": 8}, "engine": {"name": "deepspeed", "settings": {"zero": 3}}},
        2,
    ),
    "engine.settings.dispatch": (UNSHARDED, "deepep"),
    "engine.settings.capacity_factor": (UNSHARDED, 0.5),
    "engine.settings.pad_to_capacity": (
        UNSHARDED | {"engine": {"name": "megatron", "settings": {"expert_tp": 1, "zero": 1, "capacity_factor": 1.25}}},
        True,
    ),
    "engine.settings.imbalance": (UNSHARDED, 1.5),
    "engine.settings.ep_overlap": (UNSHARDED, True),
    "engine.settings.cuda_graphs": (TRAINED, True),
    "engine.settings.layers_per_stage": (TRAINED | {"strategy": {"tp": 2, "pp": 2, "dp": 2}}, "9,7"),
    "load": (TRAINED, {"seq": 2048, "global_batch": 16}),
    "load.seq": (TRAINED, 2048),
    "load.global_batch": (TRAINED, 32),
    "load.tokens": (TRAINED, "2B"),
    "load.lengths": (TRAINED_ON_LENGTHS, "uniform:low=10,high=500"),
    "load.packing": (TRAINED_ON_LENGTHS, "wrapped"),
    "load.document_masking": (TRAINED_ON_LENGTHS | {"load": LENGTHS | {"packing": "wrapped"}}, True),
    "load.sampling": (TRAINED_ON_LENGTHS, "balanced"),
    "load.seed": (TRAINED_ON_LENGTHS, 3),
    "load.mtp_layers": (TRAINED, 1),
    "goals": (SERVED, {"ttft_p90": "2s"}),
}
PLAN_RECORDS = {
    "predicted": "what was predicted when the plan was made",
    **dict.fromkeys(
        (
            "load.trace",
            "load.rate_per_s",
            "load.input_tokens",
            "load.output_tokens",
            "load.requests",
            "load.seed",
            "load.arrivals",
            "load.prefix",
            "load.turns",
            "load.think_s",
            "load.adapters",
            "load.priorities",
            "load.images",
        ),
        "what the plan was made for, which `gnomon verify` runs: no launch file has a load",
    ),
    **dict.fromkeys(
        ("load.image", "load.freeze", "load.source"),
        "what a step was priced for: no launch file trains towers, encoder-decoders or diffusion transformers",
    ),
}
"""Fields of a plan that no launch file depends on, and why."""


@dataclass(frozen=True)
class Shape:
    """A field of a noun of shapes, in a known model that has one; `given` is changed beside it."""

    model: str
    value: Any
    given: Entry = field(default_factory=dict)
    place: int = 0
    """Which of the nouns of the model, where it has several."""
    lines: tuple[str, ...] = ()
    """What shows it, where usual questions do not."""


NOUNS: dict[type, str] = {
    Model: "llama-3.2-1b", Block: "llama-3.2-1b", Tower: "whisper-small", VisionPreprocessor: "qwen2-vl-2b",
    Indexer: "glm-5", Format: "gpt-oss-20b",
} | {
    KINDS[kind]: model
    for kind, model in {
        "attention": "llama-3.2-1b", "latent": "deepseek-v2-lite", "cross": "whisper-small", "mamba": "mamba-2.8b",
        "mamba2": "mamba-codestral-7b", "gated_delta": "qwen3-next-80b-a3b", "lightning": "minimax-text-01",
        "short_convolution": "lfm2-1.2b", "dense": "llama-3.2-1b", "moe": "deepseek-v2-lite", "linear": "opt-350m",
        "table": "whisper-small", "convolution": "whisper-small", "norm": "bert-base",
        "modulation": "wan-2.1-t2v-1.3b",
    }.items()
}  # fmt: skip
"""A model that has the noun; numbers are doubled and flags turned, but where `SHAPES` says otherwise."""
NESTED = ("blocks", "mixer", "ffn", "stem", "tail", "towers", "mtp", "extras", "cross", "indexer", "intake", "formats")
"""Fields that hold other nouns."""
SHAPE_LABELS = ("name", "hub_id", "source", "not_modelled")
A = KINDS["attention"]
SHAPES: dict[tuple[type, str], Shape] = {
    (Model, "family"): Shape("llama-3.2-1b", "llama"),
    (Model, "dtype"): Shape("llama-3.2-1b", "fp16", lines=("predict shapes.yaml --on MI100 --batch 64",)),
    (Model, "learned_positions"): Shape("gpt2", 512),
    (Model, "centred_norms"): Shape("modernbert-base", False),
    (Model, "embedding_width"): Shape("opt-350m", 1024),
    (Model, "kept_dtype"): Shape("gpt-oss-20b", "fp32"),
    (Model, "head_format"): Shape("llama-3.2-1b", {"name": "fp8", "bits": 8.0}),
    (Model, "vocab"): Shape("llama-3.2-1b", 64_000),
    (Model, "head_cap"): Shape("llama-3.2-1b", 30.0),
    (Block, "norms"): Shape("llama-3.2-1b", 4),
    (Tower, "final_norm"): Shape("whisper-small", False),
    (VisionPreprocessor, "positions"): Shape("whisper-small", 750),
    (VisionPreprocessor, "side"): Shape("gemma-3-4b", 448),
    (VisionPreprocessor, "any_size"): Shape("qwen2-vl-2b", False),
    (VisionPreprocessor, "tiles"): Shape("llama-3.2-11b-vision", 2),
    (VisionPreprocessor, "always_tiles"): Shape("llama-3.2-11b-vision", False),
    (VisionPreprocessor, "beside"): Shape("llama-3.2-11b-vision", 9),
    (VisionPreprocessor, "keeps_beside"): Shape("llama-3.2-11b-vision", False),
    (VisionPreprocessor, "row_ends"): Shape("mistral-small-3.1-24b", False),
    (VisionPreprocessor, "align"): Shape("llama-3.2-11b-vision", 64),
    (Format, "name"): Shape("gpt-oss-20b", "own"),
    (Format, "block"): Shape("gpt-oss-20b", [1, 64]),
    (Format, "zero_bits"): Shape("gpt-oss-20b", 8.0),
    (Format, "tensor_bits"): Shape("gpt-oss-20b", 32.0),
    (Format, "activations"): Shape("gpt-oss-20b", "fp8"),
    (A, "kv_heads"): Shape("llama-3.2-1b", 16),
    (A, "window"): Shape("llama-3.2-1b", 256),
    (A, "key_bias"): Shape("qwen2.5-0.5b", False),
    (A, "qk_norm_whole"): Shape("qwen3-0.6b", True),
    (A, "qk_norm_weight"): Shape("qwen3-0.6b", False),
    (A, "qk_norm_bias"): Shape("qwen3-0.6b", True),
    (A, "chunked"): Shape("mistral-7b-v0.1", True),
    (A, "logit_cap"): Shape("llama-3.2-1b", 30.0),
    (A, "rotary_dim"): Shape("llama-3.2-1b", 32),
    (A, "relative_buckets"): Shape("llama-3.2-1b", 32),
    (KINDS["latent"], "window"): Shape("deepseek-v2-lite", 256),
    (KINDS["latent"], "q_rank"): Shape("deepseek-v2-lite", 512),
    (KINDS["moe"], "topk"): Shape("deepseek-v2-lite", 8),
    (KINDS["moe"], "router"): Shape("deepseek-v2-lite", "sigmoid"),
    (KINDS["moe"], "groups"): Shape("deepseek-v2-lite", 2, {"topk_groups": 1}),
    (KINDS["moe"], "topk_groups"): Shape("deepseek-v2-lite", 2, {"groups": 4}),
    (KINDS["moe"], "latent"): Shape("deepseek-v2-lite", 512),
    (KINDS["mamba2"], "groups"): Shape("nemotron-h-8b", 4),
    (KINDS["cross"], "qk_norm"): Shape("llama-3.2-11b-vision", False),
    (KINDS["cross"], "qk_norm_whole"): Shape("wan-2.1-t2v-1.3b", False),
    (KINDS["linear"], "once"): Shape("dit-xl-2-256", False),
    (KINDS["convolution"], "groups"): Shape("whisper-small", 2),
    (KINDS["convolution"], "stride"): Shape("whisper-small", 1, place=1),
}
"""Where doubling or turning says nothing, or needs another model."""
LINES = {
    "encoder": ("predict shapes.yaml --on H200 --tokens 64 --batch 4",
                "predict shapes.yaml --on H200 --tokens 64 --batch 4 --engine torch"),
    "diffusion": ("predict shapes.yaml --on H200 --batch 4",),
    "multimodal": ("predict shapes.yaml --on H200 --phase prefill --tokens 64 --batch 2 --images 2 --image 800x500",
                   "predict shapes.yaml --on H200 --phase prefill --tokens 64 --engine torch --image 800x500"),
    "encoder-decoder": ("predict shapes.yaml --on H200 --batch 4 --context 32",
                        "predict shapes.yaml --on H200 --phase prefill --tokens 8 --batch 4 --engine torch"),
    "": ("predict shapes.yaml --on H200 --batch 4 --context 700",
         "predict shapes.yaml --on H200 --phase prefill --tokens 700 --batch 2",
         "simulate train shapes.yaml --on H200 --seq 512 --global-batch 2"),
}  # fmt: skip
"""What is asked of a network, by its kind; of all, whether it fits."""
