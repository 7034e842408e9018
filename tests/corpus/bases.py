"""Whole inputs of every kind, which the corpus breaks, and the command that reads each."""

from __future__ import annotations

import json

MODEL = "llama-3.2-1b"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
CHIP = """schema: gnomon.chip/1
name: my-chip
vendor: NVIDIA
architecture: Hopper
year: 2022
rates_tflops: {fp32: 67, bf16: 989.4, fp16: 989.4}
memory: HBM3
memory_mib: 81559
memory_gb_s: 3352
l2_mib: 50
processors: 132
boost_mhz: 1980
tdp_w: 700
idle_w: 70
price_usd_h: 3.29
node: DGX-H100
source: ours
date: 2026-11
confidence: estimated
"""
CLUSTER = """schema: gnomon.cluster/1
chip: H100
count: 64
per_node: 4
scaleup: NVLink4
scaleout: RoCE 200
adapters: 2
oversubscription: 2
pod_nodes: 8
price_usd_h: 2.1
grid: FR
"""
TABLE = """op,dtype,m,n,k,tokens,hidden,inter,experts,topk,batch,heads,kv_heads,q_len,kv_len,head_dim,bytes,ranks
gemm,bf16,128,4096,4096,,,,,,,,,,,,,
moe,bf16,,,,64,2048,768,128,8,,,,,,,,
attention_prefill,bf16,,,,,,,,,1,32,8,512,900,128,,
all_reduce,bf16,,,,,,,,,,,,,,,1048576,8
"""
TRACE = """arrival_s,input_tokens,output_tokens
0,100,5
0.5,200,6
1,300,7
"""
PLAN = f"""schema: gnomon.plan/1
model: {MODEL}
chip: H100-SXM-80GB
replicas: 1
strategy: {{tp: 1}}
dtype: bf16
kv_dtype: bf16
engine: {{name: vllm, version: 0.24.0}}
load: {{rate_per_s: 8.0, input_tokens: 1024, output_tokens: 256}}
goals: {{ttft_p90: 1s}}
"""
SHAPES = """schema: gnomon.model/1
hidden: 256
vocab: 1000
max_context: 2048
blocks:
- count: 2
  mixer: {kind: attention, heads: 4, kv_heads: 2, head_dim: 64}
  ffn: {kind: dense, inner: 512}
"""

BASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "config": ("config.json", json.dumps(CONFIG, indent=1), ("predict", "./config.json", "--on", "H100")),
    "chip": ("chip.yaml", CHIP, ("ops", "ok.csv", "--on", "./chip.yaml")),
    "cluster": ("cluster.yaml", CLUSTER, ("ops", "ok.csv", "--on", "./cluster.yaml")),
    "table": ("table.csv", TABLE, ("ops", "table.csv", "--on", "H100")),
    "trace": ("trace.csv", TRACE, ("simulate", "serve", MODEL, "--on", "H100", "--trace", "trace.csv")),
    "plan": ("plan.yaml", PLAN, ("export", "plan.yaml")),
    "shapes": ("shapes.yaml", SHAPES, ("predict", "./shapes.yaml", "--on", "H100")),
}
"""By kind: a file, what it holds, and the command line that reads it."""
BESIDE = {"ok.csv": "op,dtype,m,n,k\ngemm,bf16,1,64,64\n"}
"""What else a command line finds."""
