"""Recipes of eight bits and fewer in TorchTitan's words, both ways: converters of a recipe in Python (0.3), and those
that TOML files name (0.1 and 0.2)."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from gnomon.engines.command_line import Value
from gnomon.engines.training.imported import TrainingOptions
from gnomon.graph.gemm_recipes import MXFP8, NVFP4, ROWS, ROWS_WIDE_WGRAD
from gnomon.spec.training_job import TrainingJob

FP8 = "fp8"
CONVERTERS, RECIPE_NAME = "model.converters", "quantize.linear.float8.recipe_name"
SKIPPED, MADE = "model.converters.filter_fqns", "model.converters.fqns"
"""Parts of names of modules that a converter leaves as they are, and of those that it converts."""
_ROWS, _WIDE = "rowwise", "rowwise_with_gw_hp"
_EIGHT = {FP8: _ROWS, ROWS.name: _ROWS, ROWS_WIDE_WGRAD.name: _WIDE}
_FEWER = {MXFP8.name: "MXFP8LinearConverter", NVFP4.name: "NVFP4LinearConverter"}
_KINDS = {"Float8LinearConverter": "float8", "MXFP8LinearConverter": "mx", "NVFP4LinearConverter": "nvfp4"}
FORMATS = (*_EIGHT, *_FEWER)
COMPILED = "model_compile_enabled=True"


def converter(job: TrainingJob) -> str:
    """Python that makes a converter of a plan's format, which leaves the head as it is, and layers that stay in bf16;
    empty where it needs none."""
    layers, (first, last) = job.model.layers, job.recipe.wide_layers or (0, 0)
    if job.dtype in _EIGHT:
        kept = ["lm_head", *(f"layers.{n}." for n in (*range(first), *range(layers - last, layers)))]
        return f"Float8LinearConverter.Config(recipe_name={_EIGHT[job.dtype]!r}, filter_fqns={kept}, {COMPILED})"
    made = [f"layers.{n}." for n in range(first, layers - last)] if first or last else ["layers"]
    return f"{_FEWER[job.dtype]}.Config(fqns={made}, {COMPILED})" if job.dtype in _FEWER else ""


def converter_class(job: TrainingJob) -> str:
    return converter(job).partition(".")[0]


def of_python(value: ast.expr) -> Mapping[str, Value]:
    """The converters of an expression, as a file in TOML would say them."""
    found: dict[str, Value] = {}
    for node in ast.walk(value):
        name = ast.unparse(node.func).removesuffix(".Config") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in _KINDS:
            given = {one.arg: one.value for one in node.keywords}
            said = given.get("recipe_name")
            found[CONVERTERS] = (_KINDS[name],)
            found |= {f"{CONVERTERS}.{one}": _names(given[one]) for one in ("fqns", "filter_fqns") if one in given}
            if _KINDS[name] == "float8":
                found[RECIPE_NAME] = str(said.value) if isinstance(said, ast.Constant) else _ROWS
    return found


def _names(value: ast.expr) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(str(one.value) for one in getattr(value, "elts", ()) if isinstance(one, ast.Constant))


def read_wide(options: TrainingOptions, layers: int) -> str:
    """First and last layers that a converter leaves as they are, as a plan writes them."""
    skipped, made = (_numbered(options.text(name)) for name in (SKIPPED, MADE))
    if made and not layers:
        options.unmodelled("layers left as they are", "priced as converted: the network is not one of TorchTitan's own")
    layers = layers or max(skipped, default=-1) + 1
    kept = skipped or (set(range(layers)) - made if made else set())
    first = next((n for n in range(layers) if n not in kept), layers)
    last = next((n for n in range(layers - first) if layers - 1 - n not in kept), layers - first)
    if len(kept) != first + last:
        options.unmodelled(f"{len(kept)} layers left as they are", f"priced as the first {first} and the last {last}")
    return f"{first},{last}" if first or last else ""


def _numbered(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\blayers\.(\d+)\.", text)}


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
