"""How many servers a script or a manifest starts, and what is in the files that it writes: counted, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import gnomon
from gnomon.errors import InputError

SERVE = "vllm serve llama-3.1-8b"
NODES = "python -m sglang.launch_server --model llama-3.1-8b --tp 2 --nnodes 2 --node-rank $SLURM_PROCID"
TRTLLM = "trtllm-serve llama-3.1-8b --extra_llm_api_options x.yaml"
PART = "kv_cache_config: {free_gpu_memory_fraction: 0.5}"
FIRST = f"echo '{PART}'"
SECOND = "echo 'max_batch_size: 7'"
BOTH = {"kv_cache_free_gpu_memory_fraction": 0.5, "max_batch_size": 7}


def replicas(text: str) -> int:
    return gnomon.import_plan(text, on="H100").plan.replicas


def refused(text: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        gnomon.import_plan(text, on="H100")
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"{FIRST} > x.yaml; {SECOND} >> x.yaml; {TRTLLM}",
        f"{FIRST} > x.yaml; {SECOND} >> ./x.yaml; {TRTLLM} & {TRTLLM} --port 80",
        f"{FIRST} | tee x.yaml; {SECOND} | tee -a x.yaml; {TRTLLM}",
        f"rm -f x.yaml; {FIRST} >> x.yaml; {SECOND} >> x.yaml; chmod 644 x.yaml; cat x.yaml; {TRTLLM}",
        f": > x.yaml\ncat <<E >> x.yaml\n{PART}\nE\n{SECOND} >> x.yaml\n{TRTLLM}",
        f"{FIRST} > a.yaml; {SECOND} >> a.yaml; cp a.yaml x.yaml; {TRTLLM}",
        f"w() {{\ncat > $1 <<E\n{PART}\nE\n}}\nw x.yaml\n{SECOND} >> x.yaml\n{TRTLLM}",
    ],
)
def test_what_a_script_appends_is_kept(text: str) -> None:
    assert dict(gnomon.import_plan(text, on="H100").plan.engine.settings) == BOTH


@pytest.mark.parametrize(
    "change",
    [
        "sed -i s/0.5/0.9/ x.yaml",
        "python edit.py x.yaml",
        "envsubst < a > x.yaml",
        "cp /etc/base.yaml x.yaml",
        f"for i in 1 2; do {SECOND} >> x.yaml; done",
        f"if true; then {SECOND} > x.yaml; fi",
        f"true && {SECOND} > x.yaml",
        "printf '%s %s' a b >> x.yaml",
    ],
)
def test_a_file_that_something_else_changes_is_not_read(change: str) -> None:
    assert "only the shell knows" in refused(f"{FIRST} > x.yaml; {change}; {TRTLLM}")


def test_a_file_on_disk_that_a_script_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("max_batch_size: 7\n")
    assert dict(gnomon.import_plan(f"cat x.yaml; {TRTLLM}", on="H100").plan.engine.settings) == {"max_batch_size": 7}
    for change in ("sed -i s/7/8/ x.yaml", f"{FIRST} >> x.yaml"):
        assert "only the shell knows" in refused(f"{change}; {TRTLLM}")


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("0 1 2", 3),
        ("{0..3}", 4),
        ("{0..6..2}", 4),
        ("{6..0..-2}", 4),
        ("{0,1,2,3}", 4),
        ("{a..d}", 4),
        ("gpu{0..1}{a,b} x", 5),
        ("{a,b{1..3}}", 4),
        ("'{0..3}'", 1),
        ("{0}", 1),
        ("$(seq 0 3)", 4),
        ("`seq 4`", 4),
        ("$(seq 1 2 7)", 4),
        ("$LIST", 3),
        ('"$LIST"', 1),
        ('"${GPUS[@]}"', 2),
    ],
)
def test_loops(words: str, count: int) -> None:
    assert replicas(f"LIST='1 2 3'; GPUS=(4 5); for i in {words}; do {SERVE} & done") == count


@pytest.mark.parametrize("words", ["hosts/*", "h?", "$(cat hosts)", "$(seq $N)", "$HOSTS", "a $HOSTS", "$(seq 0)"])
def test_loops_of_unknown_length(words: str) -> None:
    assert "loop of unknown length" in refused(f"for i in {words}; do {SERVE} & done")


@pytest.mark.parametrize(("last", "known"), [("break", False), ("continue", False), ("wait", True)])
def test_loops_that_may_end_early(last: str, known: bool) -> None:
    text = f"for i in 1 2; do for t in 1 2 3; do curl && break; done; {SERVE} & {last}; done"
    if known:
        assert replicas(text) == 2
    else:
        assert "loop of unknown length" in refused(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"srun --ntasks=4 {SERVE}", 4),
        (f"srun -p gpu --exclusive -n 4 {SERVE}", 4),
        (f"srun -N2 --ntasks-per-node 2 {SERVE}", 4),
        (f"srun {SERVE}", 1),
        (f"#!/bin/bash\n#SBATCH --ntasks=3 # three\nsrun {SERVE}\n", 3),
        (f"#!/bin/bash\n#SBATCH --array=0-7:2%2\n{SERVE}\n", 4),
        (f"srun -n 2 bash -c '{SERVE} --port 80'", 2),
        (f"srun --ntasks=4 {NODES}", 2),
        (f"mpirun -n 4 {SERVE}", 4),
        (f"mpirun --mca btl tcp -x A -np 4 {SERVE}", 4),
        ("mpirun -n 8 trtllm-llmapi-launch trtllm-serve llama-3.1-8b --tp_size 8", 1),
        (f"seq 4 | xargs -I{{}} -P4 {SERVE}", 4),
        (f"seq 2 5 | xargs -I{{}} -P4 sh -c '{SERVE} --port {{}}'", 4),
        (f"up() {{ {SERVE} --port $1 & }}; up 80; up 81; up 82", 3),
        (f"up() {{ {SERVE} --port $1 & }}; for i in 1 2; do up $i; done", 2),
        (f"function up {{\n  {SERVE} &\n}}\nup\nup\n", 2),
        (f"up ()\n{{\n  {SERVE} &\n}}\nup\n", 1),
        (f"ssh a '{SERVE} --port 80' & tmux new -d '{SERVE}'; eval \"{SERVE}\"; ssh b {SERVE}", 4),
        (f"down() {{ {SERVE}; }}\n{SERVE}", 1),
    ],
)
def test_launchers_and_functions(text: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "x.sh"
    file.write_text(text)
    assert gnomon.import_plan(file, on="H100").plan.replicas == count


def test_a_function_has_its_own_arguments() -> None:
    assert gnomon.import_plan(f'up() {{ {SERVE} "$@"; }}; up -tp 4', on="H100").plan.strategy.tp == 4
    assert gnomon.import_plan(f"up() {{ {SERVE} -tp $2; }}; up a 4", on="H100").plan.strategy.tp == 4
    assert gnomon.import_plan(f"up() {{ shift; {SERVE} -tp $1; }}; up a 4", on="H100").plan.strategy.tp == 4
    assert "$A" in refused(f"up() {{ A=2; }}; if a; then up; fi; {SERVE} -tp $A")
    assert "degrees" in refused(f"up() {{ {SERVE} -tp $1; }}; up 2; up 4")


@pytest.mark.parametrize(
    "text",
    [
        f"srun -n $N {SERVE}",
        f"mpirun --hostfile h {SERVE}",
        f"cat hosts | xargs -I{{}} {SERVE}",
        f"seq 4 | xargs {SERVE}",
        f"parallel {SERVE} < hosts",
        "torchrun --nproc-per-node 4 -m vllm.entrypoints.openai.api_server --model llama-3.1-8b",
        f"srun --ntasks=3 {NODES}",
    ],
)
def test_launchers_that_do_not_say_how_many(text: str) -> None:
    assert "tasks" in refused(text)


def test_a_function_that_nobody_calls_starts_nothing() -> None:
    assert "no server" in refused(f"up() {{ {SERVE}; }}")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"case $1 in\n  a) {SERVE} ;;\n  b|c) {SERVE} ;;\n  *) exit 1 ;;\nesac", 1),
        (f"case $1 in a) {SERVE} & {SERVE} & ;; b) for i in 1 2; do {SERVE} & done;; esac; {SERVE}", 3),
        (f"{SERVE} || {SERVE}", 1),
        (f"{SERVE} || {SERVE} || {SERVE}; {SERVE}", 2),
        (f"test -f a || {SERVE} & test -f b || {SERVE} &", 2),
        (f"a || b; {SERVE} || {SERVE}; c || {SERVE}", 2),
        (f"{SERVE}; exit 0; {SERVE}", 1),
        (f"exec {SERVE}\n{SERVE}", 1),
        (f"exec > log\n{SERVE}", 1),
        (f"cd /srv || exit 1; {SERVE}", 1),
        (f"(exit 1); {SERVE}", 1),
        (f"if test $A; then {SERVE}; exit; fi; {SERVE}", 1),
        (f"if test $A; then exit; else {SERVE}; fi; {SERVE}", 2),
        (f"if a; then {SERVE}; elif b; then {SERVE}; else {SERVE}; fi", 1),
        (f"if a; then {SERVE}; fi; {SERVE}", 2),
        (f"up() {{ {SERVE} & return; {SERVE}; }}; if a; then up; fi; {SERVE}", 2),
        (f"up() {{ if a; then {SERVE} & return; fi; {SERVE}; }}; up; up", 2),
    ],
)
def test_one_of_several_branches_runs(text: str, count: int) -> None:
    assert replicas(text) == count


@pytest.mark.parametrize("text", [f"{{ {SERVE}; }} || {SERVE}", f"({SERVE})||{SERVE}", f"( {SERVE} ) || {SERVE}"])
def test_a_server_behind_a_group_that_fails(text: str) -> None:
    assert "where a group of commands fails" in refused(text)
    assert replicas(text.rpartition("vllm")[0] + "exit 1") == 1


def test_functions_without_end() -> None:
    assert "deep" in refused(f"f() {{ f; {SERVE} & }}; f")


def test_branches_with_different_numbers_of_servers() -> None:
    assert "1 or 2 servers" in refused(f"if a; then {SERVE} & {SERVE}; else {SERVE}; fi")


KIND = """\
apiVersion: x/v1
kind: {kind}
metadata: {{name: it}}
spec:
  {spec}
  template: {{spec: {{containers: [{{name: a, image: "vllm/vllm-openai:v0.24.0", args: [--model, llama-3.1-8b]}}]}}}}
"""
SCALER = """\
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
spec: {scaleTargetRef: {kind: Deployment, name: it}, minReplicas: 1, maxReplicas: 8}
"""


def test_manifests(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    for spec, count in (("parallelism: 4", 4), ("{}: 0", 1), ("completions: 2\n  parallelism: 4", 2)):
        file.write_text(KIND.format(kind="Job", spec=spec.replace("{}: 0", "backoffLimit: 0")))
        assert gnomon.import_plan(file, on="H100").plan.replicas == count
    file.write_text(KIND.format(kind="DaemonSet", spec="minReadySeconds: 0"))
    assert "DaemonSet has a pod on every node" in refused(file)
    deployment = KIND.format(kind="Deployment", spec="replicas: 2")
    for text, listed in ((deployment, {}), (deployment + SCALER, {"HorizontalPodAutoscaler of it": True})):
        file.write_text(text)
        found = gnomon.import_plan(file, on="H100")
        assert found.plan.replicas == 2
        assert {one.option: one.affects for one in found.ignored} == listed


def test_a_graph_of_another_api_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec: {services: {}}\n")
    assert "v1alpha1" in (message := refused(file)) and "nvidia.com/v1beta1" in message


def test_more_servers_than_a_router_is_told_of(tmp_path: Path) -> None:
    assert replicas(f"for i in {{1..4096}}; do {SERVE} & done") == 4096
    assert "1,000,000 servers are more than 4,096" in refused(f"for i in {{1..1000000}}; do {SERVE} & done")
    file = tmp_path / "x.yaml"
    file.write_text(KIND.format(kind="Deployment", spec="replicas: 4097"))
    assert "4,097 servers" in refused(file)
