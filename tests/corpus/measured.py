"""Measurements broken by hand, as `gnomon calibrate --from` and later predictions find them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.corpus.case import Case, Content
from tests.corpus.hand import ANY

FROM = ("calibrate", "--on", "H200", "--from")
HEADER = "op,dtype,m,n,k,kernel,time_us\n"
ROWS = HEADER + "".join(f"gemm,bf16,{m},{n},512,,{m}e6\n" for m in (64, 128, 256) for n in (64, 128, 256, 512, 1024))
"""Products of a minute, which take microseconds on any chip."""
PLAN = {"schema": "gnomon.calibration/1", "chip": "H200-SXM-141GB", "date": "2026-11-15", "versions": {"torch": "2"}}
RESULT: dict[str, Any] = {
    "completed": 100, "failed": 0, "model_id": "llama-3.1-8b", "request_rate": 5.0, "total_input_tokens": 51200,
    "total_output_tokens": 6400, "median_ttft_ms": 50.0, "median_tpot_ms": 10.0, "output_throughput": 300.0,
}  # fmt: skip
OWN = "schema: gnomon.overheads/1\nengine: {}\nversion: '0.24.0'\ndate: '2026-11-15'\nfigures: {}\n"
TABLES: dict[str, tuple[str, str]] = {
    "foreign": ("a,b,c\n1,2,3\n", "docs/calibrate.md"),
    "no format": ("op,m,n,k,time_us\ngemm,1,2,3,4\n", "has no column dtype"),
    "a column twice": ("op,dtype,m,m,time_us\ngemm,bf16,1,2,3\n", "the column 'm' is given twice"),
    "no kernel": ("op,dtype,time_us\nlaunch,bf16,5\n", "line 2, column kernel"),
    "a launch in no time": (HEADER + "launch,bf16,,,,graph,0\n", "time_us '0'"),
    "sustained without watts": (HEADER + "sustained,bf16,,,,gemm,5\n", "has watts ''"),
    "nothing that fits": (ROWS, "gemm.bf16 is left out: off by"),
    "one shape": (HEADER + "gemm,bf16,64,64,64,,5\n" * 20, "Vary n, k"),
}
PLANS: dict[str, tuple[str, str]] = {
    "a chip of numbers": (json.dumps(PLAN | {"chip": 5}) + "\n", "table.plan.jsonl line 1"),
    "forced letters": (json.dumps(PLAN) + '\n{"forced": "abc"}\n', "table.plan.jsonl line 2"),
    "forced number": (json.dumps(PLAN) + '\n{"forced": 5}\n', "table.plan.jsonl line 2"),
    "deep": (json.dumps(PLAN) + "\n" + "[" * 100_000 + "\n", "table.plan.jsonl line 2"),
}
RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "many requests": (RESULT | {"completed": 10**18}, "completed"),
    "a long number": (RESULT | {"total_input_tokens": 10**400}, "total_input_tokens"),
    "nan": (RESULT | {"median_tpot_ms": float("nan")}, "median_tpot_ms"),
    "ages": (RESULT | {"median_ttft_ms": 1e300}, "median_ttft_ms"),
    "code": (RESULT | {"model_id": "run.py:build", "request_rate": "inf", "max_concurrency": 8}, "--model"),
}
OVERHEADS: dict[str, tuple[str, str]] = {
    "nan": (OWN.format("vllm", "{dense: {gap_us: .nan}}"), "vllm.yaml"),
    "another engine": (OWN.format("torch", "{}"), "is of engine 'torch'"),
    "no figures": (OWN.format("vllm", "{dense: [1]}"), "dense holds no figures"),
}


def cases() -> Iterator[Case]:
    files: dict[str, Content]
    for file in ("table.csv", "result.json"):
        for name, content in ANY.items():
            yield Case(name=f"measured {file}: {name}", words=(*FROM, file), place=file, files={file: content})
    for name, (text, place) in TABLES.items():
        words = (*FROM, "table.csv", "--profile", "p.yaml")
        yield Case(name=f"measured table: {name}", words=words, place=place, files={"table.csv": text})
    for name, (text, place) in PLANS.items():
        files = {"table.csv": ROWS, "table.plan.jsonl": text}
        yield Case(name=f"measured plan: {name}", words=(*FROM, "table.csv"), place=place, files=files)
    for name, (data, place) in RESULTS.items():
        files = {"result.json": json.dumps(data), "run.py": "open('ran', 'w')\n\n\ndef build(): ...\n"}
        yield Case(name=f"measured result: {name}", words=(*FROM, "result.json"), place=place, files=files)
    for name, (text, place) in OVERHEADS.items():
        files = {"home/overheads/vllm.yaml": text}
        words = ("predict", "llama-3.1-8b", "--on", "H200", "--batch", "4")
        yield Case(name=f"overheads: {name}", words=words, place=place, files=files)
    files = {"table.csv": ROWS, "diary.txt": "precious"}
    words = (*FROM, "table.csv", "--profile", "diary.txt")
    yield Case(name="measured: a profile over a diary", words=words, place="--profile", files=files)
    yield Case(name="measured: a whole disk", words=(*FROM, "/"), place="/: holds more than", files={})
