"""Cases by seed: command lines of every command with drawn flags, and files of every kind, broken."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.corpus.bases import CHIP, CLUSTER, CONFIG, MODEL, PLAN, SHAPES, TABLE, TRACE
from tests.corpus.measured import RESULT, ROWS
from tests.fuzz import values
from tests.fuzz.case import Case, Draw, Made, Maker
from tests.fuzz.mutate import as_json, as_yaml, changed_table, changed_text, changed_tree, packed, tuned_tree

ROOT = Path(__file__).parents[2]
TRAINING_PLAN = f"""schema: gnomon.plan/1
model: {MODEL}
chip: H100
replicas: 1
strategy: {{tp: 2, pp: 2, dp: 2}}
dtype: bf16
engine: {{name: megatron, settings: {{schedule: 1f1b, zero: 1, micro_batch: 1}}}}
load: {{seq: 512, global_batch: 8, tokens: 1B}}
"""
POOLS = "schema: gnomon.cluster/1\npools:\n- {chip: H100, count: 2}\n- {chip: L4, count: 4}\n"
SERVE = ["--input", "64", "--output", "8", "--requests", "20", "--rate", "4"]
TRAIN = ["--seq", "512", "--global-batch", "8"]


@cache
def commands() -> tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...]:
    """Every command of the program, and its parameters as the program itself declares them."""
    import typer

    from gnomon.cli.app import build

    found: list[tuple[tuple[str, ...], tuple[Any, ...]]] = []
    waiting: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(build([])))]
    while waiting:
        path, command = waiting.pop()
        inner = getattr(command, "commands", {})
        waiting += [((*path, name), each) for name, each in sorted(inner.items())]
        if not inner or (path and getattr(command, "invoke_without_command", False)):
            found.append((path, tuple(command.params)))
    return tuple(sorted(found, key=lambda each: each[0]))


@cache
def intact() -> dict[str, bytes]:
    """Files that a drawn command line may name."""
    return {
        "plan.yaml": PLAN.encode(),
        "train.yaml": TRAINING_PLAN.encode(),
        "table.csv": TABLE.encode(),
        "trace.csv": TRACE.encode(),
        "chip.yaml": CHIP.encode(),
        "cluster.yaml": CLUSTER.encode(),
        "answer.json": _predicted(),
        "result.json": as_json(RESULT),
    }


@cache
def _predicted() -> bytes:
    import gnomon

    return as_json(gnomon.predict(MODEL, on="H100").to_dict())


@cache
def answers() -> tuple[bytes, ...]:
    """Answers of some commands, as JSON."""
    import gnomon

    load: dict[str, Any] = {"rate": 4, "input": 64, "output": 8, "requests": 20}
    made = (
        gnomon.fit(MODEL, on="H100"),
        gnomon.simulate_serving(MODEL, on="H100", **load),
        gnomon.simulate_training(MODEL, on="H100:4", seq=512, global_batch=8, pp=2),
        gnomon.plan_serving(MODEL, fleet="H100:1", slo="ttft_p90=1s", **load),
        gnomon.plan_training(MODEL, cluster="H100:2", seq=512, global_batch=8),
    )
    return _predicted(), *(as_json(each.to_dict()) for each in made)


@cache
def configs() -> tuple[Any, ...]:
    """Configs of the catalog, of every family, and a small one as often."""
    found = [json.loads(file.read_bytes()) for file in sorted(values.CONFIGS.glob("*.json"))]
    return (*found, *([CONFIG] * (len(found) // 3)))


@cache
def shapes() -> tuple[Any, ...]:
    """Shapes of networks with mixers and towers of every kind."""
    from gnomon import load
    from gnomon.load.shapes import model_to_dict, shapes_to_yaml

    named = ("llama-3.2-1b", "mixtral-8x7b", "deepseek-v3", "jamba-52b", "bert-base", "qwen2.5-vl-7b", "gpt-oss-20b")
    return (
        yaml.safe_load(SHAPES),
        *(yaml.safe_load(shapes_to_yaml(model_to_dict(load.model(name)))) for name in named),
    )


def _words(draw: Draw) -> Made:
    """A command with some of its flags, mostly those that it needs."""
    path, parameters = draw.choice(commands())
    if path[:1] == ("plan",) and draw.random() < 0.7:  # a search takes as long as fifty predictions
        path, parameters = draw.choice(commands())
    words, wild = list(path), draw.choice((0.0, 0.02, 0.02, 0.1, 0.3))
    for each in parameters:
        option = each.param_type_name == "option"
        wanted = 0.97 if each.required else 0.12 if option else 0.8
        if draw.random() > wanted or (option and (values.SLOW & set(each.opts) or "--help" in each.opts)):
            continue
        flag = draw.choice(each.opts) if option else ""
        words += [flag] if flag and draw.random() > 0.01 else []
        if not getattr(each, "is_flag", False):
            words.append(values.value(draw, flag, each.metavar or "", wild))
    if path[:2] in (("simulate", "serve"), ("plan", "serve")) and draw.random() < 0.7:
        words += [word for pair in zip(SERVE[::2], SERVE[1::2], strict=True) if pair[0] not in words for word in pair]
    return _finished(draw, words), dict(intact())


def _finished(draw: Draw, words: list[str]) -> list[str]:
    luck = draw.random()
    if luck < 0.03:
        draw.shuffle(words)
    elif luck < 0.06:
        words.insert(draw.randrange(len(words) + 1), draw.choice(values.TEXTS))
    if words[:1] == ["launch"] and "--dry-run" not in words:
        words.append("--dry-run")  # nothing is ever started
    if "--json" not in words and draw.random() < 0.5:
        words.append("--json")
    return words


def _file(name: str, trees: Any, dump: Any, lines: list[list[str]]) -> Maker:
    """Makes a file broken as a tree or as a text, for one of the command lines that read it. `trees` are whole ones, or
    give them."""

    def make(draw: Draw) -> Made:
        found = trees() if callable(trees) else trees
        base, luck = draw.choice(found), draw.random()
        if luck < 0.45:
            content = dump(tuned_tree(draw, base, draw.choice(found)))
        elif luck < 0.75:
            content = dump(changed_tree(draw, base))
        elif luck < 0.95:
            content = changed_text(draw, dump(base))
        else:
            content = dump(values.tree(draw))
        files = {**intact(), name: content}
        return _finished(draw, list(draw.choice(lines))), files

    return make


def _config(draw: Draw) -> Made:
    lines = [
        ["predict", "./config.json", "--on", "H100:8"],
        ["predict", "./config.json", "--on", "H100", "--phase", "prefill", "--tokens", "64"],
        ["fit", "./config.json", "--on", "A100"],
        ["models", "show", "./config.json"],
        ["models", "show", "./config.json", "--shapes"],
        ["simulate", "train", "./config.json", "--on", "H100:8", *TRAIN],
        ["simulate", "serve", "./config.json", "--on", "H100:8", *SERVE],
    ]
    return _file("config.json", configs, as_json, lines)(draw)


def _trace(draw: Draw) -> Made:
    text = TRACE
    if draw.random() < 0.3:
        text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.5+00:00,10,2\n2024-05-10T00:00:02Z,20,3\n"
    content = changed_table(draw, text) if draw.random() < 0.6 else changed_text(draw, text.encode())
    name = draw.choice(("trace.csv", "trace.csv", "trace.csv.gz"))
    if name.endswith(".gz"):
        content = packed(draw, content)
    words = ["simulate", "serve", MODEL, "--on", "H100", "--trace", name]
    if draw.random() < 0.1:
        words = ["plan", "serve", MODEL, "--fleet", "H100:1", "--trace", name]
    words += draw.choice(([], [], ["--rate", "3"], ["--requests", "7"], ["--requests", "2", "--rate", "1"]))
    return _finished(draw, words), {name: content}


def _table(draw: Draw) -> Made:
    content = changed_table(draw, TABLE) if draw.random() < 0.7 else changed_text(draw, TABLE.encode())
    words = ["ops", "table.csv", "--on", draw.choice(("H100", "T4", "MI300X", "./chip.yaml"))]
    words += draw.choice(([], ["--out", "out.csv"]))
    return _finished(draw, words), {**intact(), "table.csv": content}


@cache
def _measured() -> tuple[dict[str, Any], ...]:
    """Files of measurements, short ones."""
    folder = ROOT / "measurements/h200-2026-11-15"
    serving = json.loads((folder / "verify-llama-3.1-8b.json").read_text())
    for load in serving["loads"]:
        for name, column in load.items():
            load[name] = column[:20] if isinstance(column, list) else column
    return serving, json.loads((folder / "train-gpt-1.7b-2048-none.json").read_text())


def _measurement(draw: Draw) -> Made:
    luck = draw.random()
    if luck < 0.4:
        return _file("m.json", list(_measured()), as_json, [["verify", "m.json"]])(draw)
    if luck < 0.7:
        lines = [["calibrate", "--on", "H200", "--from", "result.json"]]
        return _file("result.json", [RESULT], as_json, lines)(draw)
    content = changed_table(draw, ROWS) if luck < 0.9 else changed_text(draw, ROWS.encode())
    words = ["calibrate", "--on", "H200", "--from", "table.csv", "--profile", "p.yaml"]
    return _finished(draw, words), {"table.csv": content}


def _answer(draw: Draw) -> Made:
    base = [json.loads(answer) for answer in answers()]
    lines = [["explain", "a.json"], ["explain", "a.json", "--op", "attention"], ["export", "a.json"]]
    return _file("a.json", base, as_json, lines)(draw)


def _history(draw: Draw) -> Made:
    """One or two entries of the history, one of them broken."""
    files: dict[str, bytes] = {}
    for place in range(draw.choice((1, 2))):
        answer = json.loads(draw.choice(answers()))
        kind = answer["schema"].removeprefix("gnomon.").partition("/")[0]
        id = f"{kind.partition('.')[0]}-0000000{place}"
        record: Any = {"schema": "gnomon.run/1", "id": id, "kind": kind, "saved_s": 1.7e9, "payload": answer}
        if place == 0:
            record = changed_tree(draw, record)
        content = as_json(record) if draw.random() < 0.7 else changed_text(draw, as_json(record))
        name = f"home/runs/000000000000000000{place + 10}.{id}.json"
        files |= {name: content} if draw.random() < 0.3 else {f"{name}.gz": packed(draw, content)}
    words = draw.choice((["history"], ["explain"], ["explain", "last"], ["export", "last"], ["launch", "last"]))
    return _finished(draw, list(words)), files


_HARDWARE = [
    ["ops", "table.csv", "--on"],
    ["predict", MODEL, "--on"],
    ["fit", MODEL, "--on"],
    ["simulate", "train", MODEL, *TRAIN, "--on"],
]
_PLANS = [["export", "plan.yaml"], ["launch", "plan.yaml"], ["export", "plan.yaml", "--out", "folder"]]
_PLANS += [["export", "plan.yaml", "--to", to] for to in ("vllm", "kubernetes", "megatron", "torchrun")]
_SHAPED = [["predict", "./shapes.yaml", "--on", "H100"], ["fit", "./shapes.yaml", "--on", "H100"]]
_SHAPED += [["models", "show", "./shapes.yaml"], ["simulate", "train", "./shapes.yaml", "--on", "H100:2", *TRAIN]]
_CHIPS = [[*line, "./chip.yaml:4"] for line in _HARDWARE] + [["chips", "show", "./chip.yaml"]]
_CLUSTERS = [[*line, "./cluster.yaml:8"] for line in _HARDWARE]
_CLUSTERS.append(["plan", "train", MODEL, "--cluster", "./cluster.yaml:8", *TRAIN])

MAKERS: dict[str, tuple[int, Maker]] = {
    "arguments": (35, _words),
    "config": (13, _config),
    "shapes": (8, _file("shapes.yaml", shapes, as_yaml, _SHAPED)),
    "plan": (10, _file("plan.yaml", [yaml.safe_load(PLAN), yaml.safe_load(TRAINING_PLAN)], as_yaml, _PLANS)),
    "chip": (7, _file("chip.yaml", [yaml.safe_load(CHIP)], as_yaml, _CHIPS)),
    "cluster": (7, _file("cluster.yaml", [yaml.safe_load(CLUSTER), yaml.safe_load(POOLS)], as_yaml, _CLUSTERS)),
    "trace": (7, _trace),
    "table": (5, _table),
    "measurement": (3, _measurement),
    "answer": (3, _answer),
    "history": (2, _history),
}
"""What is fuzzed, and how often of a hundred."""


def case_of(seed: int) -> Case:
    draw = random.Random(seed)
    kinds = list(MAKERS)
    (kind,) = draw.choices(kinds, [MAKERS[name][0] for name in kinds])
    words, files = MAKERS[kind][1](draw)
    return Case(seed=seed, kind=kind, words=tuple(words), files=files)
