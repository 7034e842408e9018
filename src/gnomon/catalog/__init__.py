"""Facts with their source and date: chips and models that Gnomon knows by name."""

from gnomon.catalog.fitted import shipped_profiles
from gnomon.catalog.hardware import chip, chip_names, chips
from gnomon.catalog.networks import ModelEntry, model_config_path, model_entry, model_names, model_title

__all__ = [
    "ModelEntry",
    "chip",
    "chip_names",
    "chips",
    "model_config_path",
    "model_entry",
    "model_names",
    "model_title",
    "shipped_profiles",
]
