"""Facts with their source and date: chips, machines, prices, grids and models that Gnomon knows by name."""

from gnomon.catalog.fitted import PROFILES, forget_profiles, profile_data, profile_kinds, profile_paths
from gnomon.catalog.hardware import (
    chip,
    chip_from_entry,
    chip_names,
    chip_spellings,
    chips,
    find_chip,
    node_of,
    unknown_chip,
)
from gnomon.catalog.machines import bare_node, host, host_from_entry, host_names, link, link_names, node, node_names
from gnomon.catalog.market import cloud_names, grid, grid_names, price_at, prices
from gnomon.catalog.networks import ModelEntry, model_config_path, model_entry, model_names, model_title

__all__ = [
    "PROFILES", "ModelEntry", "bare_node", "chip", "chip_from_entry", "chip_names", "chip_spellings", "chips",
    "cloud_names", "find_chip", "forget_profiles", "grid", "grid_names", "host", "host_from_entry", "host_names",
    "link", "link_names", "model_config_path", "model_entry", "model_names", "model_title", "node", "node_names",
    "node_of", "price_at", "prices", "profile_data", "profile_kinds", "profile_paths", "unknown_chip",
]  # fmt: skip
