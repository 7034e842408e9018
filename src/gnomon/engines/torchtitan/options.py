"""The TorchTitan that recipes are written for, and its words for what a plan says."""

from __future__ import annotations

VERSION = "0.3.0"
"""Recipes are functions in Python since 0.3; TOML files of 0.2 are read."""
RECIPE, FUNCTION = "recipe.py", "plan"
"""The file of a recipe, and its function."""
TRAIN = "torchtitan.train"
"""What `torchrun -m` starts."""
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
CHECKPOINTED = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
CHECKPOINTED["op"] = CHECKPOINTED["selective"]
"""Activation checkpointing in a recipe."""
RESHARDED = {2: "never", 3: "always"}
"""Whether weights are sharded again after the forward pass, by ZeRO stage."""
