"""Plans of pools survive the way to JSON and YAML and back; those of one pool keep their flat fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnomon.errors import InputError
from gnomon.load.plan import plan_from_dict, plan_pool, plan_to_yaml, read_plan, write_plan
from gnomon.spec import EngineChoice, Plan, PlanPool, ServingLoad, Strategy
from gnomon.spec.plan_dict import plan_to_dict

LOAD = ServingLoad(rate_per_s=2.0, input_tokens=4000, output_tokens=1000)


def pool(role: str, tp: int, replicas: int, **more: Any) -> PlanPool:
    return PlanPool(
        role=role,
        chip="H100-SXM-80GB",
        replicas=replicas,
        strategy=Strategy(tp=tp),
        dtype="fp8",
        kv_dtype="bf16",
        engine=EngineChoice(version="0.24"),
        **more,
    )


SPLIT = Plan.of_pools((pool("prefill", 2, 2), pool("decode", 4, 1)), model="llama-3.1-70b", load=LOAD)
MIXED = Plan.of_pools(
    (pool("both", 1, 3, weight=2.5), pool("both", 2, 1)), model="llama-3.1-8b", load=LOAD, router="weighted"
)
ONE = Plan.of_pools((pool("both", 4, 2),), model="llama-3.1-70b", load=LOAD)


@pytest.mark.parametrize("plan", [SPLIT, MIXED, ONE])
def test_plans_survive_files(plan: Plan, tmp_path: Path) -> None:
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan
    write_plan(plan, tmp_path / "plan.yaml")
    assert read_plan(tmp_path / "plan.yaml") == plan


def test_one_pool_has_flat_fields_beside_it() -> None:
    written = plan_to_dict(ONE)
    assert [each["role"] for each in written["pools"]] == ["both"]
    assert {name: written[name] for name in written["pools"][0] if name != "role"} == {
        name: value for name, value in written["pools"][0].items() if name != "role"
    }
    assert "pools" not in plan_to_yaml(ONE)
    assert ONE.pools == () and len(ONE.each_pool) == 1


def test_several_pools_have_none() -> None:
    written = plan_to_dict(SPLIT)
    assert not {"chip", "replicas", "strategy", "dtype", "engine"} & written.keys()
    assert SPLIT.chips == 8 and SPLIT.disaggregated and not MIXED.disaggregated


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pools": []}, "there is no pool"),
        ({"kv_transfer": "sideways"}, "unknown kv_transfer"),
        ({"router": "fastest"}, "unknown router"),
        ({"chip": "A100", "replicas": 1, "dtype": "fp8"}, "do not agree"),
    ],
)
def test_what_no_plan_can_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan_from_dict(plan_to_dict(SPLIT) | change)


@pytest.mark.parametrize("roles", [("prefill",), ("decode", "decode"), ("both", "decode"), ("both", "prefill")])
def test_roles_go_together(roles: tuple[str, ...]) -> None:
    written = plan_to_dict(SPLIT)
    written["pools"] = [written["pools"][0] | {"role": role} for role in roles]
    with pytest.raises(InputError, match="do not serve together"):
        plan_from_dict(written)


def test_a_transfer_needs_somebody_to_send_to() -> None:
    with pytest.raises(InputError, match="no KV cache is sent"):
        plan_from_dict(plan_to_dict(MIXED) | {"kv_transfer": "layerwise"})


def test_what_takes_one_pool_refuses_several() -> None:
    with pytest.raises(InputError, match="has 2 pools"):
        plan_pool(SPLIT)
