"""A corpus of broken inputs. Each answers with one line that names the file and the field, and nothing else happens."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from gnomon import load
from gnomon.errors import GnomonError
from gnomon.load import files
from gnomon.load.fields import Fields
from gnomon.load.hf import shapes

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}
MOE = CONFIG | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}

GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 64,
    "n_head": 8,
    "n_layer": 2,
    "n_positions": 128,
    "vocab_size": 1000,
}


def _config(**changes: Any) -> bytes:
    return json.dumps({key: value for key, value in (CONFIG | changes).items() if value != "DROP"}).encode()


CONFIGS = {
    "empty": (b"", "line 1, column 1: is not JSON"),
    "no-json": (b"hello", "is not JSON"),
    "cut-off": (_config()[:40], "is not JSON"),
    "trailing-comma": (b'{"a": 1,}', "is not JSON"),
    "a-list": (b"[1, 2]", "holds a list"),
    "a-number": (b"12", "holds a number"),
    "null": (b"null", "holds nothing"),
    "deep": (b'{"a":' * 100_000, "nested too deeply"),
    "deep-list": (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "key-twice": (b'{"hidden_size": 1, "hidden_size": 2}', "'hidden_size' is given twice"),
    "latin-1": ('{"model_type": "ll\u00e4ma"}'.encode("latin-1"), "is not UTF-8"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "is not UTF-8"),
    "binary": (bytes(range(256)), "is not UTF-8"),
    "too-large": (b" " * (4 * 1024**2 + 1), "is larger than 4 MiB"),
    "endless-number": (b'{"hidden_size": ' + b"9" * 5000 + b"}", "number that is too long"),
    "no-architecture": (_config(architectures="DROP"), "field model_type: is missing"),
    "architecture-null": (_config(architectures=None), "field model_type: is missing"),
    "architecture-text": (_config(architectures="LlamaForCausalLM"), "is not a list"),
    "two-architectures": (_config(architectures=["A", "B"]), "is not one architecture"),
    "architecture-number": (_config(architectures=[3]), "is not one architecture"),
    "unknown-architecture": (_config(architectures=["RwkvForCausalLM"]), "'RwkvForCausalLM' is not supported"),
    "unknown-type": (_config(architectures="DROP", model_type="rwkv"), "field model_type: the architecture 'rwkv'"),
    "no-hidden": (_config(hidden_size="DROP"), "field hidden_size: is missing"),
    "hidden-zero": (_config(hidden_size=0), "field hidden_size: 0 is not a positive whole number"),
    "hidden-text": (_config(hidden_size="64"), "field hidden_size: '64' is not a positive whole number"),
    "hidden-float": (_config(hidden_size=64.5), "field hidden_size: 64.5"),
    "hidden-true": (_config(hidden_size=True), "field hidden_size: True"),
    "hidden-huge": (_config(hidden_size=10**12), "is more than"),
    "hidden-odd": (_config(hidden_size=63), "63 is not a multiple of 8 heads"),
    "layers-negative": (_config(num_hidden_layers=-1), "field num_hidden_layers: -1"),
    "layers-too-many": (_config(num_hidden_layers=10**9), "field num_hidden_layers"),
    "heads-uneven": (_config(num_key_value_heads=3), "cannot share 3 key-value heads"),
    "heads-list": (_config(num_attention_heads=[8]), "field num_attention_heads: [8]"),
    "head-dim-zero": (_config(head_dim=0), "field head_dim"),
    "no-vocab": (_config(vocab_size=None), "field vocab_size: is missing"),
    "no-context": (_config(max_position_embeddings="DROP"), "field max_position_embeddings: is missing"),
    "tied-maybe": (_config(tie_word_embeddings="maybe"), "'maybe' is not true or false"),
    "bias-number": (_config(attention_bias=1), "field attention_bias: 1 is not true or false"),
    "dtype-strange": (_config(torch_dtype="float7"), "field torch_dtype: the number format 'float7'"),
    "dtype-number": (_config(dtype=16), "field dtype: 16 is not a text"),
    "quantised": (_config(quantization_config={"bits": 4}), "field quantization_config.quant_method: is missing"),
    "window-text": (_config(architectures=["MistralForCausalLM"], sliding_window="4k"), "field sliding_window"),
    "too-few-experts": (
        _config(**MOE | {"num_experts": 1}),
        "num_experts_per_tok: 2 experts per token of only 1",
    ),
    "no-expert-size": (_config(**MOE | {"moe_intermediate_size": None}), "field moe_intermediate_size: is missing"),
    "sparse-step-zero": (_config(**MOE | {"decoder_sparse_step": 0}), "field decoder_sparse_step: 0"),
    "dense-layers-text": (_config(**MOE | {"mlp_only_layers": "none"}), "field mlp_only_layers: 'none' is not a list"),
    "dense-layers-mixed": (_config(**MOE | {"mlp_only_layers": [1.5, "a", {}]}), "1.5 is not a layer index"),
    "dense-layers-true": (_config(**MOE | {"mlp_only_layers": [True]}), "field mlp_only_layers: True"),
    "dense-layers-negative": (_config(**MOE | {"mlp_only_layers": [-1]}), "field mlp_only_layers: -1"),
    "long-value": (_config(hidden_size="x" * 500), "..."),
    "gpt2-no-width": (_config(**GPT2 | {"n_embd": None}), "field n_embd: is missing"),
    "gpt2-uneven": (_config(**GPT2 | {"n_head": 7}), "field n_embd: 64 is not a multiple of 7 heads"),
    "gpt2-no-layers": (_config(**GPT2 | {"n_layer": 0}), "field n_layer: 0 is not a positive whole number"),
    "gpt2-many-layers": (_config(**GPT2 | {"n_layer": 10**9}), "field n_layer"),
    "gpt2-positions-text": (_config(**GPT2 | {"n_positions": "2k"}), "field n_positions: '2k'"),
    "gpt2-inner-negative": (_config(**GPT2 | {"n_inner": -4}), "field n_inner: -4"),
    "gpt2-crossed": (_config(**GPT2 | {"add_cross_attention": True}), "field add_cross_attention: cross-attention"),
    "gpt2-quantised": (_config(**GPT2 | {"quantization_config": {}}), "quantization_config.quant_method: is missing"),
}

HEADER = b"arrival_s,input_tokens,output_tokens\n"
STAMPED = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
TRACES = {
    "empty": (b"", "line 1: has no column input_tokens"),
    "header-only": (HEADER, "has no requests"),
    "blank-rows": (HEADER + b"\n\n", "has no requests"),
    "no-header": (b"0,1,2\n1,2,3\n", "has no column input_tokens"),
    "no-output": (b"arrival_s,input_tokens\n0,1\n", "has no column output_tokens"),
    "column-twice": (b"arrival_s,input_tokens,output_tokens,ContextTokens\n", "input_tokens is given twice"),
    "semicolons": (b"arrival_s;input_tokens;output_tokens\n0;1;2\n", "has no column input_tokens"),
    "negative": (HEADER + b"0,1,2\n0,1,-3\n", "line 3, column output_tokens: '-3' is not a positive whole number"),
    "zero": (HEADER + b"0,0,2\n", "line 2, column input_tokens: '0'"),
    "fraction": (HEADER + b"0,1.5,2\n", "line 2, column input_tokens: '1.5'"),
    "word": (HEADER + b"0,1,2\n0,many,2\n", "line 3, column input_tokens: 'many'"),
    "hash": (HEADER + b"0,1,2 # two\n", "line 2, column output_tokens: '2 # two'"),
    "empty-cell": (HEADER + b"0,,2\n", "line 2, column input_tokens: ''"),
    "short-row": (HEADER + b"0,1,2\n0,1\n", "line 3, column output_tokens: the line has only 2 cells"),
    "nan": (HEADER + b"0,nan,2\n", "line 2, column input_tokens: 'nan'"),
    "infinite": (HEADER + b"0,1,inf\n", "line 2, column output_tokens: 'inf'"),
    "huge": (HEADER + b"0,1,1e300\n", "line 2, column output_tokens: '1e300'"),
    "long-cell": (HEADER + b"0,1," + b"z" * 5000 + b"\n", "..."),
    "arrival-negative": (HEADER + b"-1,1,2\n", "line 2, column arrival_s: '-1' is not a time"),
    "arrival-nan": (HEADER + b"nan,1,2\n", "line 2, column arrival_s: 'nan'"),
    "arrival-far": (HEADER + b"1e12,1,2\n", "line 2, column arrival_s: '1e12' is more than"),
    "arrival-word": (HEADER + b"noon,1,2\n", "line 2, column arrival_s: 'noon'"),
    "after-blank": (HEADER + b"0,1,2\n\n\n0,1,x\n", "line 5, column output_tokens: 'x'"),
    "bad-stamp": (b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "column timestamp: 'yesterday'"),
    "empty-stamp": (b"TIMESTAMP,ContextTokens,GeneratedTokens\n,1,2\n", "column timestamp: ''"),
    "stamp-now": (STAMPED + b"now,1,2\n", "column timestamp: 'now'"),
    "stamp-year": (STAMPED + b"5,1,2\n", "column timestamp: '5'"),
    "stamp-early": (STAMPED + b"1600-01-01 00:00:00,1,2\n", "column timestamp: '1600"),
    "stamp-late": (STAMPED + b"99999-01-01,1,2\n", "column timestamp: '99999"),
    "stamp-offset": (STAMPED + b"2024-01-01 00:00:00+99:00,1,2\n", "column timestamp: '2024"),
    "stamp-tail": (
        STAMPED + b"2024-01-01 00:00:00" + b" " * 40 + b"x,1,2\n",
        "column timestamp: '2024-01-01 00:00:00 x'",
    ),
    "stamps-far-apart": (STAMPED + b"1950-01-01,1,2\n2199-01-01,1,2\n", "more than 1000000000 seconds apart"),
    "huge-cell": (HEADER + b"0,1," + b"9" * 3_000_000 + b"\n", "line 2: is longer than 65,536 letters"),
    "huge-quoted-cell": (HEADER + b'0,1,"' + b"9\n" * 300_000 + b'"\n', "load.csv"),
    "cr-only": (b"arrival_s,input_tokens,output_tokens\r0,1,x\r", "line 2, column output_tokens: 'x'"),
    "lengths-only": (b"input_tokens,output_tokens\n1,2\n", "has no column arrival_s"),
    "latin-1": (HEADER + b"0,1,2\n0,\xe4,2\n", "line 3: is not UTF-8"),
    "zeros": (b"\0" * 100, "has no column"),
    "zero-byte": (HEADER + b"0,1\x00,2\n", "load.csv line 2"),
    "open-quote": (HEADER + b'0,"1,2\n0,1,2\n', "load.csv line"),
}

PLAN = """\
schema: gnomon.plan/1
model: llama-3.1-8b
chip: H100
replicas: 1
strategy: {tp: 1}
dtype: bf16
kv_dtype: auto
engine: {name: vllm, version: "0.24"}
"""
PLANS = {
    "empty": ("", "holds nothing"),
    "text": ("hello", "holds a text"),
    "list": ("- a\n", "holds a list"),
    "not-yaml": ("a: [1\n", "is not plain YAML"),
    "tab": ("a:\n\tb: 1\n", "line 2"),
    "tag": (PLAN + "x: !!python/object/apply:os.system [ls]\n", "is not plain YAML"),
    "alias": ("a: &x [1]\nb: *x\n", "aliases (*x) are not allowed"),
    "laughs": ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", "aliases"),
    "deep": ("a: " + "[" * 5000, "nested too deeply"),
    "two-documents": (PLAN + "---\n" + PLAN, "more than one document"),
    "key-twice": (PLAN + "chip: H200\n", "line 9: the key 'chip' is given twice"),
    "inner-twice": (PLAN.replace("{tp: 1}", "{tp: 1, tp: 2}"), "the key 'tp' is given twice"),
    "number-key": (PLAN + "3: x\n", "the key 3 is not a text"),
    "list-key": (PLAN + "? [a]\n: x\n", "plan.yaml"),
    "impossible-date": (PLAN + "id: 2024-13-45\n", "plan.yaml"),
    "no-schema": (PLAN.replace("schema: gnomon.plan/1\n", ""), "field schema: is missing"),
    "old-schema": (PLAN.replace("plan/1", "plan/9"), "'gnomon.plan/9' is not gnomon.plan/1"),
    "no-model": (PLAN.replace("model: llama-3.1-8b\n", ""), "field model: is missing"),
    "unknown-field": (PLAN + "replcas: 2\n", "field replcas: unknown field. Did you mean 'replicas'?"),
    "unknown-inner": (PLAN.replace("tp: 1", "tpp: 1"), "field strategy.tpp: unknown field. Did you mean 'tp'?"),
    "unknown-engine-field": (PLAN.replace("name: vllm", "nam: vllm"), "field engine.nam: unknown field"),
    "unknown-load-field": (PLAN + "load: {rate: 3}\n", "field load.rate: unknown field. Did you mean 'rate_per_s'?"),
    "replicas-zero": (PLAN.replace("replicas: 1", "replicas: 0"), "field replicas: 0 is not a positive"),
    "replicas-text": (PLAN.replace("replicas: 1", "replicas: two"), "field replicas: 'two'"),
    "tp-fraction": (PLAN.replace("tp: 1", "tp: 1.5"), "field strategy.tp: 1.5"),
    "tp-true": (PLAN.replace("tp: 1", "tp: yes"), "field strategy.tp: True"),
    "tp-huge": (PLAN.replace("tp: 1", "tp: 9999999999"), "field strategy.tp: 9999999999 is more than"),
    "strategy-text": (PLAN.replace("{tp: 1}", "fast"), "field strategy: 'fast' is not a mapping"),
    "techniques-text": (PLAN.replace("tp: 1", "techniques: x"), "field strategy.techniques: 'x' is not a list"),
    "techniques-numbers": (PLAN.replace("tp: 1", "techniques: [1]"), "field strategy.techniques"),
    "version-number": (PLAN.replace('"0.24"', "0.24"), "field engine.version: 0.24 is not a text. Write it in quotes"),
    "model-empty": (PLAN.replace("llama-3.1-8b", "' '"), "field model: is empty"),
    "model-control": (PLAN.replace("llama-3.1-8b", '"a\\x07b"'), "field model"),
    "settings-list": (PLAN.replace("name: vllm", "settings: [1]"), "field engine.settings"),
    "rate-zero": (PLAN + "load: {rate_per_s: 0}\n", "field load.rate_per_s: 0 is not a number above zero"),
    "rate-huge": (PLAN + "load: {rate_per_s: 1.0e+308}\n", "rate_per_s: '1e+308' is not between 1e-06 and 1e+09"),
    "rate-tiny": (PLAN + "load: {rate_per_s: 1.0e-300}\n", "rate_per_s: '1e-300' is not between 1e-06 and 1e+09"),
    "rate-infinite": (PLAN + "load: {rate_per_s: .inf}\n", "field load.rate_per_s"),
    "tokens-negative": (PLAN + "load: {input_tokens: -5}\n", "field load.input_tokens: -5"),
    "goal-unknown": (PLAN + "goals: {tftt_p90: 1s}\n", "unknown goal 'tftt_p90'. Near: ttft_p90"),
    "goal-no-unit": (PLAN + "goals: {ttft_p90: '5'}\n", "ttft_p90: '5' has no unit"),
    "goal-list": (PLAN + "goals: {ttft_p90: [1]}\n", "field goals, ttft_p90: [1] is not a duration"),
    "goal-true": (PLAN + "goals: {ttft_p90: yes}\n", "field goals, ttft_p90: True is not a duration"),
    "goal-zero": (PLAN + "goals: {ttft_p90: 0s}\n", "is not above zero"),
    "goal-whole": (PLAN + "goals: {tpot_p90: 50}\n", "tpot_p90: 50 has no unit. Write '50ms' or '50s'"),
    "goal-fraction": (PLAN + "goals: {tpot_p90: 0.05}\n", "tpot_p90: 0.05 has no unit. Write '0.05ms' or '0.05s'"),
    "goal-no-figures": (PLAN + "goals: {tpot_p90: 0.05}\npredicted: {}\n", "tpot_p90: 0.05 has no unit"),
    "dtype": (PLAN.replace("bf16", "fp9"), "field dtype: unknown number format 'fp9'"),
    "kv-dtype": (PLAN.replace("auto", "banana"), "field kv_dtype: unknown number format 'banana'"),
    "per-node": (PLAN + "per_node: 1000000\n", "field per_node: 1000000 is more than 10000"),
    "checkpoint": (PLAN + "checkpoint: [a]\n", "field checkpoint: ['a'] is not a text"),
    "tokens-many": (PLAN + "load: {input_tokens: 1000000000, output_tokens: 1}\n", "input_tokens: 1000000000 is more"),
    "no-lengths": (PLAN + "load: {rate_per_s: 3}\n", "field load.input_tokens: is missing, and there is no trace"),
    "no-output": (PLAN + "load: {input_tokens: 3}\n", "field load.output_tokens: is missing, and there is no trace"),
    "trace-and-lengths": (PLAN + "load: {trace: a.csv, input_tokens: 3}\n", "a trace already gives the lengths"),
    "no-requests": (PLAN + "load: {input_tokens: 1, output_tokens: 1, requests: 0}\n", "field load.requests: 0"),
    "requests-many": (
        PLAN + "load: {input_tokens: 1, output_tokens: 1, requests: 99999999}\n",
        "field load.requests: 99999999 is more",
    ),
    "goals-text": (PLAN + "goals: ttft_p90=1s\n", "field goals: 'ttft_p90=1s' is not a mapping"),
    "predicted-list": (PLAN + "predicted: [1]\n", "field predicted"),
}

TYPED: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "chip": (load.parse_pool, "H1000", "--on: unknown chip 'H1000'. Near: H100-SXM-80GB"),
    "no-chip": (load.parse_pool, ":4", "--on: ':4' is not CHIP or CHIP:COUNT"),
    "empty-pool": (load.parse_pool, "", "--on: '' is not CHIP or CHIP:COUNT"),
    "no-count": (load.parse_pool, "H100:", "--on: 'H100:' is not CHIP or CHIP:COUNT"),
    "count-zero": (load.parse_pool, "H100:0", "--on: '0' is not a positive whole number"),
    "count-half": (load.parse_pool, "H100:1.5", "--on: '1.5' is not a positive whole number"),
    "count-word": (load.parse_pool, "H100:many", "--on: 'many' is not a count"),
    "count-huge": (load.parse_pool, "H100:1e12", "more than 10,000,000 chips"),
    "two-counts": (load.parse_pool, "H100:4:4", "--on: '4:4'"),
    "two-kinds": (load.parse_pool, "H100:4,H200:4", "more than one kind"),
    "two-kinds-together": (load.parse_pool, "H100:4+H200:4", "more than one kind"),
    "fleet-twice": (load.parse_fleet, "H100:4,H100-SXM:4", "names H100-SXM-80GB twice"),
    "fleet-comma": (load.parse_fleet, "H100:4,", "--fleet: '' is not CHIP"),
    "goal-form": (load.parse_goals, "ttft_p90", "--slo: 'ttft_p90' is not NAME=TIME"),
    "goal-name": (load.parse_goals, "ttft=1s", "--slo: unknown goal 'ttft'"),
    "goal-statistic": (load.parse_goals, "ttft_p91=1s", "--slo: unknown goal 'ttft_p91'"),
    "goal-unit": (load.parse_goals, "ttft_p90=1", "--slo, ttft_p90: '1' has no unit"),
    "goal-empty": (load.parse_goals, "ttft_p90=", "--slo, ttft_p90: '' is not a duration"),
    "goal-negative": (load.parse_goals, "ttft_p90=-1s", "--slo, ttft_p90"),
    "goal-zero": (load.parse_goals, "ttft_p90=0s", "is not above zero"),
    "goal-twice": (load.parse_goals, "ttft_p90=1s,ttft_p90=2s", "is given twice"),
    "setting-form": (lambda text: load.parse_settings([text]), "fast", "--set: 'fast' is not KEY=VALUE"),
    "setting-key": (lambda text: load.parse_settings([text]), "9 x=1", "is not KEY=VALUE"),
    "setting-twice": (lambda text: load.parse_settings([text, text]), "a=1", "'a' is set twice"),
    "setting-twice-folded": (lambda text: load.parse_settings(text.split()), "A-b=1 --a_B=2", "'a_B' is set twice"),
    "long-chip": (load.parse_pool, "x" * 5000, "…"),
    "model": (load.model, "llama-3.1-9b", "unknown model 'llama-3.1-9b'. Near: llama-3.1-8b"),
    "no-model": (load.model, "", "unknown model ''"),
    "hub-id": (load.model, "someone/some-model", "a folder with a config.json works too"),
    "no-file": (load.model, "./nothing.json", "nothing.json: no such file or folder"),
    "no-user": (load.model, "~nobody-here/x", "no such file or folder"),
    "long-name": (load.model, "x" * 5000, "File name too long"),
    "zero-byte": (load.model, "a\0b", "unknown model"),
    "no-trace": (load.requests, "nothing.csv", "nothing.csv: no such file"),
    "trace-zero-byte": (load.requests, "a\0b", "a"),
    "no-plan": (load.read_plan, "nothing.yaml", "nothing.yaml: no such file"),
}


def _one_line(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(GnomonError) as caught:
        call()
    text = str(caught.value)
    assert said in text
    assert "\n" not in text
    assert len(text) < 600


@pytest.mark.parametrize("case", CONFIGS)
def test_configs(tmp_path: Path, case: str) -> None:
    data, said = CONFIGS[case]
    path = tmp_path / "config.json"
    path.write_bytes(data)
    _one_line(lambda: load.model(path), said)
    _one_line(lambda: load.model(tmp_path), "config.json")


@pytest.mark.parametrize("case", TRACES)
def test_traces(tmp_path: Path, case: str) -> None:
    data, said = TRACES[case]
    path = tmp_path / "load.csv"
    path.write_bytes(data)
    _one_line(lambda: load.requests(path), said)
    _one_line(lambda: load.requests(path), "load.csv")
    packed = tmp_path / "load.csv.gz"
    packed.write_bytes(gzip.compress(data))
    _one_line(lambda: load.requests(packed), "load.csv.gz")


@pytest.mark.parametrize("case", PLANS)
def test_plans(tmp_path: Path, case: str) -> None:
    text, said = PLANS[case]
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    _one_line(lambda: load.read_plan(path), said)
    _one_line(lambda: load.read_plan(path), "plan.yaml")


@pytest.mark.parametrize("case", TYPED)
def test_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    parse, text, said = TYPED[case]
    _one_line(lambda: parse(text), said)


def test_files_that_are_not_what_they_seem(tmp_path: Path) -> None:
    (tmp_path / "not.csv.gz").write_bytes(b"plain text")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(HEADER * 999)[:-20])
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(HEADER * 999)[:20] + b"\xff" * 40)
    for name in ("not.csv.gz", "cut.csv.gz", "bad.csv.gz"):
        _one_line(lambda name=name: load.requests(tmp_path / name), "is not a whole gzip file")  # type: ignore[misc]
    _one_line(lambda: load.requests(tmp_path), "is a folder")
    _one_line(lambda: load.read_plan(tmp_path), "is a folder")
    _one_line(lambda: load.model(tmp_path), "has no config.json")


@pytest.mark.parametrize("name", ["load.csv", "load.csv.gz", "plan.yaml", "config.json"])
def test_pipes_are_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    read: Callable[[Path], Any] = {"plan": load.read_plan, "conf": load.model}.get(name[:4], load.requests)
    _one_line(lambda: read(tmp_path / name), f"{name}: is not a plain file")
    if name == "config.json":
        _one_line(lambda: load.model(tmp_path), "config.json: is not a plain file")
    _one_line(lambda: load.requests("/dev/zero"), "/dev/zero: is not a plain file")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("opened")

    for name in ("load.csv", "config.json", "plan.yaml"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(3 * 1024**3)
    monkeypatch.setattr(files, "open", never, raising=False)
    _one_line(lambda: load.requests(tmp_path / "load.csv"), "load.csv: is larger than 1024 MiB")
    _one_line(lambda: load.model(tmp_path / "config.json"), "config.json: is larger than 4 MiB")
    _one_line(lambda: load.read_plan(tmp_path / "plan.yaml"), "plan.yaml: is larger than 1 MiB")


def test_many_dense_layers_are_not_gone_through_for_each(tmp_path: Path) -> None:
    asked: list[int] = []

    class Counted(list[int]):
        def __contains__(self, layer: object) -> bool:
            asked.append(1)
            return super().__contains__(layer)

    config = json.loads(_config(**MOE | {"num_hidden_layers": 10_000}))
    config["mlp_only_layers"] = Counted(range(1, 200_001))
    assert shapes(Fields(config, "config.json")).layers == 10_000
    assert not asked


def test_the_plain_parts_are_sound(tmp_path: Path) -> None:
    """The corpus breaks one thing at a time: unbroken, each of its bases is read."""
    (tmp_path / "config.json").write_bytes(_config())
    assert load.model(tmp_path).layers == 2
    (tmp_path / "config.json").write_bytes(_config(**MOE))
    assert load.model(tmp_path).is_moe
    (tmp_path / "plan.yaml").write_text(PLAN)
    assert load.read_plan(tmp_path / "plan.yaml").replicas == 1


@given(st.binary(max_size=300))
@settings(max_examples=examples(150))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    for name, read in (("config.json", load.model), ("t.csv", load.requests), ("p.yaml", load.read_plan)):
        (folder / name).write_bytes(HEADER + data if name == "t.csv" else data)
        try:
            read(folder / name)
        except GnomonError as error:
            assert "\n" not in str(error)


@given(st.text(st.sampled_from("a: {}[]-,'\"\n&*!|>%@`#1.\t?~"), max_size=60))
@settings(max_examples=examples(300))
def test_any_yaml_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "p.yaml"
    path.write_text(PLAN + text)
    try:
        load.read_plan(path)
    except GnomonError as error:
        assert "\n" not in str(error)
