"""What public functions are asked in the battery of wrong values: one good call of each, and values for each field."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import gnomon

ROOT = Path(__file__).parents[2]
PLAN = str(ROOT / "examples" / "plan.yaml")
SMALL = {"model": "llama-3.2-1b", "on": "H100"}
LOAD = {"rate": 4, "input": 100, "output": 8, "requests": 20}
TRAINING = {"model": "llama-3.2-1b", "seq": 512, "global_batch": 16}
SWEEP = {"command": "fit", "fixed": SMALL, "over": {"context": [100]}}
CALLS: dict[str, dict[str, Any]] = {
    "predict": SMALL,
    "fit": SMALL,
    "ops": {"source": [{"op": "gemm", "dtype": "bf16", "m": 64, "n": 64, "k": 64}], "on": "H100"},
    "simulate_serving": SMALL | LOAD,
    "simulate_training": TRAINING | {"on": "H100:8"},
    "plan_serving": LOAD
    | {"model": "llama-3.2-1b", "fleet": "H100:1", "slo": "ttft_p90=1s", "dtypes": ["bf16"],
       "settings": {"max_num_seqs": 64, "max_num_batched_tokens": 2048}},
    "plan_training": TRAINING | {"cluster": "H100:4"},
    "try_idea": {"name": "gptq"} | SMALL,
    "import_plan": {"source": "vllm serve llama-3.2-1b --max-num-seqs 64", "on": "H100"},
    "tune": {"plan": PLAN, "slo": "ttft_p90=1s"} | LOAD,
    "export": {"plan": PLAN},
    "compare": {"plans": (PLAN, PLAN)} | LOAD,
    "launch": {"plan": PLAN, "dry_run": True},
    "verify": {"plan": PLAN},
    "explain": {"what": "answer.json"},
    "calibrate": {},
    "trace": {"module": None, "inputs": (), "on": "H100"},
    "sweep": {"file": SWEEP, "out": "out.jsonl"},
    "chips": {},
    "models": {},
    "new_chip": {"name": "mine"},
    "papers.listed": {},
    "papers.search": {"words": "offload"},
    "papers.show": {"slug": "gptq"},
    "papers.run": {"slug": "gptq"},
    "papers.apply": {"plan": PLAN},
    "papers.cite": {"slug": "gptq"},
    "papers.new": {"slug": "a-paper", "out": "papers"},
}  # fmt: skip
"""By the name of a public function: what it answers, or where it needs a GPU or torch refuses, at once."""
NO_FIELDS = ("progress", "record", "tell", "module", "inputs", "loss")
"""Parameters that are functions, or objects of torch."""


class Odd:
    """An object of somebody's own."""

    def __repr__(self) -> str:
        return "an odd object"


VALUES: dict[str, Any] = {
    "None": None, "empty text": "", "blank text": " ", "text": "x", "zero": 0, "false": False, "true": True, "five": 5,
    "negative": -1, "half": 2.5, "nan": float("nan"), "infinity": float("inf"), "huge": 10**400, "bytes": b"x",
    "no bytes": b"", "no list": [], "list": [5], "list of None": [None], "list of blank": [""], "no mapping": {},
    "mapping": {5: Odd()}, "no tuple": (), "set": {"x"}, "object": Odd(), "class": Odd, "complex": 1j,
}  # fmt: skip


@dataclass(frozen=True)
class WrongCall:
    """A good call with one field's value replaced."""

    function: str
    field: str
    value: str

    def __str__(self) -> str:
        return f"{self.function}-{self.field}-{self.value}"

    def run(self) -> Any:
        given = CALLS[self.function] | {self.field: VALUES[self.value]}
        plans = given.pop("plans", ()) if self.function == "compare" else ()
        return public(self.function)(*(plans if isinstance(plans, tuple) else (plans, PLAN)), **given)

    @property
    def legitimate(self) -> bool:
        """Whether the field may have such a value, by its annotation and default."""
        one = inspect.signature(public(self.function)).parameters[self.field]
        value = VALUES[self.value]
        if type(value) is type(one.default) and value == one.default:
            return True
        function = inspect.unwrap(public(self.function))
        return may_be(value, eval(one.annotation, vars(inspect.getmodule(function))))


def public(name: str) -> Callable[..., Any]:
    found: Any = gnomon
    for part in name.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


def calls() -> list[WrongCall]:
    return [
        WrongCall(function, field, value)
        for function in CALLS
        for field in inspect.signature(public(function)).parameters
        if field not in NO_FIELDS
        for value in VALUES
    ]


def may_be(value: Any, hint: Any) -> bool:
    """Whether a value has a type: texts are not blank, numbers are numbers, and what lists hold counts too."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, types.UnionType):
        return any(may_be(value, one) for one in inner)
    if origin is Any:
        return True
    if origin is type(None):
        return value is None
    if origin is str:
        return isinstance(value, str) and bool(value.strip())
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(may_be(key, inner[0]) for key in value)
    if origin in (Sequence, Iterable):
        return isinstance(value, (list, tuple)) and all(may_be(one, inner[0]) for one in value)
    return isinstance(value, origin)
