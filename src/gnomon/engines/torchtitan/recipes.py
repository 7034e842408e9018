"""TorchTitan's configurations as options by dotted name, from a recipe in Python, which is read and never run, from a
file in TOML, and from its own registry."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.engines.command_line import Value
from gnomon.engines.torchtitan.formats import CONVERTERS, RECIPE_NAME, of_python
from gnomon.engines.torchtitan.network import FLAVORS
from gnomon.engines.training.imported import flattened
from gnomon.errors import InputError

MOST_NODES = 200_000
CHECKPOINTING = "activation_checkpoint.mode"
MODEL, FLAVOR = "model.name", "model.flavor"
_MODES = {"SelectiveAC": "selective", "FullAC": "full", "None": "none", "MemoryBudgetAC": "memory_budget"}
_MODULE = re.compile(r"torchtitan\.models\.(\w+)(?:\.config_registry)?")


def _preset(flavor: str, batch: int, seq: int, steps: int, mode: str, tp: int = 1) -> dict[str, Value]:
    values: dict[str, Value] = {
        FLAVOR: flavor,
        "training.local_batch_size": str(batch),
        "training.seq_len": str(seq),
        "training.steps": str(steps),
        CHECKPOINTING: mode,
    }
    return values | ({"parallelism.tensor_parallel_degree": str(tp)} if tp > 1 else {})


REGISTRY: Mapping[str, Mapping[str, dict[str, Value]]] = {
    "llama3": {
        "llama3_8b": _preset("8B", 1, 8192, 1000, "selective"),
        "llama3_70b": _preset("70B", 8, 8192, 1000, "full", tp=8),
        "llama3_405b": _preset("405B", 2, 8192, 3000, "full", tp=8)
        | {CONVERTERS: ("float8",), RECIPE_NAME: "rowwise"}
        | {"compile.enable": True, "compile.enable_async_tensor_parallel": True},
    },
    "qwen3": {
        "qwen3_0_6b": _preset("0.6B", 4, 4096, 10, "selective"),
        "qwen3_1_7b": _preset("1.7B", 4, 4096, 100, "selective"),
        "qwen3_14b": _preset("14B", 4, 4096, 3000, "full"),
        "qwen3_32b": _preset("32B", 2, 4096, 3000, "full"),
        "qwen3_30b_a3b": _preset("30B-A3B", 2, 4096, 3000, "full"),
    },
}
"""What functions of TorchTitan 0.3.0's `config_registry.py` set of what a plan says."""


def registered(module: str, function: str) -> dict[str, Value]:
    """A configuration of TorchTitan's registry. Raises InputError where it is not known here."""
    found = REGISTRY.get(module, {}).get(function)
    if found is None:
        known = ", ".join(name for each in REGISTRY.values() for name in each)
        hint = f"Known: {known}; a recipe of your own is read from its file."
        message = f"TorchTitan's configuration {module}.{function} is not known here"
        raise InputError(message, where="--config", hint=hint)
    return {MODEL: module, **found}


def toml_options(fields: Mapping[str, Any]) -> dict[str, Value]:
    """A file in TOML, as 0.1 and 0.2 take it."""
    found = flattened(fields)
    found.setdefault(CHECKPOINTING, "selective")
    return found


def python_options(text: str, function: str, where: str) -> dict[str, Value]:
    """What a function of a recipe sets. Nothing of it is run: values that are no literals are left out, and listed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError("is not Python", where=where) from None
    if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
        raise InputError("is too long to be a recipe", where=where)
    body = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function), None)
    if body is None:
        raise InputError(f"has no function {function}", where=where, hint="--config names the function of a recipe.")
    module = next(_modules(tree), "")
    reader = _Recipe(module)
    reader.read(body)
    if MODEL not in reader.values and module:
        reader.values[MODEL] = module
    return reader.values


def _modules(tree: ast.Module) -> Iterator[str]:
    """Modules of models that a recipe takes its registry from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and (found := _MODULE.fullmatch(node.module)):
            yield found[1]


@dataclass(slots=True)
class _Recipe:
    """The assignments of one function."""

    module: str
    values: dict[str, Value] = field(default_factory=dict)
    named: dict[str, ast.expr] = field(default_factory=dict)

    def read(self, body: ast.FunctionDef) -> None:
        for node in body.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                self._call("", node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.named[target.id] = value
            self._model(value)
            if isinstance(value, ast.Call):
                self._base(value)
        elif isinstance(target, ast.Attribute):
            name = ast.unparse(target).partition(".")[2]
            self._set(name, value)

    def _base(self, call: ast.Call) -> None:
        """`config = llama3_8b()`: a function of the registry that the recipe begins with."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        base = next((each[name] for each in REGISTRY.values() if name in each), None)
        if base is not None:
            self.values |= base

    def _model(self, value: ast.expr) -> None:
        for node in ast.walk(value):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("model_registry"):
                continue
            own = "replace(" in ast.unparse(value)
            if node.args and isinstance(node.args[0], ast.Constant) and not own:
                self.values[FLAVOR] = str(node.args[0].value)
        self.values |= of_python(value)

    def _set(self, name: str, value: ast.expr) -> None:
        if name == "model_spec":
            self._model(value)
            return
        if isinstance(value, ast.Name) and value.id in self.named:
            value = self.named[value.id]
        if name == "activation_checkpoint":
            kind = ast.unparse(value).partition(".")[0]
            self.values[CHECKPOINTING] = _MODES.get(kind, kind)
        elif isinstance(value, ast.Call):
            self._call(f"{name}.", value)
        else:
            self.values[name] = _literal(value)

    def _call(self, before: str, call: ast.Call) -> None:
        if before == "optimizer." and "adamw" in ast.unparse(call.func):
            self.values["optimizer.name"] = "AdamW"
        for keyword in call.keywords:
            if keyword.arg:
                self._set(f"{before}{keyword.arg}", keyword.value)


def _literal(value: ast.expr) -> Value:
    try:
        found: Any = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return f"{ast.unparse(value)[:80]}"
    if isinstance(found, bool):
        return found
    if isinstance(found, list | tuple):
        return tuple(",".join(map(str, one)) if isinstance(one, list) else str(one) for one in found)
    return "" if found is None else str(found)


def sizes(module: str, flavor: str) -> tuple[int, ...] | None:
    """What `FLAVORS` has of a flavor, whichever case it is written in."""
    wanted = module, flavor.lower()
    return next((size for (name, one), size in FLAVORS.items() if (name, one.lower()) == wanted), None)
