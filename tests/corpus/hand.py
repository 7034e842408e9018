"""Inputs broken by hand: one thing each, with the place that the error must name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from tests.corpus import case
from tests.corpus.bases import BASES, BESIDE, CHIP, CLUSTER, CONFIG, MODEL, PLAN, SHAPES, TABLE, TRACE
from tests.corpus.case import Case, Content
from tests.words import replaced

TOUCH = "!!python/object/apply:os.system ['touch ran']"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"


class Reduced:
    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, ("touch ran",)


ANY: dict[str, Content] = {
    "empty": "",
    "binary": bytes(range(256)),
    "not text": b"\xff\xfe\x00a\x00b",
    "pickle": pickle.dumps(Reduced()),
    "folder": case.folder,
    "pipe": case.pipe,
    "loop": case.link_to_itself,
    "device": case.device,
    "dangling": case.dangling,
    "huge": case.hole,
    "another format": "%PDF-1.7\n1 0 obj\n<< >>\n",
}
"""What no file of any kind may be."""
ANY_YAML: dict[str, str] = {
    "code": f"name: {TOUCH}\n",
    "code in a key": f"? {TOUCH}\n: 1\n",
    "object": "name: !!python/object/new:subprocess.Popen [['touch', 'ran']]\n",
    "module": "name: !!python/module:antigravity\n",
    "name": "name: !!python/name:os.system\n",
    "own tag": "name: !mine 3\n",
    "bomb": BOMB,
    "deep": "a: " + "[" * 3000 + "]" * 3000 + "\n",
    "list": "- 1\n- 2\n",
    "scalar": "just words\n",
    "twice": "schema: a\nschema: b\n",
    "two documents": "schema: a\n---\nschema: b\n",
    "unclosed": "schema: [a\n",
    "tab": "schema:\n\t- a\n",
    "other schema": "schema: gnomon.other/9\n",
    "no schema": "colour: blue\n",
    "date": "schema: 2026-13-45\n",
}
"""What no YAML file may be, whatever it describes."""
ANY_JSON: dict[str, str] = {
    "deep": '{"a":' * 100_000,
    "list": "[1, 2]",
    "null": "null",
    "number": "1e999",
    "cut": '{"model_type": "llama", "hidden_size": 6',
    "twice": '{"model_type": "llama", "model_type": "llama"}',
    "comment": '{"model_type": "llama" /* here */}',
    "single quotes": "{'model_type': 'llama'}",
    "long number": '{"model_type": "llama", "hidden_size": ' + "9" * 6000 + "}",
    "nothing": "{}",
}

CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "no hidden": ({"hidden_size": None}, "field hidden_size"),
    "nan": ({"hidden_size": float("nan")}, "field hidden_size"),
    "endless": ({"num_hidden_layers": float("inf")}, "field num_hidden_layers"),
    "many layers": ({"num_hidden_layers": 10**9}, "field num_hidden_layers"),
    "long vocabulary": ({"vocab_size": 10**30}, "field vocab_size"),
    "negative": ({"intermediate_size": -5}, "field intermediate_size"),
    "text": ({"hidden_size": "64"}, "field hidden_size"),
    "truth": ({"num_attention_heads": True}, "field num_attention_heads"),
    "uneven heads": ({"num_key_value_heads": 3}, "field num_key_value_heads"),
    "unknown": ({"architectures": ["EvilForCausalLM"], "model_type": "evil"}, "config.json"),
    "unicode": ({"architectures": ["\u202eLlama\u0000"], "model_type": "\U0001f525"}, "config.json"),
    "remote code": ({"architectures": ["Mine"], "auto_map": {"AutoModel": "run.Me"}}, "config.json"),
    "list for a number": ({"vocab_size": [1000]}, "field vocab_size"),
    "mapping for a number": ({"vocab_size": {"a": 1}}, "field vocab_size"),
}
CHIPS: dict[str, tuple[str, str, str]] = {
    "negative rate": ("bf16: 989.4", "bf16: -1", "rates_tflops"),
    "no rate": ("{fp32: 67, bf16: 989.4, fp16: 989.4}", "{}", "rates_tflops"),
    "unknown format": ("fp32: 67", "fp33: 67", "fp33"),
    "nan": ("memory_gb_s: 3352", "memory_gb_s: .nan", "memory_gb_s"),
    "endless": ("memory_gb_s: 3352", "memory_gb_s: .inf", "memory_gb_s"),
    "huge": ("tdp_w: 700", "tdp_w: 1.0e+300", "tdp_w"),
    "text": ("processors: 132", "processors: many", "processors"),
    "half a processor": ("processors: 132", "processors: 1.5", "processors"),
    "truth": ("l2_mib: 50", "l2_mib: yes", "l2_mib"),
    "unknown node": ("node: DGX-H100", "node: DGX-H9", "DGX-H9"),
    "unknown field": ("year: 2022", "yaer: 2022", "yaer"),
    "missing": ("memory_mib: 81559\n", "", "memory_mib"),
    "confidence": ("confidence: estimated", "confidence: sure", "confidence"),
    "shipped name": ("name: my-chip", "name: H100", "name"),
    "name of control characters": ("name: my-chip", 'name: "a\\nb"', "name"),
    "unit": ("memory_gb_s: 3352", "memory_gb_s: 3.3TB/s", "memory_gb_s"),
    "idle above the limit": ("idle_w: 70", "idle_w: 7000", "idle_w"),
    "code": ("vendor: NVIDIA", f"vendor: {TOUCH}", "chip.yaml line 3"),
}
CLUSTERS: dict[str, tuple[str, str, str]] = {
    "unknown chip": ("chip: H100", "chip: H1000", "chip"),
    "no chip": ("chip: H100\n", "", "chip"),
    "no count": ("count: 64\n", "", "cluster.yaml"),
    "zero": ("count: 64", "count: 0", "count"),
    "fraction": ("count: 64", "count: 6.5", "count"),
    "huge": ("count: 64", "count: 100000000000", "count"),
    "text": ("count: 64", "count: all", "count"),
    "unknown link": ("scaleup: NVLink4", "scaleup: NVLink44", "scaleup"),
    "link without bandwidth": ("scaleup: NVLink4", "scaleup: {name: ours}", "scaleup"),
    "negative link": ("scaleup: NVLink4", "scaleup: {name: ours, gb_s: -1, latency_us: 1}", "scaleup"),
    "nan link": ("scaleup: NVLink4", "scaleup: {name: ours, gb_s: .nan, latency_us: 1}", "scaleup"),
    "no adapters": ("adapters: 2", "adapters: 0", "adapters"),
    "endlessly oversubscribed": ("oversubscription: 2", "oversubscription: 1.0e+300", "oversubscription"),
    "undersubscribed": ("oversubscription: 2", "oversubscription: 0.5", "oversubscription"),
    "unknown grid": ("grid: FR", "grid: Atlantis", "grid"),
    "price": ("price_usd_h: 2.1", "price_usd_h: free", "price_usd_h"),
    "unknown field": ("pod_nodes: 8", "pods: 8", "pods"),
    "code": ("grid: FR", f"grid: {TOUCH}", "cluster.yaml line 11"),
    "both counts": ("count: 64", "count: 64\nnodes: 17", "cluster.yaml"),
}
TABLES: dict[str, tuple[str, str, str]] = {
    "unknown operator": ("gemm,bf16", "gem,bf16", "line 2, column op"),
    "no operator": ("gemm,bf16", ",bf16", "line 2, column op"),
    "unknown format": ("gemm,bf16", "gemm,bf17", "line 2, column dtype"),
    "no format": ("gemm,bf16", "gemm,", "line 2, column dtype"),
    "format without a rate": ("gemm,bf16", "gemm,fp4", "line 2, column dtype"),
    "negative": ("128,4096,4096", "-128,4096,4096", "line 2, column m"),
    "zero": ("128,4096,4096", "128,0,4096", "line 2, column n"),
    "fraction": ("128,4096,4096", "128,4096,4.5", "line 2, column k"),
    "nan": ("128,4096,4096", "nan,4096,4096", "line 2, column m"),
    "endless": ("128,4096,4096", "inf,4096,4096", "line 2, column m"),
    "words": ("128,4096,4096", "128,many,4096", "line 2, column n"),
    "formula": ("128,4096,4096", "128,=cmd|' /C calc'!A0,4096", "line 2, column n"),
    "hexadecimal": ("128,4096,4096", "0x80,4096,4096", "line 2, column m"),
    "unicode digits": ("128,4096,4096", "12\u00b2,4096,4096", "line 2, column m"),
    "overflow": ("128,4096,4096", "1e200,1e200,4096", "line 2"),
    "missing": ("128,4096,4096", "128,4096,", "line 2, column k"),
    "more fields": ("128,4096,4096", "128,4096,4096,,,,,,,,,,,,,,,,,,7", "line 2"),
    "topk": ("64,2048,768,128,8", "64,2048,768,128,129", "line 3, column topk"),
    "heads": ("1,32,8,512,900", "1,30,8,512,900", "line 4, column kv_heads"),
    "more new than keys": ("1,32,8,512,900", "1,32,8,901,900", "line 4, column q_len"),
    "ranks": ("1048576,8", "1048576,0", "line 5, column ranks"),
    "many ranks": ("1048576,8", "1048576,1e12", "line 5, column ranks"),
    "no bytes": ("1048576,8", "0,8", "line 5, column bytes"),
    "many bytes": ("1048576,8", "1e308,8", "line 5, column bytes"),
    "large": ("128,4096,4096", "1e19,4096,4096", "line 2, column m"),
    "negative bytes": ("1048576,8", "-1,8", "line 5, column bytes"),
    "column twice": ("op,dtype,m,n", "op,dtype,m,m", "table.csv"),
    "no dtype": ("op,dtype", "op,type", "table.csv"),
    "no op": ("op,dtype", "kind,dtype", "table.csv"),
    "open quote": ("gemm,bf16", '"gemm,bf16', "table.csv"),
    "zero byte": ("gemm,bf16", "ge\0mm,bf16", "table.csv"),
}
OPTIONS: dict[str, tuple[str, str, str]] = {
    "causal": ("attention_prefill,bf16,1,8,8,64,64,64", "causal=2", "column causal"),
    "window": ("attention_prefill,bf16,1,8,8,64,64,64", "window=-4", "column window"),
    "window word": ("attention_decode,bf16,1,8,8,1,64,64", "window=wide", "column window"),
    "engine": ("attention_decode,bf16,1,8,8,1,64,64", "engine=tensorrt", "column engine"),
    "engine version": ("attention_decode,bf16,1,8,8,1,64,64", "engine=vllm@99", "column engine"),
    "sustained": ("attention_decode,bf16,1,8,8,1,64,64", "sustained=forever", "column sustained"),
    "nodes": ("attention_decode,bf16,1,8,8,65,64,64", "window=0", "column q_len"),
}
TRACES: dict[str, tuple[str, str, str]] = {
    "negative": ("0.5,200,6", "0.5,200,-6", "line 3, column output_tokens"),
    "zero": ("0.5,200,6", "0.5,0,6", "line 3, column input_tokens"),
    "fraction": ("0.5,200,6", "0.5,200.5,6", "line 3, column input_tokens"),
    "nan": ("0.5,200,6", "nan,200,6", "line 3, column arrival_s"),
    "endless": ("0.5,200,6", "inf,200,6", "line 3, column arrival_s"),
    "thousands with commas": ("1,300,7", "1,1,300,7", "line 4"),
    "words": ("0.5,200,6", "soon,200,6", "line 3, column arrival_s"),
    "missing": ("0.5,200,6", "0.5,200", "line 3"),
    "more fields": ("0.5,200,6", "0.5,200,6,7,8", "line 3"),
    "huge": ("0.5,200,6", "0.5,1e300,6", "line 3, column input_tokens"),
    "too long": ("0.5,200,6", "0.5,999999999,6", "trace.csv"),
    "columns": ("arrival_s,input_tokens", "when,what", "trace.csv"),
    "no rows": ("0,100,5\n0.5,200,6\n1,300,7\n", "", "trace.csv"),
}
PLANS: dict[str, tuple[str, str, str]] = {
    "unknown model": (f"model: {MODEL}", "model: gpt-99", "gpt-99"),
    "unknown chip": ("chip: H100-SXM-80GB", "chip: Z9000", "chip"),
    "no replicas": ("replicas: 1", "replicas: 0", "replicas"),
    "many replicas": ("replicas: 1", "replicas: 1e99", "replicas"),
    "no tp": ("{tp: 1}", "{tp: 0}", "tp"),
    "odd tp": ("{tp: 1}", "{tp: 7}", "tp"),
    "unknown degree": ("{tp: 1}", "{tp: 1, zp: 2}", "zp"),
    "format": ("dtype: bf16\nkv", "dtype: fp7\nkv", "dtype"),
    "engine": ("name: vllm", "name: ollama", "engine"),
    "version": ("version: 0.24.0", "version: 9.9.9", "version"),
    "setting": ("version: 0.24.0", "version: 0.24.0, settings: {max_seqs: 1}", "max_seqs"),
    "setting value": ("version: 0.24.0", "version: 0.24.0, settings: {max_num_seqs: -1}", "max_num_seqs"),
    "goal": ("{ttft_p90: 1s}", "{ttft_p99.9: 1s}", "goals"),
    "goal time": ("{ttft_p90: 1s}", "{ttft_p90: fast}", "goals"),
    "goal zero": ("{ttft_p90: 1s}", "{ttft_p90: 0s}", "goals"),
    "rate": ("rate_per_s: 8.0", "rate_per_s: -8", "rate_per_s"),
    "nan rate": ("rate_per_s: 8.0", "rate_per_s: .nan", "rate_per_s"),
    "field": ("replicas: 1", "replica: 1", "replica"),
    "code": ("dtype: bf16\nkv", f"dtype: {TOUCH}\nkv", "plan.yaml line 6"),
}
SOFTMAX = "kind: attention, heads: 4, kv_heads: 2, head_dim: 64"
SPACE = "kind: mamba2, heads: 16, head_dim: 32, state: 64"
GATED = "kind: gated_delta, value_heads: 4, key_dim: 64, value_dim: 64"
LATENT = "kind: latent, heads: 4, kv_rank: 64, nope_dim: 64, rope_dim: 32, value_dim: 64"
DENSE, MOE = "kind: dense, inner: 512", "kind: moe, experts: 8, topk: 2, inner: 64"
SHAPE_FILES: dict[str, tuple[str, str, str]] = {
    "no hidden": ("hidden: 256\n", "", "hidden"),
    "negative": ("hidden: 256", "hidden: -256", "hidden"),
    "huge": ("vocab: 1000", "vocab: 1000000000000000000000", "vocab"),
    "no blocks": ("blocks:\n- count: 2", "blocks: []\nignored:\n- count: 2", "shapes.yaml"),
    "many": ("count: 2", "count: 100000000", "field blocks"),
    "kind": ("kind: attention", "kind: telepathy", "kind"),
    "no kind": ("kind: attention, ", "", "kind"),
    "uneven": ("kv_heads: 2", "kv_heads: 3", "field blocks[0]"),
    "unknown field": ("inner: 512", "inner: 512, outer: 3", "outer"),
    "nan": ("inner: 512", "inner: .nan", "inner"),
    "text": ("inner: 512", "inner: wide", "inner"),
    "code": ("hidden: 256", f"hidden: {TOUCH}", "shapes.yaml line 2"),
    "no window": ("head_dim: 64", "head_dim: 64, window: 0", "field blocks[0].mixer.window"),
    "expert groups": (DENSE, f"{MOE}, groups: 3", "field blocks[0].ffn.groups"),
    "many expert groups": (DENSE, f"{MOE}, groups: 2, topk_groups: 4", "field blocks[0].ffn.topk_groups"),
    "drafts": (
        "blocks:",
        f"mtp:\n- {{count: 1, mixer: {{{GATED}, key_heads: 3}}}}\nblocks:",
        "field mtp[0].mixer.key_heads",
    ),
    **{
        f"{name}: {field}": (SOFTMAX, f"{mixer}, {field}", f"field blocks[0].mixer.{field.partition(':')[0]}")
        for name, mixer, field in (
            ("state space", SPACE, "conv: 0"),
            ("state space", SPACE, "groups: 0"),
            ("state space", SPACE, "groups: 7"),
            ("state space", SPACE, "chunk: 0"),
            ("delta rule", GATED, "conv: 0, key_heads: 2"),
            ("delta rule", GATED, "key_heads: 3"),
            ("convolution", "kind: short_convolution, width: 256", "conv: 0"),
            ("latent", LATENT, "q_rank: 0"),
        )
    },
}

SERVE = f"simulate serve {MODEL} --on H100 --rate 4 --input 64 --output 8 --requests 5"
TRAIN = f"simulate train {MODEL} --on H100:4 --seq 1024 --global-batch 8"
FLAGS: dict[str, tuple[str, str]] = {
    "unknown command": ("frobnicate", "frobnicate"),
    "unknown flag": (f"predict {MODEL} --on H100 --colour blue", "--colour"),
    "no chip": (f"predict {MODEL}", "--on"),
    "unknown chip": (f"predict {MODEL} --on H1000", "--on"),
    "count of zero": (f"predict {MODEL} --on H100:0", "--on"),
    "count of words": (f"predict {MODEL} --on H100:two", "--on"),
    "two pools": (f"predict {MODEL} --on H100,H200", "--on"),
    "unicode chip": (f"predict {MODEL} --on \u202eH100\U0001f4a5", "--on"),
    "no batch": (f"predict {MODEL} --on H100 --batch 0", "--batch"),
    "batch nan": (f"predict {MODEL} --on H100 --batch nan", "--batch"),
    "huge batch": (f"predict {MODEL} --on H100 --batch 1e40", "--batch"),
    "negative context": (f"predict {MODEL} --on H100 --context -1", "--context"),
    "long context": (f"predict {MODEL} --on H100 --context 1e9", "--context"),
    "phase": (f"predict {MODEL} --on H100 --phase sideways", "--phase"),
    "no tokens": (f"predict {MODEL} --on H100 --phase prefill", "--tokens"),
    "format": (f"predict {MODEL} --on H100 --dtype fp7", "--dtype"),
    "engine": (f"predict {MODEL} --on H100 --engine vlm", "engine"),
    "degree": (f"predict {MODEL} --on H100:4 --tp 3", "tp"),
    "setting": (f"predict {MODEL} --on H100 --set speed=9", "speed"),
    "setting value": (f"predict {MODEL} --on H100 --set max_num_seqs=-1", "max_num_seqs"),
    "setting form": (f"predict {MODEL} --on H100 --set max_num_seqs", "--set"),
    "unknown model": ("predict gpt-99 --on H100", "gpt-99"),
    "no such folder": ("predict ./nowhere --on H100", "nowhere"),
    "path above": ("predict ../../../../../../etc/passwd --on H100", "passwd"),
    "device": ("predict /dev/zero --on H100", "/dev/zero"),
    "table device": ("ops /dev/zero --on H100", "/dev/zero"),
    "trace device": (f"simulate serve {MODEL} --on H100 --trace /dev/zero", "/dev/zero"),
    "plan device": ("export /dev/urandom", "/dev/urandom"),
    "fit context": (f"fit {MODEL} --on H100 --context 0", "--context"),
    "rate": (f"{SERVE} --rate 0", "--rate"),
    "rate nan": (f"{SERVE} --rate nan", "--rate"),
    "input": (f"{SERVE} --input -3", "--input"),
    "requests": (f"{SERVE} --requests 1e12", "--requests"),
    "seed": (f"{SERVE} --seed -1", "--seed"),
    "no load": (f"simulate serve {MODEL} --on H100", "--input"),
    "goal": (f"plan serve {MODEL} --fleet H100:1 --rate 1 --input 8 --output 8 --slo ttft_p90=soon", "--slo"),
    "goal form": (f"plan serve {MODEL} --fleet H100:1 --rate 1 --input 8 --output 8 --slo quick", "--slo"),
    "objective": (f"plan serve {MODEL} --fleet H100:1 --rate 1 --input 8 --output 8 --objective joy", "--objective"),
    "fleet": (f"plan serve {MODEL} --fleet H100:1,H100:2 --rate 1 --input 8 --output 8", "--fleet"),
    "zero": (f"{TRAIN} --zero 9", "--zero"),
    "schedule": (f"{TRAIN} --schedule waltz", "--schedule"),
    "format of no product": ("predict dit-xl-2-256 --on V100 --dtype int4", "--dtype"),
    "format of an encoder": ("predict bert-base --on H100 --tokens 128 --dtype int4", "--dtype"),
    "format in training": (f"{TRAIN} --on V100:4 --dtype bf16", "--dtype"),
    "format in a plan": ("plan train llama-3.2-1b --cluster V100:8 --seq 512 --global-batch 8 --dtype fp8", "--dtype"),
    "recompute": (f"{TRAIN} --recompute all", "--recompute"),
    "optimizer": (f"{TRAIN} --optimizer magic", "--optimizer"),
    "global batch": (f"{TRAIN} --global-batch 7 --dp 4", "--global-batch"),
    "sequence": (f"{TRAIN} --seq 0", "--seq"),
    "target": ("export plan.yaml --to helm", "helm"),
    "run": ("export last", "history"),
    "explain": ("explain nothing-1234", "nothing-1234"),
    "chip shown": ("chips show H1000", "H1000"),
    "model shown": ("models show gpt-99", "gpt-99"),
    "memory": ("chips --memory lots", "--memory"),
    "paper shown": ("papers show no-such-paper", "no-such-paper"),
    "paper not re-derived": ("papers run cuda", "cuda"),
    "paper's topic": ("papers --topic cats", "--topic"),
    "history": ("history --limit zero", "--limit"),
    "new chip": ("chips new X --like H1000 --out x.yaml", "--like"),
}


def _changed(kind: str, cases: dict[str, tuple[str, str, str]], base: str) -> Iterator[Case]:
    file, _, words = BASES[kind]
    for name, (old, new, place) in cases.items():
        assert base.count(old) == 1, (kind, name)
        files: dict[str, Content] = {**BESIDE, file: base.replace(old, new)}
        yield Case(name=f"{kind}: {name}", words=words, place=place, files=files)


def _whole(kind: str, contents: Mapping[str, Content]) -> Iterator[Case]:
    file, _, words = BASES[kind]
    for name, content in contents.items():
        yield Case(name=f"{kind}: {name}", words=words, place=file, files={**BESIDE, file: content})


def _options() -> Iterator[Case]:
    columns = "op,dtype,batch,heads,kv_heads,q_len,kv_len,head_dim"
    for name, (row, extra, place) in OPTIONS.items():
        column, _, value = extra.partition("=")
        text = f"{columns},{column}\n{row},{value}\n"
        yield Case(name=f"table option: {name}", words=BASES["table"][2], place=place, files={"table.csv": text})


def cases() -> Iterator[Case]:
    for kind in BASES:
        yield from _whole(kind, {f"any file, {name}": content for name, content in ANY.items()})
    for kind in ("chip", "cluster", "plan", "shapes"):
        yield from _whole(kind, {f"any yaml, {name}": text for name, text in ANY_YAML.items()})
    yield from _whole("config", {f"any json, {name}": text for name, text in ANY_JSON.items()})
    for name, (changes, place) in CONFIGS.items():
        file, _, words = BASES["config"]
        text = json.dumps(CONFIG | changes)
        yield Case(name=f"config: {name}", words=words, place=place, files={file: text})
    yield from _changed("chip", CHIPS, CHIP)
    yield from _changed("cluster", CLUSTERS, CLUSTER)
    yield from _changed("table", TABLES, TABLE)
    yield from _options()
    yield from _changed("trace", TRACES, TRACE)
    yield from _changed("plan", PLANS, PLAN)
    yield from _changed("shapes", SHAPE_FILES, SHAPES)
    for name, (words_, place) in FLAGS.items():
        yield Case(name=f"flags: {name}", words=tuple(replaced(words_).split()), place=place, files={"plan.yaml": PLAN})
