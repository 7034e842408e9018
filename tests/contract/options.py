"""Options and fields, each with a case that it is given in and another value: a new one needs a line here.

A line without indent is a command; each line below it changes one option of it, or gives it. The option is the first
word of the line, with the key of a `--set`.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP = "predict llama-3.2-1b --on H100 --batch 8 --context 512"
LOAD = "simulate serve llama-3.2-1b --on H100 --rate 20 --input 400 --output 20 --requests 40"
POOLS = (
    "simulate serve llama-3.2-1b --pool prefill=H100:2,tp=1 --pool decode=H100:2,tp=1 --rate 20 --input 400 "
    "--output 20 --requests 40"
)
TRAINED = "simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16"
PLAN = (
    "plan serve llama-3.2-1b --fleet H100:1 --rate 4 --input 100 --output 8 --requests 20 --slo ttft_p90=1s "
    "--dtype bf16 --set max_num_seqs=64 --set max_num_batched_tokens=2048"
)
APART = PLAN.replace("H100:1", "H100:2") + " --pools disaggregated"
PICTURED = PLAN.replace("llama-3.2-1b", "qwen2-vl-2b")
SEARCH = "plan train llama-3.2-1b --cluster H100:4 --seq 512 --global-batch 16"

COMMANDS = f"""
{STEP}
  --on H200
  --phase prefill --tokens 64
  --batch 9
  --tokens 2
  --context 513
  --source 3
  --images 1
  --image 64x64
  --steps 2
  --dtype fp8
  --kv-dtype fp8
  --engine torch
  --tp 2
  --pp 2
  --ep 2
  --cp 2
  --dp 2
  --with int4-weights
  --set max_model_len=4096
  --set max_num_seqs=64
  --set max_num_batched_tokens=2048
  --set gpu_memory_utilization=0.5
  --set block_size=32
  --set decode_context_parallel_size=2
  --set all2all_backend=deepep
  --set expert_popularity=zipf:0.6
  --set enable_eplb=true
  --set num_redundant_experts=8
  --set moe_backend=marlin
  --set moe_activation=mxfp8
  --set async_scheduling=false
  --set enforce_eager=true
  --set enable_prefix_caching=false
  --set max_cudagraph_capture_size=64
  --set front_end=in_process
  --set scheduling_policy=priority
  --set enable_lora=true
  --set max_loras=4
  --set max_lora_rank=64
  --set max_cpu_loras=8
  --set kv_offloading_size=8
  --set cpu_offload_gb=1
  --set offload_backend=uva
  --set offload_group_size=4
  --set offload_num_in_group=2
  --set offload_prefetch_step=2
  --set speculative_method=ngram_gpu
  --set num_speculative_tokens=3
  --set draft_acceptance=0.5
  --set draft_parameters=1000000000
  --set draft_model=meta-llama/Llama-3.2-1B-Instruct
  --json
  --html out.html
predict llama-3.2-1b --on H100 --phase prefill --batch 4 --tokens 4096
  --sustained
  --power-limit 300
  --context 512
  --kv-dtype fp8
  --set max_model_len=8192
  --set block_size=32
  --set enforce_eager=true
  --set max_cudagraph_capture_size=64
  --set front_end=in_process
predict qwen3-30b-a3b --on H100:8 --batch 16 --context 256
  --tp 4
  --pp 2
  --ep 8
  --dp 2
  --set all2all_backend=deepep
  --set expert_popularity=zipf:0.6
  --set enable_eplb=true
  --set num_redundant_experts=8
  --set moe_backend=flashinfer_cutlass
predict qwen3-30b-a3b --on H100:8 --tp 8 --batch 16 --context 256
  --cp 2
  --set decode_context_parallel_size=2
predict bert-base --on H100 --batch 8 --tokens 64
  --phase decode
  --kv-dtype fp8
  --context 4
  --dtype fp16
  --engine torch
  --set max_model_len=256
  --set block_size=32
  --set async_scheduling=false
  --set enable_prefix_caching=false
predict bert-base --on H100 --batch 8 --tokens 64 --engine torch
  --kv-dtype fp8
  --set launch=graph
predict dit-xl-2-256 --on H100 --batch 2
  --image 512x512
  --steps 20
  --tokens 64
  --kv-dtype fp8
  --set launch=graph
predict whisper-small --on H100 --batch 4
  --source 100
  --context 16
  --kv-dtype fp8
  --set block_size=32
predict qwen2-vl-2b --on H100 --phase prefill --tokens 64
  --images 2
  --image 640x480
  --kv-dtype fp8
  --set max_model_len=4096
predict qwen2-vl-2b --on H100 --phase decode
  --images 2
  --image 640x480
predict llama-3.2-1b --on H100:4 --phase train --batch 8 --tokens 512
  --on H200:4
  --batch 16
  --tokens 1024
  --context 5
  --kv-dtype fp8
  --dtype fp16
  --engine megatron
  --tp 2
  --pp 2
  --ep 2
  --cp 2
  --dp 2
  --source 3
  --images 1
  --image 64x64
  --steps 3
  --with offload-optimizer
  --set micro_batch=1
  --set zero=1
  --set schedule=gpipe
  --set recompute=full
  --set optimizer=adamw-bf16
  --set sequence_parallel=false
  --set vp=2
  --set cp_comm=a2a
  --set expert_tp=1
  --set layers_per_stage=9,7
  --set dp_shard=2
  --set tp_overlap=true
  --set cp_a2a=2
  --set hpz=2
  --set fp8_param_gather=true
  --set bf16_layers=1,1
  --set dispatch=alltoall
  --set capacity_factor=0.5
  --set pad_to_capacity=true
  --set imbalance=1.5
  --set ep_overlap=true
  --set cuda_graphs=true
fit llama-3.2-1b --on H100:2
  --on H200:2
  --dtype fp8
  --kv-dtype fp8
  --engine torch
  --tp 1
  --pp 2
  --ep 2
  --cp 2
  --dp 2
  --context 1024
  --with int4-weights
  --set max_model_len=4096
  --set max_num_seqs=64
  --set max_num_batched_tokens=2048
  --set gpu_memory_utilization=0.5
  --set block_size=32
  --set decode_context_parallel_size=2
  --set all2all_backend=deepep
  --set expert_popularity=zipf:0.6
  --set enable_eplb=true
  --set num_redundant_experts=8
  --set moe_backend=marlin
  --set moe_activation=mxfp8
  --set async_scheduling=false
  --set enforce_eager=true
  --set enable_prefix_caching=false
  --set max_cudagraph_capture_size=64
  --set front_end=in_process
  --set scheduling_policy=priority
  --set enable_lora=true
  --set max_loras=4
  --set max_lora_rank=64
  --set max_cpu_loras=8
  --set kv_offloading_size=8
  --set cpu_offload_gb=1
  --set offload_backend=uva
  --set offload_group_size=4
  --set offload_num_in_group=2
  --set offload_prefetch_step=2
  --set speculative_method=ngram_gpu
  --set num_speculative_tokens=3
  --set draft_acceptance=0.5
  --set draft_parameters=1000000000
  --set draft_model=meta-llama/Llama-3.2-1B-Instruct
  --json
  --html out.html
fit bert-base --on H100
  --context 256
  --kv-dtype fp8
  --set max_model_len=256
fit bert-base --on H100 --engine torch
  --context 256
  --kv-dtype fp8
  --set launch=graph
{LOAD}
  --arrivals gamma:cv=3
  --prefix groups=2,tokens=64
  --turns 2
  --think 3s
  --adapters 4
  --priorities 0=0.5,1=0.5
  --concurrency 4
  --power-limit 200
  --on H200
  --dtype fp8
  --kv-dtype fp8
  --engine vllm@0.9
  --tp 2
  --pp 2
  --ep 2
  --cp 2
  --dp 2
  --trace lengths.csv
  --rate 10
  --input 500
  --output 30
  --requests 50
  --seed 3
  --with int4-weights
  --requests-out out.csv
  --trace-out out.json
  --slo ttft_p90=1s
  --series
  --set max_model_len=4096
  --set max_num_seqs=2
  --set max_num_batched_tokens=1024
  --set gpu_memory_utilization=0.5
  --set block_size=32
  --set decode_context_parallel_size=2
  --set all2all_backend=deepep
  --set expert_popularity=zipf:0.6
  --set enable_eplb=true
  --set num_redundant_experts=8
  --set moe_backend=marlin
  --set moe_activation=mxfp8
  --set async_scheduling=false
  --set enforce_eager=true
  --set enable_prefix_caching=false
  --set max_cudagraph_capture_size=2
  --set front_end=in_process
  --set scheduling_policy=priority
  --set enable_lora=true
  --set max_loras=4
  --set max_lora_rank=64
  --set max_cpu_loras=8
  --set kv_offloading_size=8
  --set cpu_offload_gb=1
  --set offload_backend=uva
  --set offload_group_size=4
  --set offload_num_in_group=2
  --set offload_prefetch_step=2
  --set speculative_method=ngram_gpu
  --set num_speculative_tokens=3
  --set draft_acceptance=0.5
  --set draft_parameters=1000000000
  --set draft_model=meta-llama/Llama-3.2-1B-Instruct
  --json
  --html out.html
simulate serve llama-3.2-1b --on H100 --rate 20 --input 100 --output 8 --requests 40 --set speculative_method=eagle
  --set num_speculative_tokens=3
  --set draft_acceptance=0.2
  --set enable_lora=true
  --set scheduling_policy=priority
  --set kv_offloading_size=8
simulate serve llama-3.2-1b --on H100 --rate 20 --input 100 --output 8 --requests 40 --adapters 8 --set enable_lora=true
  --set max_loras=4
  --set max_lora_rank=64
  --set max_cpu_loras=8
simulate serve qwen2-vl-2b --on H100 --rate 20 --input 100 --output 8 --requests 40
  --images 1,640x480
simulate serve llama-3.2-1b --rate 20 --input 100 --output 8 --requests 40 --pool prefill=H100:1 --pool decode=H100:1
  --pool decode=H100:2
  --router least-requests
  --kv-transfer layerwise
simulate serve llama-3.2-1b --on H100 --input 100 --output 8 --requests 40
  --concurrency 2
  --arrivals constant
simulate serve llama-3.2-1b --on H100 --rate 20 --input 100 --output 8 --requests 40 --turns 2
  --think 3s
simulate serve llama-3.2-1b --on H100 --trace timed.csv
  --seed 3
  --rate 3
  --requests 5
  --concurrency 2
  --arrivals constant
  --adapters 2
  --turns 2
  --input 4
  --output 4
simulate serve llama-3.2-1b --on H100 --trace lengths.csv --rate 5
  --seed 3
simulate serve llama-3.2-1b --on H100 --input 100 --output 8 --requests 10
  --seed 3
{LOAD}
  --pool H100:1
  --router least-kv
  --kv-transfer layerwise
{POOLS}
  --pool prefill=H100:1
  --router round-robin
  --kv-transfer layerwise
  --dtype fp8
  --on H100
  --tp 2
{TRAINED}
  --power-limit 300
  --on H200:8
  --seq 1024
  --global-batch 32
  --micro-batch 2
  --tp 2
  --pp 2
  --vp 2
  --cp 2
  --ep 2
  --dp 4
  --zero 1
  --schedule gpipe
  --recompute full
  --optimizer sgd
  --engine torch
  --dtype fp16
  --tokens 1B
  --no-sequence-parallel
  --cp-comm a2a
  --expert-tp 1
  --layers-per-stage 9,7
  --dp-shard 2
  --tp-overlap
  --cp-a2a 2
  --fp8-param-gather
  --bf16-layers 1,1
  --dispatch alltoall
  --capacity-factor 0.5
  --pad-to-capacity
  --imbalance 1.5
  --ep-overlap
  --cuda-graphs
  --with offload-optimizer
  --lengths lognormal:mean=200,cv=1
  --packing max-length
  --sampling balanced
  --no-document-masking
  --seed 3
  --trace-out out.json
  --memory-out out.csv
  --json
  --html out.html
{TRAINED} --lengths lognormal:mean=200,cv=1 --packing wrapped
  --lengths uniform:low=10,high=400
  --packing bfd
  --sampling balanced
  --document-masking
  --seed 3
  --cp 2
  --pp 2
{TRAINED} --engine megatron@bridge --lengths lognormal:mean=200,cv=1
  --packing ffd
  --sampling group-by-length
  --document-masking
  --seed 3
  --cp 2
  --pp 2
{TRAINED}
  --failures default
  --checkpoint-to local
  --checkpoint-every 5
  --checkpoint-mode lazy
  --spares 9
  --detection-time 1h
  --restart-time 1h
  --repair-time 9d
  --grid FR
{TRAINED} --tokens 1B --failures 1/gpu-day
  --failures rsc-1
  --checkpoint-to local
  --checkpoint-every 5
  --checkpoint-mode synchronous
  --spares 9
  --detection-time 1h
  --restart-time 1h
  --repair-time 9d
  --grid FR
  --with async-checkpointing
{TRAINED} --zero 3 --engine deepspeed
  --hpz 2
simulate train qwen3-30b-a3b --on H100:16 --seq 512 --global-batch 64 --ep 16
  --dispatch deepep
  --capacity-factor 0.5
  --imbalance 1.5
  --ep-overlap
simulate train qwen3-30b-a3b --on H100:16 --seq 512 --global-batch 64 --ep 16 --capacity-factor 1.25
  --pad-to-capacity
{TRAINED} --cp 4 --cp-comm a2a+p2p --cp-a2a 2
  --cp-a2a 4
{TRAINED} --zero 1 --tp 4
  --dp-shard 2
  --tp-overlap
{TRAINED} --zero 1 --dtype fp8-current
  --fp8-param-gather
  --bf16-layers 1,1
{TRAINED} --tp 2 --pp 2 --cp 2
  --vp 2
  --layers-per-stage 9,7
  --zero 1
  --schedule gpipe
  --no-sequence-parallel
  --cp-comm allgather
simulate train qwen2-vl-2b --on H100:8 --seq 4096 --global-batch 16 --images 1
  --images 2
  --image 640x480
  --freeze vision
simulate train whisper-small --on H100:8 --seq 448 --global-batch 16
  --source 700
simulate train qwen3-30b-a3b --on H100:16 --seq 512 --global-batch 16 --ep 4
  --mtp-layers 1
plan train qwen2-vl-2b --cluster H100:2 --seq 2048 --global-batch 4 --images 1
  --images 2
  --image 640x480
  --freeze vision
plan train llama-3.2-1b --cluster H100:2 --seq 512 --global-batch 4 --tokens 1B
  --objective fewest-gpus --deadline 30d
  --deadline 1h
  --budget 1
  --fewest-gpus --deadline 30d
  --longest-context
plan train t5-large --cluster H100:2 --seq 512 --global-batch 4
  --source 128
plan train llama-3.2-1b --cluster H100:2 --seq 512 --global-batch 4 --dtype fp8-current
  --fp8-param-gather
  --bf16-layers 1,1
plan train llama-3.2-1b --cluster H100:2 --seq 512 --global-batch 4
  --mtp-layers 1
simulate train qwen3-30b-a3b --on H100:16 --seq 512 --global-batch 16 --tp 2 --ep 4
  --expert-tp 1
  --ep 8
{PICTURED}
  --images 1,640x480
{PLAN}
  --pools disaggregated
  --pools mixed
  --kv-transfer layerwise
{APART}
  --kv-transfer layerwise
  --router least-kv
{PLAN}
  --arrivals gamma:cv=3
  --prefix groups=2,tokens=64
  --turns 2
  --think 3s
  --adapters 4
  --priorities 0=0.5,1=0.5
  --power-limit 300
  --fleet H200:1
  --rate 5
  --input 120
  --output 10
  --requests 30
  --seed 4
  --slo ttft_p50=2s
  --by-rate
  --sensitivity
  --objective latency
  --dtype fp8
  --kv-dtype fp8
  --engine vllm@0.9
  --trace lengths.csv
  --with unpacked-weights
  --set max_model_len=64
  --set max_num_seqs=2
  --set max_num_batched_tokens=512
  --set gpu_memory_utilization=0.03
  --set block_size=24
  --set decode_context_parallel_size=2
  --set all2all_backend=deepep
  --set expert_popularity=zipf:0.6
  --set enable_eplb=true
  --set num_redundant_experts=8
  --set moe_backend=marlin
  --set moe_activation=mxfp8
  --set async_scheduling=false
  --set enforce_eager=true
  --set enable_prefix_caching=false
  --set max_cudagraph_capture_size=8
  --set front_end=in_process
  --set scheduling_policy=priority
  --set enable_lora=true
  --set max_loras=4
  --set max_lora_rank=64
  --set max_cpu_loras=8
  --set kv_offloading_size=8
  --set cpu_offload_gb=1
  --set offload_backend=uva
  --set offload_group_size=4
  --set offload_num_in_group=2
  --set offload_prefetch_step=2
  --set speculative_method=ngram_gpu
  --set num_speculative_tokens=3
  --set draft_acceptance=0.5
  --set draft_parameters=1000000000
  --set draft_model=meta-llama/Llama-3.2-1B-Instruct
  --router least-requests
  --pools disaggregated
  --kv-transfer layerwise
  --json
  --html out.html
plan serve llama-3.1-8b --fleet L4:4 --rate 4 --input 300 --output 40 --dtype fp8 --slo tpot_p90=70ms
  --router round-robin
  --router least-requests
{SEARCH}
  --power-limit 300
  --cluster H100:8
  --seq 1024
  --global-batch 32
  --tokens 1B
  --optimizer sgd
  --dtype fp8
  --engine torch
  --with offload-optimizer
  --lengths lognormal:mean=200,cv=1
  --packing max-length
  --sampling balanced
  --no-document-masking
  --seed 3
  --json
  --html out.html
{SEARCH} --lengths lognormal:mean=200,cv=1 --packing wrapped --document-masking
  --lengths uniform:low=10,high=400
  --packing bfd
  --sampling balanced
  --no-document-masking
  --seed 3
{SEARCH} --tokens 1B --failures 1/gpu-day
  --failures rsc-1
  --checkpoint-to local
  --checkpoint-every 5
  --checkpoint-mode synchronous
  --spares 9
  --detection-time 1h
  --restart-time 1h
  --repair-time 9d
  --grid FR
plan train llama-3.2-3b --cluster H100:1 --seq 8192 --global-batch 64
  --with auto
ops ops.csv --on H100
  --on H200
  --out out.csv
  --json
try gptq --model llama-3.2-1b --on H100
  --model llama-3.2-3b
  --on H200
  --seq 1024
  --global-batch 8
  --batch 4
  --context 1024
  --optimizer sgd
  --dtype fp8
  --engine torch
  --json
  --html out.html
try zero-offload --model llama-3.1-8b --on H100:2
  --on H200:2
  --seq 4096
  --global-batch 48
  --batch 4
  --context 1024
  --optimizer adamw-bf16
  --dtype fp8
  --engine torch
export plan.yaml
  --to kubernetes
  --out exported
  --checkpoint some/other-weights
  --json
export unfit.yaml
  --force
"""
"""Every flag of the commands that answer, and every key of `--set`."""

ANSWERING = ("predict", "fit", "simulate serve", "simulate train", "plan serve", "plan train", "ops", "try", "export")
"""Commands whose flags all have a line."""
FILES = {"--out", "--requests-out", "--trace-out", "--memory-out", "--html"}
"""Flags that write what they name."""


@dataclass(frozen=True)
class Case:
    """One option given another value."""

    base: str
    change: str

    @property
    def command(self) -> str:
        words = self.base.split()
        return " ".join(words[:2]) if words[0] in ("simulate", "plan") else words[0]

    @property
    def flag(self) -> str:
        return self.change.split()[0]

    @property
    def option(self) -> str:
        """The flag, or the key that `--set` sets."""
        words = self.change.split()
        return words[1].partition("=")[0] if words[0] == "--set" else words[0]

    @property
    def line(self) -> str:
        return f"{self.base} {self.change}"


def cases() -> list[Case]:
    """Every line of the table."""
    found, base = [], ""
    for line in COMMANDS.strip().splitlines():
        if line.startswith("  "):
            found.append(Case(base, line.strip()))
        else:
            base = line
    return found
