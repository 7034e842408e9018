"""Versions of vLLM: what a plan of 0.33 says otherwise than one of 0.24."""

from __future__ import annotations

import shlex

import pytest

import gnomon
from gnomon.api.export import export
from gnomon.engines import engine
from gnomon.engines.vllm.captures import captured_sizes
from gnomon.engines.vllm.command_line import read_arguments
from gnomon.engines.vllm.later_arguments import release_flags
from gnomon.engines.vllm.releases import release
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load.fleet import parse_pool
from gnomon.spec import EngineChoice, Plan, Strategy

LATER = "0.33.0"


def test_the_measured_version_is_meant_where_none_is_named() -> None:
    assert engine("vllm").version == "0.24.0" and engine("vllm@0.33").version == LATER


@pytest.mark.parametrize(
    ("chip", "first", "later"),
    [("H200", 8192, 8192), ("B200", 8192, 16384), ("A100", 2048, 2048), ("DGX-Spark", 8192, 2048)],
)
def test_batch_defaults(chip: str, first: int, later: int) -> None:
    model, pool = load_model("qwen3-8b"), parse_pool(f"{chip}:1")
    found = [engine(f"vllm@{one}").settings({}, model, pool)["max_num_batched_tokens"] for one in ("0.24.0", LATER)]
    assert found == [first, later]


def test_the_largest_decode_batch_is_captured() -> None:
    model, pool = load_model("qwen3-8b"), parse_pool("H200:1")
    for version, captured in (("0.24.0", False), (LATER, True)):
        settings = engine(f"vllm@{version}").settings({"max_num_seqs": 100}, model, pool)
        assert (100 in captured_sizes(settings, pool.chip, release(version))) is captured


def test_graphs_take_memory_of_the_cache() -> None:
    first, later = (gnomon.fit("qwen3-8b", on="H200", engine=f"vllm@{one}").to_dict() for one in ("0.24.0", LATER))
    assert later["parts"]["runtime"] > first["parts"]["runtime"] and later["parts"]["kv"] < first["parts"]["kv"]


def test_the_answer_says_which_version_the_host_was_measured_on() -> None:
    answers = [
        gnomon.predict("qwen3-8b", on="H200", phase="decode", batch=8, context=512, engine=f"vllm@{one}").to_dict()
        for one in ("0.24.0", LATER)
    ]
    sources = [{line["time_s"]["source"] for line in answer["breakdown"]} for answer in answers]
    assert any("not measured on 0.33.0" in source for source in sources[1])
    assert not any("not measured" in source for source in sources[0])


@pytest.mark.heavy
def test_what_a_later_scheduler_does_otherwise_is_said() -> None:
    called = {"rate": 5, "input": 200, "output": 20, "requests": 20, "settings": {}}
    called["settings"] = {"speculative_method": "ngram_gpu", "draft_acceptance": "0.5"}
    said = [
        gnomon.simulate_serving("qwen3-8b", on="H200", engine=f"vllm@{one}", **called).to_dict()["not_modelled"]
        for one in ("0.24.0", LATER)
    ]
    assert not said[0] and [one["option"] for one in said[1]] == ["speculative_method=ngram_gpu"]


def plan(model: str, version: str) -> Plan:
    choice = EngineChoice(version=version, settings={})
    return Plan(model=model, chip="H200", replicas=1, strategy=Strategy(), dtype="bf16", kv_dtype="", engine=choice)


def test_a_command_says_what_is_not_simulated_as_the_release_does_it() -> None:
    found = {one: export(plan("granite-4.0-h-small", one)).command for one in ("0.24.0", LATER)}
    assert "--no-enable-prefix-caching" in shlex.split(found[LATER])
    assert "prefix-caching" not in found["0.24.0"]


def test_flags_of_one_release_are_refused_by_the_other() -> None:
    flags = release_flags(LATER)
    words = ("m", "--max-num-active-seqs", "8", "--disable-prefix-caching", "--device-memory-utilization", "0.8")
    assert read_arguments(words, flags.table).values == {
        "max-num-active-seqs": "8", "enable-prefix-caching": False, "gpu-memory-utilization": "0.8",
    }  # fmt: skip
    for flag in (words[1], words[3], words[4]):
        with pytest.raises(InputError, match=r"unknown flag of vLLM 0\.24"):
            read_arguments(("m", flag, "8"))
    assert "does not have" in flags.unused["calculate-kv-scales"].why


def test_an_image_names_the_version() -> None:
    made = gnomon.import_plan("docker run vllm/vllm-openai:v0.33.0 --model qwen3-8b --max-num-queued-reqs 9", on="H200")
    assert made.to_dict()["plan"]["engine"]["version"] == LATER
    assert any("max-num-queued-reqs" in one["option"] for one in made.to_dict()["ignored"])
