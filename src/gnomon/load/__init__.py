"""Readers: what stands in files and on command lines, made into the nouns of `gnomon.spec`."""

from gnomon.load.chips import chip, chip_names, chips
from gnomon.load.cluster import read_cluster
from gnomon.load.fleet import parse_fleet, parse_pool
from gnomon.load.goals import parse_goals, parse_settings
from gnomon.load.hf import config_of, model
from gnomon.load.plan import plan_from_dict, plan_to_yaml, read_plan, write_plan
from gnomon.load.traces import draw, requests

__all__ = [
    "chip",
    "chip_names",
    "chips",
    "config_of",
    "draw",
    "model",
    "parse_fleet",
    "parse_goals",
    "parse_pool",
    "parse_settings",
    "plan_from_dict",
    "plan_to_yaml",
    "read_cluster",
    "read_plan",
    "requests",
    "write_plan",
]
