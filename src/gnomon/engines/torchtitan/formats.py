"""Recipes of eight bits and fewer in TorchTitan's words, both ways: converters of a recipe in Python (0.3), and those
that TOML files name (0.1 and 0.2)."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from gnomon.engines.command_line import Value
from gnomon.engines.training.imported import TrainingOptions
from gnomon.graph.gemm_recipes import MXFP8, NVFP4, ROWS, ROWS_WIDE_WGRAD

FP8 = "fp8"
CONVERTERS, RECIPE_NAME = "model.converters", "quantize.linear.float8.recipe_name"
_ROWS, _WIDE = "rowwise", "rowwise_with_gw_hp"
_EIGHT = 'Float8LinearConverter.Config(recipe_name="{}", filter_fqns=["lm_head"], model_compile_enabled=True)'
_LAYERS = 'Converter.Config(fqns=["layers"], model_compile_enabled=True)'
_WRITTEN = {
    FP8: _EIGHT.format(_ROWS),
    ROWS.name: _EIGHT.format(_ROWS),
    ROWS_WIDE_WGRAD.name: _EIGHT.format(_WIDE),
    MXFP8.name: f"MXFP8Linear{_LAYERS}",
    NVFP4.name: f"NVFP4Linear{_LAYERS}",
}
"""What makes the linear layers of a network so, and leaves its head as it is."""
_KINDS = {"Float8LinearConverter": "float8", "MXFP8LinearConverter": "mx", "NVFP4LinearConverter": "nvfp4"}
FORMATS = tuple(_WRITTEN)


def converter(dtype: str) -> str:
    """Python that makes a converter of a plan's format; empty where it needs none."""
    return _WRITTEN.get(dtype, "")


def converter_class(dtype: str) -> str:
    return converter(dtype).partition(".")[0]


def of_python(value: ast.expr) -> Mapping[str, Value]:
    """The converters of an expression, as a file in TOML would say them."""
    found: dict[str, Value] = {}
    for node in ast.walk(value):
        name = ast.unparse(node.func).removesuffix(".Config") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in _KINDS:
            given = {one.arg: one.value for one in node.keywords}
            said = given.get("recipe_name")
            found[CONVERTERS] = (_KINDS[name],)
            if _KINDS[name] == "float8":
                found[RECIPE_NAME] = str(said.value) if isinstance(said, ast.Constant) else _ROWS
    return found


def read_gathered(options: TrainingOptions, dtype: str) -> bool:
    """Whether weights are gathered in eight bits."""
    sections = ("quantize.linear.float8", "float8")
    asked = [options.flag(f"{one}.enable_fsdp_float8_all_gather") for one in sections]
    return any(asked) and dtype == FP8


def read(options: TrainingOptions) -> str:
    """The recipe that options ask for; empty where they ask for none."""
    kinds = {one.rpartition(".")[2] for one in options.text(CONVERTERS).split(" ") if "grouped_mm" not in one}
    named = {"": FP8, "tensorwise": FP8, _ROWS: ROWS.name, _WIDE: ROWS_WIDE_WGRAD.name}
    eight = options.choice(named, RECIPE_NAME, "float8.recipe_name", default=FP8)
    options.text("quantize.linear.mx.recipe_name", "mx.recipe_name")
    every = {"float8": eight, "mx": MXFP8.name, "nvfp4": NVFP4.name}
    return next((dtype for kind, dtype in every.items() if kind in kinds), "")
