"""A training job read back from Megatron-LM's options alone: the network from its shape, the step from its degrees."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.export import megatron_flags

import gnomon
from gnomon.spec.answers import TrainingReport

Parse = Callable[[Sequence[str]], Any]
OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "lion": "lion", "muon": "muon", "dist_muon": "muon"}
CP_COMMS = {"p2p": "p2p", "a2a": "a2a", "all_gather": "allgather"}
SEVERAL = ("--cp-comm-type", "--hierarchical-context-parallel-sizes", *megatron_flags.LISTS)
DESTS = {
    "--fp8-format": "fp8",
    "--fp4-format": "fp4",
    "--sequence-parallel": "sequence_parallel",
    "--disable-bias-linear": "add_bias_linear",
    "--untie-embeddings-and-output-weights": "untie_embeddings_and_output_weights",
    "--cp-comm-type": "cp_comm_type",
}


def our_parser() -> Parse:
    """A reader of the options that may be written, each with a value of its kind; anything else ends it."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for flag in megatron_flags.SWITCHES:
        off = flag == "--disable-bias-linear"
        parser.add_argument(flag, action="store_false" if off else "store_true", dest=DESTS.get(flag))
    whole = (*megatron_flags.WHOLE, *megatron_flags.SIZES)
    for flags, kind in (
        (whole, int),
        (megatron_flags.NUMBERS, float),
        ((*megatron_flags.TEXTS, *megatron_flags.LISTS), str),
    ):
        for flag in flags:
            parser.add_argument(flag, type=kind, nargs="+" if flag in SEVERAL else None, dest=DESTS.get(flag))
    for flag, choices in megatron_flags.CHOICES.items():
        parser.add_argument(flag, choices=choices, dest=DESTS.get(flag))
    return parser.parse_args


def shapes(said: Any) -> dict[str, Any]:
    """The network that the options make."""
    every = said.add_bias_linear
    qkv = {"qkv_bias": True} if every or said.add_qkv_bias else {}
    if said.multi_latent_attention:
        mixer: dict[str, Any] = {
            "kind": "latent",
            "heads": said.num_attention_heads,
            "kv_rank": said.kv_lora_rank,
            "nope_dim": said.qk_head_dim,
            "rope_dim": said.qk_pos_emb_head_dim,
            "value_dim": said.v_head_dim,
        } | ({"q_rank": said.q_lora_rank} if said.q_lora_rank else {})
    else:
        mixer = {
            "kind": "attention",
            "heads": said.num_attention_heads,
            "kv_heads": said.num_query_groups if said.group_query_attention else said.num_attention_heads,
            "head_dim": said.kv_channels,
            "qk_norm": said.qk_layernorm,
            **qkv,
            **({"out_bias": True} if every else {}),
        } | ({"window": int(said.window_size.partition(",")[0]) + 1} if said.window_size else {})
    learned = said.position_embedding_type == "learned_absolute"
    return {
        "schema": "gnomon.model/1",
        "hidden": said.hidden_size,
        "vocab": said.vocab_size,
        "max_context": said.max_position_embeddings,
        "tied_embeddings": not said.untie_embeddings_and_output_weights,
        "dtype": "bf16",
        "blocks": [
            {"count": count, "mixer": mixer, "ffn": _experts(said) if routed else _dense(said)}
            for count, routed in _layers(said)
        ],
        **({"norm_bias": True} if said.normalization == "LayerNorm" else {}),
        **({"learned_positions": said.max_position_embeddings} if learned else {}),
    }


def _layers(said: Any) -> list[tuple[int, bool]]:
    """Equal layers next to each other: how many, and whether they have experts. `([0]*1+[1]*26)` is Python's own."""
    if not said.num_experts:
        return [(said.num_layers, False)]
    if said.moe_layer_freq in (None, 1):
        return [(said.num_layers, True)]
    parts = [part.partition("*") for part in said.moe_layer_freq.strip("()").split("+")]
    found = [(int(count), kind == "[1]") for kind, _, count in parts]
    assert sum(count for count, _ in found) == said.num_layers
    return found


def _dense(said: Any) -> dict[str, Any]:
    bias = {"bias": True} if said.add_bias_linear else {}
    return {"kind": "dense", "inner": said.ffn_hidden_size, "gated": said.swiglu, **bias}


def _experts(said: Any) -> dict[str, Any]:
    grouped = {"groups": said.moe_router_num_groups, "topk_groups": said.moe_router_group_topk}
    return {
        "kind": "moe",
        "experts": said.num_experts,
        "topk": said.moe_router_topk,
        "inner": said.moe_ffn_hidden_size,
        "router": said.moe_router_score_function or "softmax",
        "correction": bool(said.moe_router_enable_expert_bias),
        **(
            {"shared_inner": said.moe_shared_expert_intermediate_size}
            if said.moe_shared_expert_intermediate_size
            else {}
        ),
        **({"shared_gate": True} if said.moe_shared_expert_gate else {}),
        **(grouped if said.moe_router_num_groups else {}),
    }


def simulated(said: Any, chip: str, chips: int, folder: Path) -> TrainingReport:
    """One step of what the options say on so many chips."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "network.yaml"
    file.write_text(json.dumps(shapes(said)))
    layout = said.pipeline_model_parallel_layout
    tp, pp, cp = said.tensor_model_parallel_size, said.pipeline_model_parallel_size, said.context_parallel_size or 1
    vp = len(layout.split("|")) // pp if layout else said.num_virtual_stages_per_pipeline_rank or 1
    zero = {"optim_grads": 2, "optim_grads_params": 3}.get(
        said.data_parallel_sharding_strategy if said.use_megatron_fsdp else "",
        int(said.use_distributed_optimizer or said.optimizer == "dist_muon"),
    )
    return gnomon.simulate_training(
        file,
        on=f"{chip}:{chips}",
        seq=said.seq_length,
        global_batch=said.global_batch_size,
        micro_batch=said.micro_batch_size,
        tp=tp,
        pp=pp,
        vp=vp,
        cp=cp,
        ep=said.expert_model_parallel_size or 1,
        zero=zero,
        schedule="interleaved" if vp > 1 else "1f1b",
        recompute=said.recompute_granularity or "none",
        optimizer=OPTIMIZERS[said.optimizer],
        sequence_parallel=said.sequence_parallel,
        cp_comm=CP_COMMS[said.cp_comm_type[0]] if cp > 1 else "p2p",
        expert_tp=said.expert_tensor_parallel_size or 0,
        dtype=_dtype(said),
        engine="megatron",
        techniques=_techniques(said),
    )


def _dtype(said: Any) -> str:
    """By Transformer Engine's names of its recipes."""
    eight = {"delayed": "fp8", "tensorwise": "fp8-current", "blockwise": "fp8-blocks", "mxfp8": "mxfp8"}
    return str(said.fp4_recipe) if said.fp4 else eight[said.fp8_recipe] if said.fp8 else "bf16"


def _techniques(said: Any) -> list[str]:
    found = []
    if said.optimizer_cpu_offload:
        found.append(f"offload-optimizer:share={said.optimizer_offload_fraction:g}")
    if said.save_interval:
        assert said.save
        found.append(
            f"checkpoints:every={said.save_interval},mode={'asynchronous' if said.async_save else 'synchronous'}"
        )
    return found
