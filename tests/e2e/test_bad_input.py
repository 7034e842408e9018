"""Whatever is typed wrong: one line on stderr, exit code 2 (4 where infeasible), no traceback, no files."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.words import replaced

M = "llama-3.1-8b"
SERVE = f"simulate serve {M} --on H100"
LOAD = "--rate 4 --input 512 --output 64 --requests 20"
PLAN = f"plan serve {M} --fleet H100:1 {LOAD}"
TRAIN = f"simulate train {M} --on H100:16 --seq 4096 --global-batch 256"
PLAN_TRAIN = f"plan train {M} --cluster H100:16 --seq 4096 --global-batch 256"

FILES = {
    "broken.yaml": "schema: gnomon.plan/1\nmodel: [unclosed\n",
    "empty.yaml": "",
    "list.yaml": "- 1\n- 2\n",
    "other.yaml": "schema: other/1\nmodel: x\n",
    "unknown-field.yaml": "schema: gnomon.plan/1\nmodle: x\n",
    "binary.yaml": "\x00\x01\x02",
    "no-columns.csv": "a,b\n1,2\n",
    "negative.csv": "arrival_s,input_tokens,output_tokens\n0,10,5\n1,10,-3\n",
    "empty.csv": "",
    "header.csv": "arrival_s,input_tokens,output_tokens\n",
    "nan.csv": "arrival_s,input_tokens,output_tokens\nnan,10,5\n",
    "huge.csv": "arrival_s,input_tokens,output_tokens\n0,1e300,5\n",
    "ops-empty.csv": "",
    "ops-unknown.csv": "op,dtype,m,n,k\nwarp,bf16,1,2,3\n",
    "ops-negative.csv": "op,dtype,m,n,k\ngemm,bf16,-1,2,3\n",
    "ops-missing.csv": "op,dtype,m,n\ngemm,bf16,1,2\n",
    "ops-text.csv": "op,dtype,m,n,k\ngemm,bf16,one,2,3\n",
    "answer.json": '{"schema": "gnomon.predict/1"}',
    "not.json": "{",
    "error.json": '{"error": {"message": "x"}}',
    "model/config.json": '{"model_type": "nonsense"}',
    "model2/config.json": "{",
    "model3/readme": "no config here",
    "good.yaml": (
        "schema: gnomon.plan/1\nmodel: llama-3.1-8b\nchip: H100-SXM-80GB\nreplicas: 1\nstrategy: {tp: 1}\n"
        "dtype: bf16\nkv_dtype: bf16\nengine: {name: vllm, version: 0.24.0}\n"
    ),
}
FILES["no-model.yaml"] = FILES["good.yaml"].replace("llama-3.1-8b", "gpt-99")
FILES["no-chip.yaml"] = FILES["good.yaml"].replace("H100-SXM-80GB", "Z9000")
FILES["no-setting.yaml"] = FILES["good.yaml"].replace("0.24.0}", "0.24.0, settings: {max_seqs: 1}}")
FILES["no-replicas.yaml"] = FILES["good.yaml"].replace("replicas: 1", "replicas: -1")
FILES["other-engine.yaml"] = FILES["good.yaml"].replace("name: vllm", "name: sglang")

CASES = [
    "frobnicate",
    "--frobnicate",
    "predict",
    f"predict {M}",
    "predict gpt-99 --on H100",
    "predict no/such/folder --on H100",
    "predict ./missing --on H100",
    "predict model --on H100",
    "predict model2 --on H100",
    "predict ./model3 --on H100",
    "predict '' --on H100",
    f"predict {M} --on H1000",
    f"predict {M} --on ''",
    f"predict {M} --on H100:0",
    f"predict {M} --on H100:-1",
    f"predict {M} --on H100:two",
    f"predict {M} --on H100,H200",
    f"predict {M} --on H100 --batch -1",
    f"predict {M} --on H100 --batch 0",
    f"predict {M} --on H100 --batch many",
    f"predict {M} --on H100 --batch nan",
    f"predict {M} --on H100 --batch 1e40",
    f"predict {M} --on H100 --context -5",
    f"predict {M} --on H100 --phase prefill --tokens 0",
    f"predict {M} --on H100 --phase sideways",
    f"predict {M} --on H100 --dtype fp7",
    f"predict {M} --on H100 --engine sgalng",
    f"predict {M} --on H100 --engine vllm@9.9",
    f"predict {M} --on H100:4 --tp 3",
    f"predict {M} --on H100 --tp 2",
    f"predict {M} --on H100 --tp 0",
    f"predict {M} --on H100 --set nonsense=1",
    f"predict {M} --on H100 --set max_num_seqs=-1",
    f"predict {M} --on H100 --set max_num_seqs",
    f"predict {M} --on H100 --context 999999999",
    f"fit {M}",
    f"fit {M} --on H1000",
    f"fit {M} --on H100 --context 0",
    f"fit {M} --on H100 --dtype banana",
    "fit gpt-99 --on H100",
    "ops missing.csv --on H100",
    "ops ops-empty.csv --on H100",
    "ops ops-unknown.csv --on H100",
    "ops ops-negative.csv --on H100",
    "ops ops-missing.csv --on H100",
    "ops ops-text.csv --on H100",
    "ops ops-unknown.csv --on H1000",
    "ops ops-unknown.csv",
    "ops ops-unknown.csv --on H100 --out no/such/folder/x.csv",
    "simulate",
    "simulate nothing",
    SERVE,
    f"{SERVE} --rate 4",
    f"{SERVE} --rate 0 --input 10 --output 10",
    f"{SERVE} --rate -1 --input 10 --output 10",
    f"{SERVE} --rate nan --input 10 --output 10",
    f"{SERVE} --rate 4 --input 0 --output 10",
    f"{SERVE} --rate 4 --input 10 --output -1",
    f"{SERVE} --rate 4 --input 10 --output 10 --requests 0",
    f"{SERVE} --rate 4 --input 10 --output 10 --seed -1",
    f"{SERVE} --rate 4 --input 1000000 --output 10 --requests 5",
    f"{SERVE} --trace missing.csv",
    f"{SERVE} --trace no-columns.csv",
    f"{SERVE} --trace negative.csv",
    f"{SERVE} --trace empty.csv",
    f"{SERVE} --trace header.csv",
    f"{SERVE} --trace nan.csv",
    f"{SERVE} --trace huge.csv",
    f"{SERVE} --trace model",
    f"{SERVE} {LOAD} --requests-out model",
    f"{SERVE} {LOAD} --requests-out no/such/x.csv",
    f"{SERVE} {LOAD} --trace-out good.yaml/x",
    f"{SERVE} {LOAD} --set max_num_seqs=0",
    f"{SERVE} {LOAD} --set max_num_batched_tokens=8 --set max_num_seqs=64",
    f"simulate serve llama-3.1-70b --on H100 {LOAD}",
    "plan",
    f"plan serve {M} {LOAD}",
    f"plan serve {M} --fleet H1000:8 {LOAD}",
    f"plan serve {M} --fleet H100:8,H100:8 {LOAD}",
    f"plan serve {M} --fleet '' {LOAD}",
    f"plan serve {M} --fleet H100:1",
    f"plan serve {M} --fleet H100:1 --trace missing.csv",
    f"{PLAN} --slo ttft_p90",
    f"{PLAN} --slo ttft_p90=fast",
    f"{PLAN} --slo ttft_p91=1s",
    f"{PLAN} --slo ttft_p90=0s",
    f"{PLAN} --slo tpot_p90=1us",
    f"{PLAN} --objective beauty",
    f"{PLAN} --dtype fp7",
    f"plan serve llama-3.1-70b --fleet H100:1 --dtype bf16 {LOAD}",
    "export",
    "export last",
    "export nothing-1234",
    "export missing.yaml",
    "export broken.yaml",
    "export empty.yaml",
    "export list.yaml",
    "export other.yaml",
    "export unknown-field.yaml",
    "export binary.yaml",
    "export no-model.yaml",
    "export no-chip.yaml",
    "export no-setting.yaml",
    "export no-replicas.yaml",
    "export other-engine.yaml",
    "export model",
    "export good.yaml --to helm",
    "export good.yaml --out broken.yaml",
    "export good.yaml --out ''",
    "launch last",
    "launch missing.yaml",
    "launch broken.yaml --dry-run",
    "verify last",
    "verify missing.yaml",
    "verify good.yaml --rate 0",
    "explain last",
    "explain nothing-1234",
    "explain missing.json",
    "explain not.json",
    "explain answer.json",
    "explain error.json",
    f"{SERVE} --rate 4 --input 1e19 --output 10",
    f"{SERVE} --rate 4 --input 10 --output 10 --requests 1e8",
    f"{SERVE} {LOAD} --set max_num_seqs=8 --set MAX-NUM-SEQS=9",
    f"{PLAN} --dtype bf16,fp7",
    f"models show {'x' * 200}",
    "ops ops-unknown.csv --on H100 --out ops-unknown.csv",
    "history --limit zero",
    "history --limit 99999999999999999999",
    "calibrate --budget soon",
    "calibrate --out model",
    "calibrate --families warp",
    "chips show",
    "chips show H1000",
    "chips nonsense",
    "models show gpt-99",
    "models show ./model3",
    "papers --topic cats",
    "papers --status done",
    "papers --shelf top",
    "papers --hardware abacus",
    "papers --since long-ago",
    "papers --topic moe search experts",
    "papers search",
    "papers search ???",
    "papers search offload --limit 0",
    "papers show",
    "papers show zero-ofload",
    f"papers show {'x' * 200}",
    "papers run",
    "papers run no-such-paper",
    "papers run cuda",
    "papers run cuda --all",
    "simulate train",
    f"simulate train {M} --on H100:16",
    f"simulate train {M} --on H100:16 --seq 4096",
    "simulate train gpt-99 --on H100:16 --seq 4096 --global-batch 16",
    "simulate train model --on H100:16 --seq 4096 --global-batch 16",
    "simulate train jamba-52b --on H100:16 --seq 4096 --global-batch 16",
    "simulate train gpt3-175b --on A100:8 --seq 4096 --global-batch 16",
    "simulate train gpt3-175b --on A100:8 --seq 2048 --global-batch 16 --engine torch",
    "simulate train llama-3.2-1b --on H100:8 --seq 2048 --global-batch 16 --pp 2 --engine torch",
    f"simulate train {M} --on H1000:16 --seq 4096 --global-batch 16",
    f"simulate train {M} --on H100:8,H200:8 --seq 4096 --global-batch 16",
    f"simulate train {M} --on H100:10 --seq 4096 --global-batch 16 --tp 4",
    f"simulate train {M} --on H100:1e7 --seq 64 --global-batch 1e6",
    f"{TRAIN} --tp 7",
    f"{TRAIN} --tp 16",
    f"{TRAIN} --tp 1e9",
    f"{TRAIN} --pp 3",
    f"{TRAIN} --pp 4 --vp 9",
    f"{TRAIN} --pp 4 --vp 2 --schedule 1f1b",
    f"{TRAIN} --pp 4 --schedule interleaved",
    f"{TRAIN} --vp 2",
    f"{TRAIN} --dp 3",
    f"{TRAIN} --micro-batch 3",
    f"{TRAIN} --global-batch 100",
    f"{TRAIN} --global-batch -16",
    f"{TRAIN} --global-batch 1e12",
    f"{TRAIN} --global-batch 1e6 --pp 16",
    f"{TRAIN} --seq 4095 --tp 2",
    f"{TRAIN} --seq 1e18",
    f"{TRAIN} --zero 4",
    f"{TRAIN} --schedule zb-h1",
    f"{TRAIN} --recompute some",
    f"{TRAIN} --optimizer sgdm",
    f"{TRAIN} --engine vllm",
    f"{TRAIN} --engine megatron@1.0",
    f"{TRAIN} --dtype fp4",
    f"{TRAIN} --dtype fp7",
    f"{TRAIN} --tokens -1",
    f"{TRAIN} --tokens 1e40",
    f"{TRAIN} --cp 3",
    f"{TRAIN} --ep 2",
    f"{TRAIN} --rate 4",
    f"{TRAIN} --set max_num_seqs=3",
    f"{TRAIN} --memory-out x.txt",
    f"{TRAIN} --memory-out no/such/x.csv",
    f"{TRAIN} --trace-out model",
    f"{TRAIN} --trace-out x.csv --memory-out x.csv",
    f"simulate train {M} --on H100 --seq 64 --global-batch 300k --trace-out x.json",
    "plan train",
    f"plan train {M} --cluster H100:16 --seq 4096",
    "plan train gpt-99 --cluster H100:16 --seq 4096 --global-batch 16",
    "plan train gpt3-175b --cluster A100:8 --seq 2048 --global-batch 1536",
    "plan train gpt3-175b --cluster A100:1024 --seq 4096 --global-batch 1536",
    "plan train gpt3-175b --cluster A100:96 --seq 2048 --global-batch 1e6",
    "plan train jamba-52b --cluster H100:16 --seq 4096 --global-batch 16",
    f"{PLAN_TRAIN} --cluster H100:1e7",
    f"{PLAN_TRAIN} --cluster H100:8,H200:8",
    f"{PLAN_TRAIN} --global-batch 1e18",
    f"{PLAN_TRAIN} --seq 1e15",
    f"{PLAN_TRAIN} --engine vllm",
    f"{PLAN_TRAIN} --optimizer adam",
    f"{PLAN_TRAIN} --dtype int4",
    f"{PLAN_TRAIN} --tokens 0",
    f"{PLAN_TRAIN} --tp 8",
]


INFEASIBLE = (
    f"simulate serve llama-3.1-70b --on H100 {LOAD}",
    f"{PLAN} --slo tpot_p90=1us",
    f"plan serve llama-3.1-70b --fleet H100:1 --dtype bf16 {LOAD}",
    "plan train gpt3-175b --cluster A100:8 --seq 2048 --global-batch 1536",
)
"""Well-formed questions that nothing can do: they end with exit code 4."""
assert set(INFEASIBLE) <= set(CASES)

PLAIN = CASES[::8]
"""Cases that also run without --json: they differ only in what stands on stdout."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bad")
    for name, text in FILES.items():
        file = root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return root


def run(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A fresh process in the folder, which must be left as it was."""
    done = subprocess.run(
        [sys.executable, "-m", "gnomon", *shlex.split(words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert files == set(FILES)
    return done


@pytest.mark.battery(24)
@pytest.mark.parametrize("words", CASES)
def test_one_line_and_json(words: str, folder: Path) -> None:
    done = run(f"{replaced(words)} --json", folder)
    assert done.returncode == (4 if words in INFEASIBLE else 2), (done.stdout, done.stderr)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    error = json.loads(done.stdout)["error"]
    assert set(error) == {"message", "where", "hint"}
    assert error["message"]
    assert "given twice" not in error["message"]
    if words.startswith((f"{TRAIN} --", f"{PLAN_TRAIN} --")):
        assert error["where"].startswith("--") or "no such option: --" in error["message"]


@pytest.mark.battery(8)
@pytest.mark.parametrize("words", PLAIN)
def test_nothing_on_stdout(words: str, folder: Path) -> None:
    done = run(replaced(words), folder)
    assert (done.returncode, done.stdout) == (4 if words in INFEASIBLE else 2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
