from __future__ import annotations

from dataclasses import replace

from gnomon import catalog
from gnomon.load import model as load_model
from gnomon.load import parse_fleet
from gnomon.search import families
from gnomon.search.space import spreads, tensor_degrees
from gnomon.spec import Pool

BUDGETS = {"max_num_seqs": (64, 256), "max_num_batched_tokens": (2048,)}


def test_degrees_stay_within_a_node_and_cut_evenly() -> None:
    llama = load_model("llama-3.1-70b")
    chip = catalog.chip("H100")
    assert tensor_degrees(llama, Pool(chip=chip, count=16, per_node=8)) == [1, 2, 4, 8]
    assert tensor_degrees(llama, Pool(chip=chip, count=3, per_node=8)) == [1, 2]


def test_key_value_heads_are_cut_or_copied() -> None:
    llama = load_model("llama-3.1-8b")
    block = llama.blocks[0]
    pool = Pool(chip=catalog.chip("H100"), count=8, per_node=8)
    two = replace(llama, blocks=(replace(block, mixer=replace(block.mixer, kv_heads=2)),))
    three = replace(llama, blocks=(replace(block, mixer=replace(block.mixer, heads=24, kv_heads=3)),))
    odd = replace(llama, blocks=(replace(block, mixer=replace(block.mixer, heads=28, kv_heads=4)),))
    assert tensor_degrees(two, pool) == [1, 2, 4, 8]
    assert tensor_degrees(three, pool) == [1]
    assert tensor_degrees(odd, pool) == [1, 2, 4]


def test_experts_are_cut_or_spread() -> None:
    mixtral = load_model("mixtral-8x7b")
    assert [spreads(mixtral, tp) for tp in (1, 2, 8, 16)] == [(1,), (1, 2), (1, 8), (1,)]
    assert spreads(load_model("llama-3.1-8b"), 8) == (1,)
    space = families(mixtral, parse_fleet("H100:8"), ("bf16",), lambda pool: {"max_num_seqs": (64,)})
    alone = [family for family in space if family.dp == 1]
    assert [(family.tp, family.ep) for family in alone] == [(1, 1), (2, 1), (2, 2), (4, 1), (4, 4), (8, 1), (8, 8)]
    shared = [(family.tp, family.dp, family.ep) for family in space if family.dp > 1]
    assert shared == [(1, 2, 2), (1, 4, 4), (1, 8, 8), (2, 2, 4), (2, 4, 8), (4, 2, 8)]
    assert len({family.shape for family in space}) == 13
    assert all(family.most == 8 // family.chips for family in space)


def test_families_cover_the_product() -> None:
    fleet = parse_fleet("H100:16")
    space = families(load_model("llama-3.1-70b"), fleet, ("bf16", "fp8"), lambda pool: BUDGETS)
    assert len(space) == 5 * 2 * 2
    assert len(set(space)) == len(space)
    assert sorted({family.most for family in space}) == [1, 2, 4, 8, 16]
    assert {(family.tp, family.pp) for family in space if family.pp > 1} == {(8, 2)}
    assert all(family.usd_h == family.chips * fleet.pools[0].chip.price_usd_h for family in space)
    assert [family.order for family in space] == list(range(len(space)))


def test_formats_need_a_rate_and_settings_must_be_allowed() -> None:
    fleet = parse_fleet("H100:8")
    pool = fleet.pools[0]
    without = replace(pool.chip, rates_flops={"bf16": 1e15})
    fleet = replace(fleet, pools=(replace(pool, chip=without),))
    space = families(
        load_model("llama-3.1-8b"),
        fleet,
        ("bf16", "fp8"),
        lambda pool: BUDGETS,
        lambda settings: settings["max_num_seqs"] < 100,
    )
    assert {family.dtype for family in space} == {"bf16"}
    assert {dict(family.settings)["max_num_seqs"] for family in space} == {64}
