"""Drafts, adapters and blocks on the host: flags of `vllm serve` that act in a plan, and come back from its export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.engines import engine
from gnomon.engines.vllm.drafts import DRAFTS
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load.plan import plan_pool, read_plan
from gnomon.spec import EngineChoice, Plan, PlanPool, Strategy

SERVE = "vllm serve llama-3.1-8b"
DRAFTER = "meta-llama/Llama-3.2-1B-Instruct"
HEAD = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
ASSUMED = "draft_acceptance"


def spec(**fields: Any) -> str:
    return f"--speculative-config '{json.dumps(fields)}'"


def drafts(method: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {"speculative_method": method, "num_speculative_tokens": tokens, **more}


READ = [
    (spec(method="ngram", num_speculative_tokens=4), drafts("ngram", 4)),
    (spec(model="[ngram]", num_speculative_tokens=4), drafts("ngram", 4)),
    ("--speculative-config.method ngram_gpu --speculative-config.num_speculative_tokens 2", drafts("ngram_gpu", 2)),
    ("--spec-method ngram --spec-tokens 5", drafts("ngram", 5)),
    (
        spec(model=DRAFTER, num_speculative_tokens=3),
        drafts("draft_model", 3, draft_model=DRAFTER, draft_parameters=float(load_model("llama-3.2-1b").parameters)),
    ),
    (spec(method="eagle", model="some/head", num_speculative_tokens=2), drafts("eagle", 2, draft_model="some/head")),
    (spec(method="eagle3", model=HEAD, num_speculative_tokens=2), drafts("eagle3", 2, draft_model=HEAD)),
    (spec(model=HEAD, num_speculative_tokens=2), drafts("eagle3", 2, draft_model=HEAD)),
    (
        "--enable-lora --max-loras 4 --max-lora-rank 32 --max-cpu-loras 8",
        {"enable_lora": True, "max_loras": 4, "max_lora_rank": 32, "max_cpu_loras": 8},
    ),
    ("--kv-offloading-size 16", {"kv_offloading_size": 16.0}),
    ("--scheduling-policy priority", {"scheduling_policy": "priority"}),
]


@pytest.mark.parametrize(("flags", "settings"), READ)
def test_flags_are_settings(flags: str, settings: dict[str, Any]) -> None:
    found = gnomon.import_plan(f"{SERVE} {flags}", on="H100")
    assert found.plan.engine.settings == settings
    assert {one.option for one in found.ignored if one.affects} == (
        {ASSUMED} if "speculative_method" in settings else set()
    )


def test_prediction_heads_are_those_of_the_network() -> None:
    flags = spec(method="deepseek_mtp", num_speculative_tokens=1)
    found = gnomon.import_plan(f"vllm serve deepseek-v3 --tensor-parallel-size 8 {flags}", on="H200:8")
    assert found.plan.engine.settings == drafts("mtp", 1)
    with pytest.raises(InputError, match=r"llama-3\.1-8b has no layers for multi-token prediction"):
        gnomon.import_plan(f"{SERVE} {flags}", on="H100")


LISTED = [
    (spec(method="suffix", num_speculative_tokens=8), "--speculative-config"),
    (spec(model="package.Proposer", num_speculative_tokens=8), "--speculative-config"),
    (spec(method="ngram", num_speculative_tokens=8, prompt_lookup_max=4), "--speculative-config.prompt_lookup_max"),
    ("--kv-offloading-size 16 --kv-offloading-backend lmcache", "--kv-offloading-backend"),
    ("--enable-lora --lora-modules a=b", "--lora-modules"),
    ("--cpu-offload-params mlp", "--cpu-offload-params"),
]


@pytest.mark.parametrize(("flags", "option"), LISTED)
def test_what_is_not_priced_is_listed(flags: str, option: str) -> None:
    found = gnomon.import_plan(f"{SERVE} {flags}", on="H100")
    assert option in [one.option.split()[0] for one in found.ignored if one.affects]


def test_sizes_of_adapters_without_adapters_change_nothing() -> None:
    found = gnomon.import_plan(f"{SERVE} --max-loras 4 --max-lora-rank 32", on="H100")
    assert not found.plan.engine.settings
    assert not [one for one in found.ignored if one.affects]


BAD = [
    (spec(method="n_gram", num_speculative_tokens=2), "unknown method 'n_gram'"),
    (spec(method="ngram"), "does not say how many drafts"),
    (spec(method="mtp"), "does not say how many drafts"),
    (spec(method="ngram", num_speculative_tokens=0), "'0' is not a number of drafts"),
    (spec(method="ngram", num_speculative_tokens=-1), "'-1' is not between"),
    (spec(method="ngram", num_speculative_tokens=2.5), "'2.5' is not a whole number"),
    (spec(method="ngram", num_speculative_tokens=True), "'True' is not a whole number"),
    (spec(method="ngram", num_speculative_tokens=[3]), "is not a whole number"),
    (spec(method="draft_model", num_speculative_tokens=2), "draft_model names no draft model"),
    (spec(method="eagle", num_speculative_tokens=2), "eagle names no draft model"),
    (spec(model="nobody/draft", num_speculative_tokens=2), "config.model: unknown model 'nobody/draft'"),
    (spec(num_speculative_tokens=2), "neither a method nor a draft model"),
    (spec(), "neither a method nor a draft model"),
    (spec(method="ngram", num_speculative_tokens=2, lookup=3), "unknown field 'lookup'"),
    (spec(method={"a": 1}, num_speculative_tokens=2), "is no name"),
    ("--speculative-config ngram", "'ngram' is no JSON object"),
    ("--speculative-config '[]'", "is no JSON object"),
    ("--spec-method ngram --speculative-config.method ngram", "is said by --spec-method too"),
    ("--enable-lora --max-lora-rank 33", "takes no rank of 33"),
    ("--enable-lora --max-loras 4 --max-cpu-loras 2", "less than max_loras 4"),
    ("--enable-lora --max-loras none", "'none' is not a whole number"),
    ("--kv-offloading-size 8 --no-enable-prefix-caching", "prefix caching, which is off"),
    ("--kv-offloading-size -8", "is not between 0"),
    ("--kv-offloading-backend disk", "unknown backend 'disk'"),
    ("--scheduling-policy lifo", "'lifo' is not one of fcfs, priority"),
]


@pytest.mark.parametrize(("flags", "why"), BAD)
def test_what_vllm_would_refuse_is_refused_in_one_line(flags: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as raised:
        gnomon.import_plan(f"{SERVE} {flags}", on="H100")
    assert "\n" not in str(raised.value)


PLANNED = [settings for _, settings in READ] + [
    drafts("ngram", 3, draft_acceptance="0.9:0.8:0.75"),
    {"enable_lora": True, "max_loras": 2},
]


@pytest.mark.parametrize("to", ["vllm", "kubernetes", "dynamo"])
@pytest.mark.parametrize("settings", PLANNED)
def test_plans_come_back_from_their_files(settings: dict[str, Any], to: str, tmp_path: Path) -> None:
    plan = Plan(
        model="llama-3.1-8b", chip="H100", replicas=2, strategy=Strategy(tp=2), dtype="bf16",
        engine=EngineChoice(name="vllm", settings=settings),
    )  # fmt: skip
    exported = gnomon.export(plan, to)
    name, text = next(iter(exported.files.items()))
    speculative = "speculative_method" in settings
    assert any(ASSUMED in line for line in exported.not_expressed) == speculative
    assert (f"not in these files: {ASSUMED}" in text) == speculative
    (tmp_path / name).write_text(text)
    found = gnomon.import_plan(tmp_path / name).plan
    assert filled(found) == filled(plan)
    if ASSUMED in settings:
        assert f"{ASSUMED}: '{settings[ASSUMED]}'" in exported.files["plan.yaml"]


ROUND = {
    "ngram": drafts("ngram", 3),
    "ngram_gpu": drafts("ngram_gpu", 3),
    "draft_model": drafts(
        "draft_model", 3, draft_model=DRAFTER, draft_parameters=float(load_model("llama-3.2-1b").parameters)
    ),
    "eagle": drafts("eagle", 2, draft_model="some/head"),
    "eagle3": drafts("eagle3", 2, draft_model=HEAD),
    "eagle3 by its method": drafts("eagle3", 2, draft_model="some/head"),
    "mtp of other weights": drafts("mtp", 2, draft_model="some/mtp-head"),
}
POOLS = {"one pool": ("both",), "prefill and decode": ("prefill", "decode"), "two kinds": ("both", "both")}


@pytest.mark.battery(8)
@pytest.mark.parametrize("version", ["0.24.0", "0.33.0"])
@pytest.mark.parametrize("roles", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("to", ["vllm", "kubernetes", "dynamo"])
@pytest.mark.parametrize("settings", ROUND.values(), ids=ROUND)
def test_drafts_come_back_from_every_target(
    settings: dict[str, Any], to: str, roles: tuple[str, ...], version: str, tmp_path: Path
) -> None:
    """With the name of what writes them."""
    chosen = EngineChoice(name="vllm", version=version, settings={**settings, ASSUMED: "0.7"})
    pools = tuple(
        PlanPool(role=role, chip=chip, replicas=1, strategy=Strategy(), dtype="bf16", engine=chosen)
        for role, chip in zip(roles, ("H200", "H100"), strict=False)
    )
    exported = gnomon.export(Plan.of_pools(pools, model="llama-3.1-8b"), to)
    for name, text in exported.files.items():
        (tmp_path / name).write_text(text)
    for name in exported.files:
        found = gnomon.import_plan(tmp_path / name) if name != "plan.yaml" else None
        for pool in found.plan.each_pool if found else read_plan(tmp_path / name).each_pool:
            told = {key: value for key, value in pool.engine.settings.items() if key in DRAFTS and key != ASSUMED}
            assert told == settings


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_engines_whose_drafts_are_not_modelled_refuse_them(engine: str) -> None:
    """So that none is lost in an export."""
    names = {"sglang": "speculative_algorithm", "trtllm": "speculative_config"}
    plan = Plan(
        model="llama-3.1-8b", chip="H100", replicas=1, strategy=Strategy(), dtype="bf16",
        engine=EngineChoice(name=engine, settings={names[engine]: "EAGLE3"}),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"not modelled|not simulated"):
        gnomon.export(plan, engine)


def filled(plan: Plan) -> dict[str, Any]:
    """All settings that have a flag."""
    found = engine("vllm").settings(plan.engine.settings, load_model(plan.model), plan_pool(plan))
    return {name: value for name, value in found.items() if name != ASSUMED}


def test_a_plan_without_the_weights_of_its_drafts_is_not_started() -> None:
    settings = drafts("eagle3", 2)
    plan = Plan(
        model="llama-3.1-8b", chip="H100", replicas=1, strategy=Strategy(), dtype="bf16",
        engine=EngineChoice(name="vllm", settings=settings),
    )  # fmt: skip
    with pytest.raises(InputError, match="does not start eagle3 without its weights"):
        gnomon.export(plan)
    assert any("draft model" in line for line in gnomon.export(plan, force=True).not_expressed)
