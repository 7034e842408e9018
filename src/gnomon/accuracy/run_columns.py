"""What a published training run's source says and its row leaves out, or leaves to be derived."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.accuracy.deployment_rows import Row, Unfit, whole
from gnomon.accuracy.run_networks import GATED, completed_sizes
from gnomon.errors import GnomonError
from gnomon.load import chip

BESIDE: Mapping[tuple[str, str], Mapping[str, str]] = {
    # docs/_posts/2022-07-26-deepspeed-azure.md, figure 6: micro-batches of 1 to 8, the peak is quoted.
    ("DeepSpeed on Azure", "GPT 530B"): {"micro_batch": "8", "techniques": "offload-activations offload-optimizer"},
    # The same page: "the activation and optimizer states are allocated in the main memory".
    **{
        ("DeepSpeed on Azure", f"GPT {size}"): {"techniques": "offload-activations offload-optimizer"}
        for size in ("175B", "1T", "2T")
    },
    # experiments/gpt2-meg-ds-zero/meg_ds_zero_gpt2_perf_n16.slurm: --checkpoint-in-cpu --synchronize-each-layer.
    ("BigScience GPT-2 ZeRO", "GPT-2"): {"techniques": "offload-activations:copies=blocking"},
    # scripts/performance/configs of Megatron-Bridge in late 2025: the modules recomputed on most chips.
    ("Megatron-Bridge performance summary", "DeepSeek-V3"): {
        "recompute": "selective (mla_up_proj)", "optimizer": "adamw-moments-bf16",
    },
    ("Megatron-Bridge performance summary", "GPT-OSS"): {"recompute": "selective (layernorm+moe_act)"},
    # src/megatron/bridge/recipes/moonlight/moonlight_16b.py: exp_avg_dtype and exp_avg_sq_dtype are bf16.
    ("Megatron-Bridge recompute study", "Moonlight"): {"optimizer": "adamw-moments-bf16"},
    # skills/nemo-mbridge-perf-memory-tuning: SQuAD, of which Megatron-Bridge's recipes take sequences of 2,048.
    ("Megatron-Bridge LoRA memory notes", "Qwen3-8B"): {"n_gpus": "8", "global_batch": "4"},
    ("Megatron-Bridge LoRA memory notes", "Qwen3-30B"): {"n_gpus": "8", "global_batch": "2", "seq_len": "2048"},
    ("Megatron-Bridge LoRA memory notes", "GPT-OSS"): {"n_gpus": "8", "global_batch": "4", "seq_len": "2048"},
    # torchtitan/components/quantization/mxfp8.md: "64 nodes of 4 devices each = 256 chips" against the 512 of its
    # headline; local batch size 10, FSDP 256, EP 16, no activation checkpointing.
    ("TorchTitan MXFP8 MoE", "Llama 4 Scout"): {
        "n_gpus": "256", "gpus_per_node": "4", "tp": "1", "pp": "1", "dp": "256", "ep": "16", "zero_stage": "3",
        "micro_batch": "10", "global_batch": "2560", "recompute": "none",
    },
    # The table's note: 2M tokens per batch, which are 976 sequences on 124 data-parallel ranks: 8 each.
    ("OPT-175B", "OPT 175B"): {"micro_batch": "8", "global_batch": "992"},
    # Chowdhery et al. 2022, section 4: no pipeline and no accumulation, so that a rank's share goes through at once.
    ("PaLM 540B", "PaLM 540B"): {"micro_batch": "4"},
    # Black et al. 2022, section 3.1: 3.15M tokens, which are 32 micro-batches of 4 on 12 data-parallel ranks.
    ("GPT-NeoX-20B", "GPT-NeoX 20B"): {"global_batch": "1536"},
    # Grattafiori et al. 2024, section 3.3.2: gradients are summed in fp32 over micro-batches, a layer less on the first
    # and the last stage; 8 chunks of a layer are ours, their number is "tunable".
    ("Llama 3 Herd", "Llama 3.1 405B"): {
        "zero_stage": "1", "vp": "8", "layers_per_stage": ",".join(["0", *["1"] * 126, "0"]), "cp_comm": "allgather",
    },
    # Korthikanti et al. 2022, table 4: a layer of the network that their table 3 calls 22B.
    ("Korthikanti 2022 Table 4", "GPT 22B single layer"): {"vocab": "51200"},
}  # fmt: skip
"""By the beginnings of a source and a model: columns as the source has them."""
GRAPHS = "CUDA graphs"
"""A feature."""
CAPTURED: Mapping[tuple[str, str], tuple[str, ...]] = {
    # scripts/performance/configs/qwen3 of Megatron-Bridge in autumn 2025: cuda_graph_impl local, full_iteration.
    ("Megatron-Bridge performance summary 25.09", "Qwen3 30B"): ("GB200", "B200"),
    ("Megatron-Bridge performance summary 25.09", "Qwen3 235B"): ("GB200",),
    # The same in winter: transformer_engine with attn, moe_router and moe_preprocess.
    ("Megatron-Bridge performance summary 25.11", "Qwen3"): ("GB200", "GB300"),
    ("Megatron-Bridge performance summary 25.11", "DeepSeek-V3"): ("GB200", "GB300"),
}
"""By the beginnings of a source and a model: chips on which its recipes replay kernels from CUDA graphs."""
CURRENT_SCALING = "Megatron-Bridge performance summary 25.09"
"""Whose `FP8` is that of its recipes, `fp8_recipe="cs"`; the next release writes it FP8-CS."""
RECOMPUTED = 4 / 3
"""FLOPs of layers that run forward twice, over those of layers that run once."""
CAUSAL = ("Megatron-Bridge",)
"""Sources whose TFLOP/s count the half of the scores that a causal mask leaves: figures of Megatron-Bridge's page
agree with its own tokens per second so. Before 2025 Megatron-LM, and MFU as Chowdhery et al. 2022 define it, counts all
of them."""


def completed(row: Row) -> dict[str, str]:
    """The row with what its source says beside the table, and seconds of a step from the rate that it prints."""
    found = {**row, **completed_sizes(row), **_said_beside(row), **_recipe(row)}
    if row["framework"] == "DeepSpeed ZeRO-3" and not row["global_batch"] and found["micro_batch"]:
        found["global_batch"] = str(int(found["micro_batch"]) * int(row["n_gpus"]))
    if not found["tp"] and found["pp"] and found["n_gpus"]:
        # Of BigScience's rows: "TP=4 in all of entries" contradicts 8 stages on 16 chips.
        found["tp"] = str(int(found["n_gpus"]) // (int(found["pp"]) * whole(found, "dp", 1)))
    if not found["step_time_s"] and not found["step_time_derived_s"]:
        found["step_time_derived_s"] = _derived(found)
    return found


def _recipe(row: Row) -> Mapping[str, str]:
    """What the recipes of a release have that its table does not say."""
    found = {}
    for (source, network), chips in CAPTURED.items():
        if row["source"].startswith(source) and row["model"].startswith(network) and row["gpu"] in chips:
            found["features"] = "; ".join(part for part in (row["features"], GRAPHS) if part)
    if row["source"].startswith(CURRENT_SCALING) and row["precision"] == "FP8":
        found["precision"] = "FP8-CS"
    return found


def _said_beside(row: Row) -> Mapping[str, str]:
    for (source, network), columns in BESIDE.items():
        if row["source"].startswith(source) and row["model"].startswith(network):
            unread = "; ".join((row["fields_not_read"], *(name for name in columns if not row.get(name))))
            return {**columns, "fields_not_read": unread}
    return {}


def _derived(row: Row) -> str:
    """Seconds of a step from tokens per second, TFLOP/s or MFU; nothing where the row lacks what they count."""
    try:
        chips, batch, seq = (whole(row, name) for name in ("n_gpus", "global_batch", "seq_len"))
        if row["tokens_s_gpu"]:
            return str(batch * seq / (float(row["tokens_s_gpu"]) * chips))
        rate = flops_per_s(row)
        return str(counted_flops(row) / (rate * chips)) if rate else ""
    except (Unfit, GnomonError, ValueError):
        return ""


def flops_per_s(row: Row) -> float:
    """Of a chip, as the row prints it; 0 where it does not."""
    if row["tflops_per_gpu"]:
        return float(row["tflops_per_gpu"]) * 1e12
    return float(row["mfu_pct"]) / 100 * chip(row["gpu"]).rate("bf16") if row["mfu_pct"] and row["gpu"] else 0.0


def counted_flops(row: Row) -> float:
    """Of a step of a plain decoder as Megatron-LM counts them, for GPT 72 B s l h^2 (1 + s/6h + V/12lh); hardware's own
    have a second forward pass of the layers, 96 B s l h^2 (1 + s/6h + V/16lh) (Narayanan et al. 2021)."""
    batch, seq, layers, hidden, heads = (
        whole(row, name) for name in ("global_batch", "seq_len", "layers", "hidden", "heads")
    )
    matrices = 3 if row["arch"] in GATED else 2
    groups = whole(row, "kv_heads", heads) / heads
    scores = seq / (2 if row["source"].startswith(CAUSAL) else 1)
    layer = 2 * hidden * (hidden * (1 + groups) + scores) + matrices * hidden * whole(row, "ffn", 4 * hidden)
    again = RECOMPUTED if row["tflops_kind"].startswith("hardware") and row["recompute"].startswith("full") else 1.0
    return 6 * batch * seq * (again * layers * layer + hidden * whole(row, "vocab"))
