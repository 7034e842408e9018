"""Traces of all formats: tiny samples written by hand are read as they are meant, damaged ones are refused in one
line, and long ones take bounded memory."""

from __future__ import annotations

import gzip
import json
import random
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from gnomon import load
from gnomon.errors import InputError
from gnomon.load.recorded.columns import followed, name_numbers, numbered
from gnomon.load.recorded.lengths import read_lengths
from gnomon.load.recorded.prefixes import by_chains, by_groups
from gnomon.load.traces import read_trace
from gnomon.spec import ServingLoad
from gnomon.spec.workload import Prefixes, RequestTrace


def lines(*rows: Any) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def aiperf(start_ns: int, inputs: int, outputs: int, **more: Any) -> dict[str, Any]:
    metrics = {"input_sequence_length": inputs, "output_sequence_length": outputs, "request_latency": 900.5}
    metadata = {"session_num": 0, "request_start_ns": start_ns, "request_end_ns": start_ns + 10**9} | more
    values = {name: {"value": value, "unit": "tokens"} for name, value in metrics.items()}
    return {"metadata": metadata | {"benchmark_phase": more.get("benchmark_phase", "profiling")}, "metrics": values,
            "error": more.get("error")}  # fmt: skip


def said(*texts: str) -> dict[str, Any]:
    """A conversation of ShareGPT."""
    speakers = ("human", "gpt")
    return {"id": "x", "conversations": [{"from": speakers[n % 2], "value": one} for n, one in enumerate(texts)]}


@dataclass(frozen=True)
class Sample:
    """A file of a format, and what it says."""

    text: str
    arrival_s: list[float] | None
    input_tokens: list[int]
    output_tokens: list[int]
    spot: str
    """Of the last request."""
    idle: list[str] = field(default_factory=list)
    columns: dict[str, list[float]] = field(default_factory=dict)


OWN = "arrival_s,input_tokens,output_tokens,prefix_group,prefix_tokens,adapter,session,think_s,priority,model\n"
SAMPLES = {
    "own.csv": Sample(
        OWN + "0,100,10,a,50,x,s,,0,m\n1,100,9,a,60,x,t,,0,m\n2,200,8,a,60,,s,3.5,-1,m\n4,90,7,,,y,s,1,2,m\n",
        [0, 1, 2, 4], [100, 100, 200, 90], [10, 9, 8, 7], "line 5", ["column model"],
        {"adapter": [0, 0, -1, 1], "priority": [0, 0, -1, 2], "follows": [-1, -1, 0, 2], "think_s": [0, 0, 3.5, 1],
         "node": [0, 1, 1, -1], "parent": [-1, 0], "end": [50, 60]},
    ),
    "open.csv": Sample(
        "arrival_s,input_tokens,output_tokens,session\n0,5,1,a\n1,6,2,a\n", [0, 1], [5, 6], [1, 2], "line 3",
        ["column session"],
    ),
    "own.jsonl": Sample(
        lines({"arrival_s": 0, "input_tokens": 100, "output_tokens": 10, "prefix_group": 7, "prefix_tokens": 50},
              {"arrival_s": 1.5, "input_tokens": 90, "output_tokens": 9, "prefix_group": 7, "prefix_tokens": 40,
               "session": "s", "priority": 3},
              {"arrival_s": 2, "input_tokens": 80, "output_tokens": 8, "session": "s", "think_s": 4, "adapter": "x"}),
        [0, 1.5, 2], [100, 90, 80], [10, 9, 8], "line 3", [],
        {"adapter": [-1, -1, 0], "priority": [0, 3, 0], "follows": [-1, -1, 1], "think_s": [0, 0, 4]},
    ),
    "azure_2023.csv": Sample(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n",
        [0, 4.314579], [374, 396], [44, 109], "line 3",
    ),
    "azure_2024.csv": Sample(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 00:00:00.017335+00:00,2399,6\n",
        [0, 0.007405], [2162, 2399], [5, 6], "line 3",
    ),
    "burst.csv": Sample(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n",
        [0, 113], [472, 417], [18, 276], "line 4", ["column Model", "column Log Type", "1 of 3 rows"],
    ),
    "burst_2.csv": Sample(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
        "19440161.0,d5983bf9,2,ChatGPT,36,29,65,Conversation log\n",
        [0, 51], [906, 36], [446, 29], "line 3", ["column Model", "column Log Type"],
    ),
    "mooncake.jsonl": Sample(
        lines({"timestamp": 0, "input_length": 1300, "output_length": 50, "hash_ids": [0, 1, 2]},
              {"timestamp": 3000, "input_length": 1200, "output_length": 5, "hash_ids": [0, 1, 9]},
              {"timestamp": 3500, "input_length": 600, "output_length": 6, "hash_ids": [0, 4]},
              {"timestamp": 4000, "input_length": 100, "output_length": 7, "hash_ids": [8]}),
        [0, 3, 3.5, 4], [1300, 1200, 600, 100], [50, 5, 6, 7], "line 4", [],
        {"node": [1, 1, 0, -1], "parent": [-1, 0], "end": [512, 1024]},
    ),
    "aiperf.jsonl": Sample(
        lines(aiperf(10**18 + 2 * 10**9, 550, 20), aiperf(10**18, 500, 10),
              aiperf(10**18 + 10**9, 1, 1, error={"code": 500}), aiperf(10**17, 5, 5, benchmark_phase="warmup")),
        [0, 2], [500, 550], [10, 20], "line 1", ["2 of 4 records"],
    ),
    "bench.json": Sample(
        json.dumps({"date": "20261101", "model_id": "m", "completed": 2, "input_lens": [20, 10, 30],
                    "output_lens": [3, 2, 0], "ttfts": [0.1, 0.1, 0], "itls": [[0.1, 0.2], [0.1], []],
                    "start_times": [105.5, 105.0, 106.0], "errors": ["", "", "boom"]}),
        [0, 0.5], [10, 20], [2, 3], "field input_lens[0]", ["1 of 3 requests"],
    ),
    "bench_old.json": Sample(
        json.dumps({"input_lens": [20, 10], "output_lens": [3, 2], "ttfts": [0.1, 0.1]}, indent=2),
        None, [20, 10], [3, 2], "field input_lens[1]",
    ),
    "guidellm.json": Sample(
        json.dumps({"benchmarks": [{"requests": {
            "successful": [{"prompt_tokens": 8, "output_tokens": 2, "request_start_time": 1.7e9 + 1.5},
                           {"prompt_tokens": 9, "output_tokens": 3, "start_time": 1.7e9}],
            "incomplete": [{}], "errored": []}}]}, indent=1),
        [0, 1.5], [9, 8], [3, 2], "field benchmarks[0].requests.successful[0]", ["1 of 3 requests"],
    ),
    "sharegpt.json": Sample(
        json.dumps([said("a" * 40, "b" * 80, "c" * 12, "d" * 20), said("only a question"), said("x" * 4, "y" * 400)]),
        None, [10, 1], [20, 100], "conversation 3", ["texts of --trace", "1 of 3 conversations"],
    ),
}  # fmt: skip


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def columns(trace: RequestTrace) -> dict[str, list[float]]:
    """Those columns that are there."""
    found = trace.requests
    tree = found.prefixes
    named = {"adapter": found.adapter, "priority": found.priority, "follows": found.follows, "think_s": found.think_s}
    named |= {"node": tree.node, "parent": tree.parent, "end": tree.end} if tree else {}
    return {name: values.tolist() for name, values in named.items() if values is not None}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_read_as_it_is_meant(tmp_path: Path, name: str, packed: bool) -> None:
    sample = SAMPLES[name]
    path = write(tmp_path, name + ".gz" * packed, sample.text)
    trace = read_trace(path)
    found = trace.requests
    assert found.input_tokens.tolist() == sample.input_tokens
    assert found.output_tokens.tolist() == sample.output_tokens
    assert trace.timed == (sample.arrival_s is not None)
    assert found.arrival_s.tolist() == pytest.approx(sample.arrival_s or [0.0] * len(found), abs=1e-6)
    assert trace.spot_of(len(found) - 1) == sample.spot == trace.spot_of(2 * len(found) - 1)
    assert [one.option for one in trace.not_modelled] == sample.idle
    there = columns(trace)
    for column, values in sample.columns.items():
        assert there[column] == values, column
    if not sample.columns:
        assert there == {}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_part_is_the_beginning_of_all(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, SAMPLES[name].text)
    whole = read_trace(path).requests
    for count in range(1, len(whole) + 1):
        part = read_trace(path, count).requests
        assert len(part.first(count)) == count
        for column in ("arrival_s", "input_tokens", "output_tokens"):
            assert np.array_equal(getattr(part, column)[:count], getattr(whole, column)[:count])


LETTERS = [b"-", b"x", b"}", b"[", b",", b"\xff", b'"', b"e9", b"\n"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path: Path, name: str) -> None:
    """Bytes cut off, left out, doubled or replaced: an error names the file, and nothing else happens."""
    text, draws = SAMPLES[name].text.encode(), random.Random(name)
    refused = 0
    for trial in range(150):
        at, length = draws.randrange(len(text)), draws.randint(1, 9)
        damage = (text[:at], text[:at] + text[at + length :], text[: at + length] + text[at:],
                  text[:at] + draws.choice(LETTERS) + text[at + 1 :])  # fmt: skip
        path = tmp_path / f"{trial}-{name}"
        path.write_bytes(damage[trial % 4])
        try:
            found = load.requests(path, rate_per_s=1.0)
            assert len(found) and found.input_tokens.min() >= 1 and np.all(np.diff(found.arrival_s) >= 0)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error) and name in str(error)
    assert refused > 20


WRONG = {
    "two models": (
        OWN + "0,9,9,,,,,,,a\n1,9,9,,,,,,,b\n",
        "line 3, column model: asks for a second model, 'b' after 'a'",
    ),
    "prefix too long": (
        OWN + "0,9,9,g,10,,,,,\n",
        "line 2, column prefix_tokens: '10' is more than the tokens of the prompt",
    ),
    "prefix of none": (
        OWN + "0,9,9,,5,,,,,\n",
        "column prefix_tokens: '5' tokens are shared, and there is no prefix_group",
    ),
    "priority": (OWN + "0,9,9,,,,,,1.5,\n", "line 2, column priority: '1.5' is not a whole number"),
    "think": (OWN + "0,9,9,,,,s,-1,,\n", "line 2, column think_s: '-1' is not a time of zero or more seconds"),
    "long name": (OWN + f"0,9,9,,,{'x' * 64},,,,\n", "line 2, column adapter: 'xxx"),
    "not ascii": (OWN + "0,9,9,,,é,,,,\n", "line 2, column adapter: 'é' has letters that are not ASCII"),
    "burst order": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,1,1,2,l\n4,m,1,1,2,l\n",
        "line 3, column arrival_s: the request arrives before",
    ),
    "burst value": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,1,-1,2,l\n",
        "line 2, column output_tokens: '-1' is not a whole number of zero or more",
    ),
    "unknown key": (
        '{"input_tokens": 1, "output_tokens": 1, "rate": 2}\n',
        "line 1: unknown key 'rate'. Known: arrival_s",
    ),
    "second arrival": (
        lines({"input_tokens": 1, "output_tokens": 1}, {"input_tokens": 1, "output_tokens": 1, "arrival_s": 3}),
        "line 2, column arrival_s: is here and not in the first line",
    ),
    "falling": (
        lines(*({"input_tokens": 1, "output_tokens": 1, "arrival_s": at} for at in (3, 2))),
        "line 2, column arrival_s: the request arrives before the one above it",
    ),
    "json value": (
        '{"input_tokens": 1.5, "output_tokens": 1}\n',
        "line 1, column input_tokens: 1.5 is not a positive whole",
    ),
    "json line": ('{"input_tokens": 1, "output_tokens": 1}\n{"input_tokens": 1,\n', "line 2: is not JSON"),
    "json twice": ('{"input_tokens": 1, "input_tokens": 2, "output_tokens": 1}\n', "the key 'input_tokens'"),
    "json models": (
        lines(*({"input_tokens": 1, "output_tokens": 1, "model": name} for name in "ab")),
        "line 2, column model: asks for a second model, 'b' after 'a'",
    ),
    "mooncake hash": (
        lines({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]}),
        "line 1, column hash_ids: has 2 blocks of 512 tokens, and the prompt 5 tokens",
    ),
    "mooncake key": (
        lines({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1], "text": "x"}),
        "line 1: unknown key 'text'",
    ),
    "aiperf": (
        lines({"metadata": {"request_start_ns": 5}, "metrics": {}}),
        "column metrics.input_sequence_length: is missing",
    ),
    "vllm summary": (
        json.dumps({"total_input_tokens": 5, "request_throughput": 2}),
        "with --save-result --save-detailed",
    ),
    "vllm lengths": (
        json.dumps({"input_lens": [1, 2], "output_lens": [1]}),
        "field output_lens: has 1 values, and input_lens 2",
    ),
    "vllm value": (
        json.dumps({"input_lens": [1, "x"], "output_lens": [1, 1]}),
        "field input_lens[1]: 'x' is not a number",
    ),
    "genai-perf": (json.dumps({"experiments": []}), "AIPerf writes profile_export.jsonl"),
    "aiperf summary": (
        json.dumps({"aiperf_version": "0.12.0"}, indent=1),
        "AIPerf has its requests in profile_export.jsonl",
    ),
    "guidellm two": (
        json.dumps({"benchmarks": [{}, {}]}),
        "field benchmarks: has 2 benchmarks, and a load is one of them",
    ),
    "guidellm old": (
        json.dumps({"benchmarks": [{"results": []}]}),
        "has no list `successful`. Read are files of GuideLLM with all requests",
    ),
    "unknown object": (json.dumps({"a": 1}), "is a JSON object, and not one of vllm bench serve"),
    "sharegpt": ('[{"id": 1}]', "conversation 1: has no list `conversations`"),
    "sharegpt cut": ('[{"conversations": []}', "is not a whole JSON list of conversations"),
    "empty": ("", "has no column input_tokens"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(tmp_path: Path, case: str) -> None:
    text, expected = WRONG[case]
    with pytest.raises(InputError) as caught:
        read_trace(write(tmp_path, "load.any", text))
    assert expected in str(caught.value)


def test_conversations_become_sessions_where_that_is_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "talk.json", SAMPLES["sharegpt.json"].text)
    found = read_trace(path, turns=5, think_s=2.0).requests
    assert found.input_tokens.tolist() == [10, 33, 1] and found.output_tokens.tolist() == [20, 5, 100]
    assert found.prefixes is not None and found.follows is not None and found.think_s is not None
    assert found.follows.tolist() == [-1, 0, -1] and found.think_s.tolist() == [0, 2, 0]
    assert found.prefixes.node.tolist() == [0, 0, -1] and found.prefixes.end.tolist() == [30]
    drawn = load.draw(ServingLoad(trace=str(path), requests=0, rate_per_s=1.0, turns=5, think_s=2.0))
    assert drawn.follows is not None and np.all(np.diff(drawn.arrival_s) >= 0)
    later = np.flatnonzero(drawn.follows >= 0)
    assert drawn.input_tokens[later].tolist() == [33]
    with pytest.raises(InputError, match="only conversations"):
        read_trace(write(tmp_path, "load.csv", SAMPLES["own.csv"].text), turns=2)


def test_conversations_are_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from functools import partial

    from gnomon.load import files
    from gnomon.load.recorded import sharegpt

    talk = [said("é" * (n % 90 + 1) * 4, "b" * 4 * (n % 7 + 1)) for n in range(200)]
    path = write(tmp_path, "talk.json", json.dumps(talk, ensure_ascii=False, indent=1))
    whole = read_trace(path).requests
    assert whole.input_tokens.tolist() == [n % 90 + 1 for n in range(200)]
    for size in (1, 7, 1000):
        monkeypatch.setattr(sharegpt, "blocks", partial(files.blocks, size=size))
        assert read_trace(path).requests.same(whole)


def test_a_repeated_trace_shares_prefixes_and_has_sessions_of_its_own(tmp_path: Path) -> None:
    path = str(write(tmp_path, "own.csv", SAMPLES["own.csv"].text))
    found = load.draw(ServingLoad(trace=path, requests=11))
    assert found.prefixes is not None and found.follows is not None and found.adapter is not None
    assert found.prefixes.node.tolist() == [0, 1, 1, -1, 0, 1, 1, -1, 0, 1, 1]
    assert found.prefixes.end.tolist() == [50, 60]
    assert found.follows.tolist() == [-1, -1, 0, 2, -1, -1, 4, 6, -1, -1, 8]
    assert found.adapter.tolist() == [0, 0, -1, 1] * 2 + [0, 0, -1]
    faster = load.draw(ServingLoad(trace=path, requests=11, rate_per_s=50.0))
    assert faster.rate_per_s == pytest.approx(50.0) and np.array_equal(faster.follows, found.follows)
    assert np.array_equal(faster.priority, found.priority) and np.array_equal(faster.think_s, found.think_s)


GROUPED = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 5)), min_size=1, max_size=25)


def shared(tree: Prefixes | None, one: int, two: int) -> int:
    """Tokens that two requests have in common, by the tree."""
    if tree is None:
        return 0
    above = []
    for at in (one, two):
        node, path = int(tree.node[at]), set()
        while node >= 0:
            path.add(node)
            assert int(tree.parent[node]) < node
            node = int(tree.parent[node])
        above.append(path)
    return max((int(tree.end[node]) for node in above[0] & above[1]), default=0)


@given(GROUPED)
@settings(max_examples=examples(150))
def test_requests_of_a_group_share_the_shorter_prefix(rows: list[tuple[int, int]]) -> None:
    group, tokens = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    tree = by_groups(group, tokens)
    for one in range(len(rows)):
        for two in range(one):
            both = group[one] == group[two] >= 0
            assert shared(tree, one, two) == (min(tokens[one], tokens[two]) if both else 0)
    if tree is not None:
        assert all((tree.node == node).sum() + (tree.parent == node).sum() >= 1 for node in range(tree.parent.size))


CHAINS = st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=6), st.integers(1, 512)), min_size=1, max_size=14)


@given(CHAINS)
@settings(max_examples=examples(150))
def test_chains_of_hashes_share_what_they_begin_with(rows: list[tuple[list[int], int]]) -> None:
    chains = np.array([one for ids, _ in rows for one in ids], np.int64)
    sizes = np.array([len(ids) for ids, _ in rows], np.int64)
    prompts = np.maximum((sizes - 1) * 512, 0) + np.array([last for _, last in rows])
    tree = by_chains(chains, sizes, prompts, 512)
    for one, (mine, _) in enumerate(rows):
        for two, (theirs, _) in enumerate(rows[:one]):
            same = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
            blocks = min(len(mine), len(theirs)) if same is None else same
            found = shared(tree, one, two)
            assert found <= min(blocks * 512, prompts[one], prompts[two])
            assert found > (blocks - 1) * 512 if blocks else found == 0


@given(st.lists(st.sampled_from(["", "a", "b", "a" * 63, "lora-17", "8", "08"]), min_size=1, max_size=30))
def test_names_are_numbered_as_they_appear(names: list[str]) -> None:
    order = list(dict.fromkeys(name for name in names if name))
    expected = [order.index(name) if name else -1 for name in names]
    assert numbered(name_numbers(np.array(names, "S64"))).tolist() == expected
    before: dict[int, int] = {}
    for place, (session, follows) in enumerate(zip(expected, followed(np.array(expected)).tolist(), strict=True)):
        assert follows == (before.get(session, -1) if session >= 0 else -1)
        before[session] = place


def test_lengths_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "lengths.txt", "tokens\n5\n\n70\n8\n")
    found, counts = read_lengths(path)
    assert (found.tolist(), counts) == ([5, 70, 8], None)
    drawn = load.draw(ServingLoad(input_tokens=_lengths(path), output_tokens=3, requests=3000))
    assert set(drawn.input_tokens.tolist()) == {5, 70, 8}
    for text, expected in {
        "": "has no lengths",
        "5\nx\n": "line 2: 'x' is not a whole number",
        "0\n": "line 1: '0'",
    }.items():
        with pytest.raises(InputError, match=expected):
            read_lengths(write(tmp_path, "lengths.txt", text))


def test_histograms_of_lengths(tmp_path: Path) -> None:
    """The same histogram as CSV, with columns in any order, and as JSONL; lengths come as often as it says."""
    texts = {
        "a.csv": "tokens,count\n5,1\n70,3\n",
        "b.csv": "5,1\n70,3\n",
        "c.csv": "source,count,length\nweb,1,5\nbook,3,70\n",
        "d.jsonl": '{"length": 5, "count": 1}\n{"count": 3, "length": 70}\n',
    }
    for name, text in texts.items():
        found, counts = read_lengths(write(tmp_path, name, text))
        assert counts is not None
        assert (found.tolist(), counts.tolist()) == ([5, 70], [1, 3]), name
    path = tmp_path / "a.csv"
    drawn = load.draw(ServingLoad(input_tokens=_lengths(path), output_tokens=3, requests=4000))
    assert np.mean(drawn.input_tokens == 70) == pytest.approx(0.75, abs=0.03)
    plain, _ = read_lengths(write(tmp_path, "e.jsonl", '{"length": 5}\n{"length": 70}\n'))
    assert plain.tolist() == [5, 70]
    for text, expected in {
        "a,b\n1,2\n": "line 1: has no column length",
        "tokens,count\n5\n": "line 2: the line has 1 cells",
        "tokens,count\n5,0\n": "line 2: '0' is not a count",
        '{"length": 5}\n{"size": 5}\n': "line 2: has no length",
        '{"length": true}\n': "line 1: 'True' is not a whole number",
        "{": "line 1: is not JSON",
    }.items():
        with pytest.raises(InputError, match=expected):
            read_lengths(write(tmp_path, "wrong.txt", text))


def _lengths(path: Path) -> Any:
    from gnomon.spec.loads.lengths import lengths_of

    return lengths_of(f"file:{path}", "--input")


MEASURE = """
import resource, sys
from gnomon.load.traces import read_trace
found = read_trace(sys.argv[1]).requests
print(len(found), found.adapter.max(), found.prefixes.end.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MOST_KIB = 2 * 1024**2


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_ten_million_requests_take_two_gibibytes(tmp_path: Path, ending: str) -> None:
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
    path, count, block = tmp_path / f"long.{ending}", 9_990_000, 10_000
    names = ("arrival_s", "input_tokens", "output_tokens", "prefix_group", "prefix_tokens", "adapter", "session")
    row = ",".join(["{:.2f}", "900", "50", "{}", "64", "{}", "{}"]) + "\n"
    if ending == "jsonl":
        row = '{{"arrival_s":{:.2f},"input_tokens":900,"output_tokens":50,"prefix_group":{},'
        row += '"prefix_tokens":64,"adapter":{}}}\n'
    with path.open("w") as file:
        file.write(",".join(names) + "\n" if ending == "csv" else "")
        for first in range(0, count, block):
            file.write("".join(row.format(n / 64, n % 999, n % 97, n) for n in range(first, first + block)))
    ran = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    rows, adapters, nodes, peak_kib = map(int, ran.stdout.split())
    assert (rows, adapters, nodes) == (count, 96, 999)
    assert peak_kib < MOST_KIB
