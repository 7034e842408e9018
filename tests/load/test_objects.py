"""Models and chips given as objects: broken ones are refused where they come in, whatever is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import gnomon
from gnomon import catalog
from gnomon.errors import GnomonError, InputError
from gnomon.load import model as load_model
from gnomon.load.fleet import parse_pool
from gnomon.load.objects import checked_cluster, checked_model, checked_pool
from gnomon.spec import Block, Cluster, DenseFfn, Model, MoeFfn, Pool

NAN, INF = float("nan"), float("inf")
MODEL = load_model("llama-3.2-1b")
POOL = parse_pool("H100:8")
(BLOCK,) = MODEL.blocks


def layers(**changed: Any) -> Model:
    return replace(MODEL, blocks=(replace(BLOCK, **changed),))


def mixer(**changed: Any) -> Model:
    return layers(mixer=replace(BLOCK.attention, **changed))


def chip(**changed: Any) -> Pool:
    return replace(POOL, chip=replace(POOL.chip, **changed))


def node(**changed: Any) -> Pool:
    assert POOL.node is not None
    return replace(POOL, node=replace(POOL.node, **changed))


MODELS: dict[str, Model] = {
    "no layers": replace(MODEL, blocks=()),
    "a list of layers": replace(MODEL, blocks=[BLOCK]),  # type: ignore[arg-type]
    "negative layers": layers(count=-16),
    "half a layer": layers(count=0.5),
    "nothing in a layer": layers(mixer=None, ffn=None),
    "a text of layers": layers(count="16"),
    "no heads": mixer(heads=0),
    "negative key heads": mixer(kv_heads=-8),
    "key heads that divide nothing": mixer(kv_heads=5),
    "a head of nan": mixer(head_dim=NAN),
    "negative width": replace(MODEL, hidden=-2048),
    "no width": replace(MODEL, hidden=0),
    "another vocabulary": replace(MODEL, vocab=None),  # type: ignore[arg-type]
    "negative inner width": layers(ffn=DenseFfn(inner=-1)),
    "more experts than there are": layers(ffn=MoeFfn(experts=4, topk=8, inner=64)),
    "an unknown format": replace(MODEL, dtype="fp99"),
    "an object for a mixer": layers(mixer=object()),
}
POOLS: dict[str, Pool] = {
    "no chips": replace(POOL, count=0),
    "negative chips": replace(POOL, count=-8),
    "half a chip": replace(POOL, count=2.5),  # type: ignore[arg-type]
    "no chips of a node": replace(POOL, per_node=0),
    "a name for a chip": replace(POOL, chip="H100"),  # type: ignore[arg-type]
    "bandwidth nan": chip(memory_bandwidth_bytes_s=NAN),
    "bandwidth infinite": chip(memory_bandwidth_bytes_s=INF),
    "bandwidth zero": chip(memory_bandwidth_bytes_s=0),
    "memory negative": chip(memory_bytes=-1.0),
    "no rates": chip(rates_flops={}),
    "a rate of nan": chip(rates_flops={"bf16": NAN}),
    "a rate of nothing": chip(rates_flops={"bf16": 0.0}),
    "no processors": chip(sm_count=0),
    "power none": chip(tdp_w=None),
    "a price below zero": chip(price_usd_h=-1.0),
    "a link of nan": chip(scaleup=replace(POOL.chip.scaleup, bandwidth_bytes_s=NAN)),
    "no link": chip(scaleout=None),
    "a node of no chips": node(chips=0),
    "no adapters": node(adapters=0),
    "a fabric of nan": node(oversubscription=NAN),
}
ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda model, on: gnomon.predict(model, on=on),
    "fit": lambda model, on: gnomon.fit(model, on=on),
    "train step": lambda model, on: gnomon.predict(model, on=on, phase="train", tokens=128),
    "simulate serve": lambda model, on: gnomon.simulate_serving(model, on=on, rate=2, input=9, output=2, requests=5),
    "simulate train": lambda model, on: gnomon.simulate_training(model, on=on, seq=128, global_batch=8),
    "plan train": lambda model, on: gnomon.plan_training(model, cluster=on, seq=128, global_batch=8),
    "try": lambda model, on: gnomon.try_idea("gptq", model=model, on=on),
}


@pytest.mark.parametrize("broken", MODELS)
def test_a_broken_model_is_refused(broken: str) -> None:
    with pytest.raises(InputError):
        checked_model(MODELS[broken])


@pytest.mark.parametrize("broken", POOLS)
def test_a_broken_pool_is_refused(broken: str) -> None:
    with pytest.raises(InputError, match="--on"):
        checked_pool(POOLS[broken], "--on")


@pytest.mark.battery(12)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("broken", [*MODELS, *POOLS])
def test_no_broken_object_is_priced(asked: str, broken: str) -> None:
    with pytest.raises(GnomonError):
        ASKED[asked](MODELS.get(broken, MODEL), POOLS.get(broken, POOL))


def test_a_fleet_is_checked_too() -> None:
    load = {"rate": 2, "input": 9, "output": 2}
    for cluster in (Cluster(pools=()), Cluster(pools=(POOLS["bandwidth nan"],)), Cluster(pools=("H100",))):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="--fleet"):
            gnomon.plan_serving(MODEL, fleet=cluster, **load)  # type: ignore[arg-type]
    assert checked_cluster(Cluster(pools=(POOL,)), "--fleet").pools == (POOL,)


def test_all_that_ships_is_sound() -> None:
    for name in catalog.model_names():
        checked_model(load_model(name))
    for name in catalog.chip_names():
        checked_pool(parse_pool(f"{name}:4"), "--on")


def test_a_what_if_is_priced() -> None:
    faster = chip(memory_bandwidth_bytes_s=10 * POOL.chip.memory_bandwidth_bytes_s)
    asked = {"model": load_model("llama-3.1-8b"), "tp": 1, "batch": 64, "context": 4000}
    assert gnomon.predict(**asked, on=faster).time_s.value < gnomon.predict(**asked, on=POOL).time_s.value
    wider = layers(ffn=DenseFfn(inner=4 * BLOCK.ffn.inner))  # type: ignore[union-attr]
    assert isinstance(wider.blocks[0], Block)
    assert gnomon.predict(wider, on="H100").time_s.value > gnomon.predict(MODEL, on="H100").time_s.value
