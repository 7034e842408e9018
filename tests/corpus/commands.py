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
    for name, (command, place) in COMMANDS.items():
        yield Case(name=f"import, {name}", words=("import", command, *ON), place=place)
    yield Case(name="import, no chip", words=("import", SERVE), place="--on")
    yield Case(name="import, no such chip", words=("import", SERVE, "--on", "H9000"), place="--on")
    yield Case(name="import, chips left over", words=("import", f"{SERVE} -tp 2", "--on", "H100:3"), place="--on")
    for name, (file, content, place) in FILES.items():
        chips = () if "unknown chips" in name else ON
        yield Case(name=f"import, {name}", words=("import", file, *chips), place=place, files={file: content})
