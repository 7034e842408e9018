"""Traces as files: the calls of a module's step and the memory they held, written once and priced anywhere without
PyTorch. A file is data; nothing in it is run."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from gnomon.errors import InputError, shown
from gnomon.load.fields import Fields
from gnomon.load.files import read_bytes
from gnomon.paths import write_bytes, write_text
from gnomon.spec.traced import Call, Phase, Role, Storage, TensorSpec, Traced

SCHEMA = "gnomon.trace/1"
ENDINGS = (".trace.json", ".trace.json.gz")
LARGEST = 256 * 1024**2
"""Bytes of a file, unpacked."""
PHASES, ROLES = get_args(Phase), get_args(Role)
STEPS = ("forward", "train")
_Layout = tuple[tuple[int, ...], tuple[int, ...], str, float]


def is_trace_file(words: str) -> bool:
    """Whether the words name a file of a trace."""
    return words.endswith(ENDINGS)


def write_trace(traced: Traced, out: str | Path) -> None:
    """All of a trace as JSON, packed where the name ends in `.gz`; equal traces are equal files."""
    path = Path(out)
    if not is_trace_file(path.name):
        raise InputError(f"'{path.name}' does not end in {' or '.join(ENDINGS)}", where="out")
    text = json.dumps(_encoded(traced), separators=(",", ":")) + "\n"
    if path.suffix == ".gz":
        write_bytes(path, gzip.compress(text.encode(), mtime=0))
    else:
        write_text(path, text)


def read_trace(path: Path) -> Traced:
    """The trace of a file; what is wrong is said with its place."""
    try:
        data = json.loads(read_bytes(path, LARGEST))
    except (ValueError, RecursionError) as problem:
        raise InputError(f"is not JSON: {problem}", where=str(path)) from None
    return _Reader(Fields(data, str(path))).traced()


class _Table:
    """Values by number, each once, in the order in which they came."""

    def __init__(self) -> None:
        self.rows: dict[Any, int] = {}

    def number(self, row: Any) -> int:
        return self.rows.setdefault(row, len(self.rows))


def _encoded(traced: Traced) -> dict[str, Any]:
    layouts, ops, modules = _Table(), _Table(), _Table()

    def pair(spec: TensorSpec) -> list[int]:
        return [layouts.number((spec.shape, spec.stride, spec.dtype, spec.item_bytes)), spec.storage]

    calls = [
        {
            "op": ops.number(call.op),
            "module": modules.number(call.module),
            "tensors": {name: [pair(spec) for spec in specs] for name, specs in call.tensors.items()},
            "results": [pair(spec) for spec in call.results],
        }
        | ({"options": dict(call.options)} if call.options else {})
        | ({"changed": list(call.changed)} if call.changed else {})
        | ({"phase": call.phase} if call.phase != "forward" else {})
        | ({"pointwise": True} if call.pointwise else {})
        for call in traced.calls
    ]
    return {
        "schema": SCHEMA, "name": traced.name, "phase": traced.phase, "dtype": traced.dtype, "samples": traced.samples,
        "parameters": traced.parameters, "trainable": traced.trainable, "ops": list(ops.rows),
        "modules": list(modules.rows), "layouts": list(layouts.rows), "calls": calls,
        "storages": [[one.bytes, one.born, one.died, ROLES.index(one.role)] for one in traced.storages],
    }  # fmt: skip


class _Reader:
    """A file's fields, checked one by one."""

    def __init__(self, given: Fields) -> None:
        self.given = given
        given.check_schema(SCHEMA)
        self.ops = [self._text(one, f"ops[{at}]") for at, one in enumerate(given.list("ops"))]
        self.modules = [self._text(one, f"modules[{at}]") for at, one in enumerate(given.list("modules"))]
        self.layouts = [self._layout(one, f"layouts[{at}]") for at, one in enumerate(given.list("layouts"))]
        self.storages = tuple(self._storage(one, f"storages[{at}]") for at, one in enumerate(given.list("storages")))

    def traced(self) -> Traced:
        given = self.given
        phase = given.text("phase")
        if phase not in STEPS:
            raise self._wrong(phase, "forward or train", "phase")
        found = Traced(
            name=given.text("name"),
            calls=tuple(self._calls()),
            storages=self.storages,
            parameters=given.whole("parameters", least=0, most=2**53),
            trainable=given.whole("trainable", least=0, most=2**53),
            samples=given.whole("samples"),
            dtype=given.text("dtype"),
            phase="forward" if phase == "forward" else "train",
        )
        given.done()
        return found

    def _calls(self) -> Iterator[Call]:
        for at in range(len(self.given.list("calls"))):
            where, one = f"calls[{at}]", self.given.item("calls", at)
            phase = one.text("phase", "forward")
            if phase not in PHASES:
                raise self._wrong(phase, f"one of {', '.join(PHASES)}", f"{where}.phase")
            tensors = one.inner("tensors")
            yield Call(
                op=self.ops[self._index(one.raw("op"), self.ops, f"{where}.op")],
                module=self.modules[self._index(one.raw("module"), self.modules, f"{where}.module")],
                tensors={name: self._specs(tensors.list(name), f"{where}.tensors.{name}") for name in tensors.items()},
                results=self._specs(one.list("results"), f"{where}.results"),
                options=self._options(one.raw("options", {}), f"{where}.options"),
                changed=tuple(self._text(word, f"{where}.changed") for word in one.list("changed")),
                phase=phase,  # type: ignore[arg-type]
                pointwise=one.flag("pointwise", False),
            )
            one.done()

    def _specs(self, pairs: Sequence[Any], where: str) -> tuple[TensorSpec, ...]:
        return tuple(self._spec(pair, f"{where}[{at}]") for at, pair in enumerate(pairs))

    def _spec(self, pair: Any, where: str) -> TensorSpec:
        if not (isinstance(pair, list) and len(pair) == 2):
            raise self._wrong(pair, "a pair of a layout and a storage", where)
        shape, stride, dtype, item = self.layouts[self._index(pair[0], self.layouts, where)]
        storage = self._index(pair[1], self.storages, where)
        return TensorSpec(shape=shape, stride=stride, dtype=dtype, item_bytes=item, storage=storage)

    def _layout(self, row: Any, where: str) -> _Layout:
        if not (isinstance(row, list) and len(row) == 4):
            raise self._wrong(row, "a list of shape, strides, format and bytes of a value", where)
        shape, stride, dtype, item = row
        for sizes in (shape, stride):
            if not (isinstance(sizes, list) and all(_whole(size) for size in sizes)):
                raise self._wrong(sizes, "a list of whole numbers", where)
        if len(shape) != len(stride):
            raise self._wrong(stride, f"one stride for each of {len(shape)} dimensions", where)
        return tuple(shape), tuple(stride), self._text(dtype, where), self._size(item, where)

    def _storage(self, row: Any, where: str) -> Storage:
        if not (isinstance(row, list) and len(row) == 4):
            raise self._wrong(row, "a list of bytes, first and last call, and role", where)
        size, born, died, role = row
        if not _whole(born) or not (died is None or (_whole(died) and died >= born)):
            raise self._wrong([born, died], "a call and a later one, or null", where)
        return Storage(bytes=self._size(size, where), born=born, died=died, role=ROLES[self._index(role, ROLES, where)])

    def _options(self, given: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(given, dict) or not all(_plain(value) for value in given.values()):
            raise self._wrong(given, "a mapping of numbers, flags, texts and lists of them", where)
        return given

    def _index(self, number: Any, rows: Sequence[Any], where: str) -> int:
        if not _whole(number) or number >= len(rows):
            raise self._wrong(number, f"a number from 0 to {len(rows) - 1}", where)
        return int(number)

    def _size(self, number: Any, where: str) -> float:
        good = isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
        if not good or number < 0:
            raise self._wrong(number, "a number of bytes", where)
        return float(number)

    def _text(self, word: Any, where: str) -> str:
        if not isinstance(word, str):
            raise self._wrong(word, "a text", where)
        return word

    def _wrong(self, value: Any, wanted: str, where: str) -> InputError:
        hint = "Write the file again: gnomon.trace(..., out=FILE)."
        return InputError(f"{shown(value)} is not {wanted}", where=self.given.spot(where), hint=hint)


def _whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**53


def _plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, (int, float, bool, str, type(None))) for one in value)
    return isinstance(value, (int, float, bool, str, type(None)))
