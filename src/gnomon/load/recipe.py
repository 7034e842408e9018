"""A training recipe as the settings of a plan's engine, and back. Reading is strict, as that of plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.errors import unknown_name
from gnomon.load.fields import Fields
from gnomon.spec.recompute import parse
from gnomon.spec.training import CP_COMM_NAMES, DISPATCHES, MAX_ZERO, OPTIMIZERS, Recipe


def recipe_of(settings: Mapping[str, Any], where: str = "engine.settings") -> Recipe:
    """The recipe that settings hold, what they do not name by the recipe's own defaults."""
    return read_recipe(Fields(settings, where))


def read_recipe(fields: Fields) -> Recipe:
    """The recipe of fields, whose errors name them."""
    from gnomon.sim.training import names

    default = Recipe()
    recipe = Recipe(
        micro_batch=fields.whole("micro_batch", default.micro_batch),
        schedule=_one_of(names(), fields, "schedule", default.schedule),
        recompute=parse(fields.text("recompute", default.recompute), fields.spot("recompute")).text,
        zero=fields.whole("zero", default.zero, least=0, most=MAX_ZERO),
        optimizer=_one_of(OPTIMIZERS, fields, "optimizer", default.optimizer),
        sequence_parallel=fields.flag("sequence_parallel", default.sequence_parallel),
        cp_comm=_one_of(CP_COMM_NAMES, fields, "cp_comm", default.cp_comm),
        expert_tp=fields.whole("expert_tp", default.expert_tp, least=0),
        dp_shard=fields.whole("dp_shard", default.dp_shard, least=0),
        tp_overlap=fields.flag("tp_overlap", default.tp_overlap),
        cp_a2a=fields.whole("cp_a2a", default.cp_a2a, least=0),
        fp8_param_gather=fields.flag("fp8_param_gather", default.fp8_param_gather),
        bf16_layers=fields.text("bf16_layers", default.bf16_layers),
        dispatch=_one_of(DISPATCHES, fields, "dispatch", default.dispatch),
        capacity_factor=_factor(fields, "capacity_factor", default.capacity_factor),
        pad_to_capacity=fields.flag("pad_to_capacity", default.pad_to_capacity),
        imbalance=_factor(fields, "imbalance", default.imbalance),
        ep_overlap=fields.flag("ep_overlap", default.ep_overlap),
        cuda_graphs=fields.flag("cuda_graphs", default.cuda_graphs),
        hpz=fields.whole("hpz", default.hpz, least=0),
        layers_per_stage=fields.text("layers_per_stage", default.layers_per_stage),
    )
    fields.done()
    return recipe


def _factor(fields: Fields, key: str, default: float) -> float:
    """A number above zero, or a default of zero as it is."""
    return default if not default and fields.raw(key, default) == 0 else fields.number(key, default)


def _one_of(known: tuple[str, ...], fields: Fields, key: str, default: str) -> str:
    name = fields.text(key, default)
    if name not in known:
        raise unknown_name(key, name, known, where=fields.spot(key))
    return name
