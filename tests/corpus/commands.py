"""Commands, scripts and manifests that are broken, or say what no plan can hold."""

from __future__ import annotations

from collections.abc import Iterator

from tests.corpus.case import Case, Content, folder, pipe

SERVE = "vllm serve llama-3.1-8b"
ON = ("--on", "H100")
COMMANDS = {
    "a flag that vLLM does not have": (f"{SERVE} --tensor-paralel-size 2", "--tensor-parallel-size"),
    "a short flag that vLLM does not have": (f"{SERVE} -tpp 2", "-tpp"),
    "a flag that could be several": (f"{SERVE} --max-num 2", "--max-num"),
    "a negative degree": (f"{SERVE} -tp -2", "--tensor-parallel-size"),
    "no degree": (f"{SERVE} --pipeline-parallel-size 0", "--pipeline-parallel-size"),
    "half a degree": (f"{SERVE} -dp 1.5", "--data-parallel-size"),
    "a degree that does not divide": (f"{SERVE} -tp 3", "tp"),
    "a huge degree": (f"{SERVE} -tp 999999999999", "--tensor-parallel-size"),
    "a degree without a value": (f"{SERVE} -tp", "--tensor-parallel-size"),
    "a flag where a value is": (f"{SERVE} --max-model-len --port 80", "--max-model-len"),
    "a switch with a value": (f"{SERVE} --enforce-eager=true", "--enforce-eager"),
    "no form of a value": (f"{SERVE} --no-port 80", "--no-port"),
    "a single quote": (f"{SERVE} --port '80", "quote '"),
    "a double quote": (f'{SERVE} --port "80', 'quote "'),
    "a substitution that is not closed": (f"{SERVE} --port $(echo 80", "quote $("),
    "two models": (f"{SERVE} qwen3-8b", "qwen3-8b"),
    "two models, one by its flag": (f"{SERVE} --model qwen3-8b", "qwen3-8b"),
    "no model": ("vllm serve --port 80", "no model"),
    "two degrees": (f"{SERVE} -tp 2 --tensor-parallel-size 4", "--tensor-parallel-size"),
    "a switch both ways": (f"{SERVE} --enforce-eager --no-enforce-eager", "--enforce-eager"),
    "negative sequences": (f"{SERVE} --max-num-seqs -1", "--max-num-seqs"),
    "a memory share of two": (f"{SERVE} --gpu-memory-utilization 2", "--gpu-memory-utilization"),
    "a size that is no number": (f"{SERVE} --max-model-len much", "--max-model-len"),
    "a size with half a binary unit": (f"{SERVE} --max-model-len 1.5K", "--max-model-len"),
    "a context beyond the model's": (f"{SERVE} --max-model-len 10M", "max_model_len"),
    "fewer tokens than sequences": (
        f"{SERVE} --max-num-seqs 512 --max-num-batched-tokens 100",
        "max_num_batched_tokens",
    ),
    "JSON that is not": (f"{SERVE} --speculative-config '{{\"a\"'", "--speculative-config"),
    "capture sizes that are words": (f"{SERVE} --cudagraph-capture-sizes few", "--cudagraph-capture-sizes"),
    "a format that does not exist": (f"{SERVE} --dtype bf61", "--dtype"),
    "a method that does not exist": (f"{SERVE} -q fp88", "--quantization"),
    "a method of another checkpoint": (f"{SERVE} -q awq", "--quantization"),
    "a cache that is not modelled": (f"{SERVE} --kv-cache-dtype nvfp4", "--kv-cache-dtype"),
    "a cache that does not exist": (f"{SERVE} --kv-cache-dtype fp9", "--kv-cache-dtype"),
    "context parallelism of prompts": (f"{SERVE} -pcp 2", "--prefill-context-parallel-size"),
    "a variable for the model": ("vllm serve $MODEL", "$MODEL"),
    "a variable for a degree": (f"{SERVE} -tp $TP", "$TP"),
    "a substitution for a degree": (f"{SERVE} -tp `nvidia-smi -L | wc -l`", "--tensor-parallel-size"),
    "a variable for flags": (f"{SERVE} $FLAGS", "$FLAGS"),
    "a variable set to two values": (f"A=1; A=2; {SERVE} -tp $A", "$A"),
    "a variable set sometimes": (f"if true; then A=2; fi; {SERVE} -tp $A", "$A"),
    "a model nobody knows": ("vllm serve some/model", "some/model"),
    "two deployments": (f"{SERVE} & vllm serve qwen3-8b", "qwen3-8b"),
    "two sizes of replicas": (f"{SERVE} -tp 2 & {SERVE}", "degrees"),
    "only workers": (f"{SERVE} --headless", "elsewhere"),
    "a loop without end": (f"while true; do {SERVE}; done", "loop"),
    "a loop over a variable": (f"for i in $GPUS; do {SERVE}; done", "loop"),
    "another program": ("nginx -g 'daemon off;'", "no server"),
    "another command of vLLM": ("vllm bench serve --model llama-3.1-8b", "no server"),
    "fewer visible chips than ranks": (f"CUDA_VISIBLE_DEVICES=0 {SERVE} -tp 2", "chips"),
    "a config that is not there": (f"{SERVE} --config gone.yaml", "gone.yaml"),
    "letters that no command has": (f"{SERVE} --port \ue042", "characters"),
    "a name that no file has": ("x" * 5000, "neither"),
    "nothing": (" ", "COMMAND_OR_FILE"),
}
LAUNCH = "python -m sglang.launch_server --model-path llama-3.1-8b"
TRTLLM = "trtllm-serve llama-3.1-8b"
BENCH = "trtllm-bench -m llama-3.1-8b"
OTHER_ENGINES = {
    "a flag that SGLang does not have": (f"{LAUNCH} --mem-fraction-statc 0.8", "--mem-fraction-static"),
    "an underscore that SGLang does not read": (f"{LAUNCH} --tp_size 2", "--tp-size"),
    "a beginning of several flags of SGLang": (f"{LAUNCH} --enable-dp 2", "--enable-dp"),
    "a switch of SGLang with a value": (f"{LAUNCH} --disable-radix-cache=1", "--disable-radix-cache"),
    "a form that SGLang's switch has not": (f"{LAUNCH} --no-disable-radix-cache", "--no-disable-radix-cache"),
    "SGLang without a model": ("sglang serve --tp 2", "no model"),
    "a model by its place where none is": (f"{LAUNCH} qwen3-8b", "qwen3-8b"),
    "two values of SGLang's": (f"{LAUNCH} --tp 2 --tensor-parallel-size 4", "--tp-size"),
    "a share of SGLang's memory above one": (f"{LAUNCH} --mem-fraction-static 2", "--mem-fraction-static"),
    "a size with half a binary unit for SGLang": (f"{LAUNCH} --context-length 1.5Ki", "--context-length"),
    "a suffix that SGLang does not read": (f"{LAUNCH} --context-length 32K", "--context-length"),
    "replicas that share attention": (f"{LAUNCH} --tp 4 --dp 2 --attn-dp-size 2", "--dp-size"),
    "attention over ranks that do not divide": (f"{LAUNCH} --tp 4 --attn-dp-size 3", "--attn-dp-size"),
    "context parallelism of SGLang": (f"{LAUNCH} --tp 8 --attn-cp-size 2", "--attn-cp-size"),
    "a cache that SGLang has and Gnomon not": (f"{LAUNCH} --kv-cache-dtype nvfp4", "--kv-cache-dtype"),
    "a policy that SGLang does not have": (f"{LAUNCH} --schedule-policy sooner", "--schedule-policy"),
    "graphs of no phase": (f"{LAUNCH} --cuda-graph-config '{{\"both\": {{}}}}'", "--cuda-graph-config"),
    "graphs that are a list": (f"{LAUNCH} --cuda-graph-config '[1]'", "--cuda-graph-config"),
    "a diffusion server": ("sglang serve llama-3.1-8b --model-type diffusion", "--model-type"),
    "a variable of SGLang's degree": (f"{LAUNCH} --tp $N", "$N"),
    "a flag that trtllm-serve does not have": (f"{TRTLLM} --tp-size 2", "--tp_size"),
    "a beginning of a flag of trtllm-serve": (f"{TRTLLM} --max_batch 2", "--max_batch_size"),
    "another command of trtllm-serve": ("trtllm-serve disaggregated -c x.yaml", "x.yaml"),
    "the TensorRT backend": (f"{TRTLLM} --backend trt", "--backend"),
    "trtllm-serve without a model": ("trtllm-serve --tp_size 2", "no model"),
    "beams": (f"{TRTLLM} --max_beam_width 4", "--max_beam_width"),
    "context parallelism of TensorRT-LLM": (f"{TRTLLM} --cp_size 2", "--cp_size"),
    "options that are not there": (f"{TRTLLM} --extra_llm_api_options gone.yaml", "gone.yaml"),
    "options with a wrong field": (f"echo 'kv_cache: 1' > a.yaml; {TRTLLM} --config a.yaml", "kv_cache"),
    "options with a wrong part": (
        f"echo 'kv_cache_config: {{dtypes: fp8}}' > a.yaml; {TRTLLM} --config a.yaml", "kv_cache_config.dtypes"
    ),
    "options that are a list": (f"echo '[1]' > a.yaml; {TRTLLM} --config a.yaml", "a.yaml"),
    "options of no group": (f"echo 'moe_config: 3' > a.yaml; {TRTLLM} --config a.yaml", "moe_config"),
    "options that are no YAML": (f"echo 'a: [' > a.yaml; {TRTLLM} --config a.yaml", "a.yaml"),
    "options with a bad switch": (
        f"echo 'enable_attention_dp: often' > a.yaml; {TRTLLM} --config a.yaml", "enable_attention_dp"
    ),
    "a benchmark of nothing": (f"{BENCH} build --tp 2", "trtllm-bench build"),
    "a benchmark of an engine": (f"{BENCH} throughput --engine_dir /x", "--engine_dir"),
    "servers of two engines": (f"{LAUNCH} & {TRTLLM}", "engines"),
}  # fmt: skip
POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: server
      image: vllm/vllm-openai:v0.24.0
      args: [--model, llama-3.1-70b, --tensor-parallel-size, "4"]
      resources: {limits: {nvidia.com/gpu: 4}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 1
  template:
    spec:
      containers: [{name: server, image: "vllm/vllm-openai:v0.24.0", args: [--model, llama-3.1-8b]}]
"""
FILES: dict[str, tuple[str, Content, str]] = {
    "a truncated manifest": ("pod.yaml", POD[:-20], "pod.yaml"),
    "a manifest cut in its list": ("pod.yaml", POD[: POD.index("--tensor")], "pod.yaml line"),
    "a manifest with fewer chips": ("pod.yaml", POD.replace("gpu: 4", "gpu: 2"), "container server"),
    "a manifest with a wrong flag": ("pod.yaml", POD.replace("--tensor-", "--tensr-"), "container server"),
    "a manifest of unknown chips": (
        "pod.yaml", POD.replace("spec:", "spec:\n  nodeSelector: {nvidia.com/gpu.product: H9000}", 1), "H9000"
    ),
    "a manifest with a variable from elsewhere": (
        "pod.yaml", POD.replace('"4"', "$(TP)").replace("gpu: 4", "gpu: 1"), "$(TP)"
    ),
    "replicas below zero": (
        "d.yaml", "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: -1}\n", "spec.replicas"
    ),
    "no replicas": (
        "d.yaml",
        DEPLOYMENT.replace("replicas: 1", "replicas: 0"),
        "no replicas",
    ),
    "a manifest without a server": ("s.yaml", "apiVersion: v1\nkind: Service\nspec: {}\n", "no server"),
    "an alias": ("a.yaml", "a: &x {b: 1}\nc: *x\n", "aliases"),
    "a plan": ("plan.yaml", "schema: gnomon.plan/1\nmodel: llama-3.1-8b\n", "gnomon.plan/1"),
    "fields of nothing we know": ("x.yaml", "colour: green\nsize: 4\n", "colour"),
    "a list": ("x.yaml", "- a\n- b\n", "a list"),
    "binary": ("launch.sh", bytes(range(256)) * 8, "launch.sh line 2"),
    "zeros": ("launch.sh", b"vllm serve\0llama-3.1-8b", "characters"),
    "a huge file": ("launch.sh", b"#" * (2 << 20), "larger than"),
    "a huge manifest": ("x.yaml", b"a: b\n" * (1 << 19), "larger than"),
    "an empty script": ("launch.sh", "", "no server"),
    "an empty manifest": ("x.yaml", "", "no server"),
    "a script with a quote": ("launch.sh", f"#!/bin/bash\n{SERVE} \\\n  --port '80\n", "launch.sh line 3"),
    "a script that only talks": ("launch.sh", f"echo {SERVE}\n", "no server"),
    "a folder": ("launch.sh", folder, "a folder"),
    "a pipe": ("launch.sh", pipe, "plain file"),
    "a service of unknown words": (
        "compose.yaml", "services:\n  a: {image: 'vllm/vllm-openai:v0.24.0', command: \"--model 'x\"}\n", "service a"
    ),
}  # fmt: skip


def cases() -> Iterator[Case]:
    for name, (command, place) in (COMMANDS | OTHER_ENGINES).items():
        yield Case(name=f"import, {name}", words=("import", command, *ON), place=place)
    yield Case(name="import, no chip", words=("import", SERVE), place="--on")
    yield Case(name="import, no such chip", words=("import", SERVE, "--on", "H9000"), place="--on")
    yield Case(name="import, chips left over", words=("import", f"{SERVE} -tp 2", "--on", "H100:3"), place="--on")
    for name, (file, content, place) in FILES.items():
        chips = () if "unknown chips" in name else ON
        yield Case(name=f"import, {name}", words=("import", file, *chips), place=place, files={file: content})
