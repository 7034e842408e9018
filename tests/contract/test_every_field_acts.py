"""Every field of the files that users write changes an answer, is refused, or is listed under `not_modelled`."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract import fields as table
from tests.contract.asking import Said, say
from tests.contract.fields import GONE, Entry
from tests.contract.test_every_option_acts import figures

from gnomon import catalog
from gnomon.load import model as load_model
from gnomon.load.chip_file import template
from gnomon.load.fields import Fields
from gnomon.load.shapes import KINDS, model_to_dict
from gnomon.spec import Block, Format, Model, Tower, VisionPreprocessor
from gnomon.spec.mixers import Indexer

SAMPLE = 7
ACCOUNTED = ("acts", "refused", "listed")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def put(entry: Entry, path: str, value: Any) -> Entry:
    """A copy with one field changed; a dot leads into a nested one."""
    found = copy.deepcopy(entry)
    *steps, last = path.split(".")
    holder = found
    for step in steps:
        holder = holder.setdefault(step, {})
    if value is GONE:
        holder.pop(last, None)
    else:
        holder[last] = value
    return found


def write(name: str, entry: Entry) -> None:
    plain = json.loads(json.dumps(entry))  # no two parts of it are one object, which YAML would say
    Path(name).write_text(yaml.safe_dump({key: value for key, value in plain.items() if value is not GONE}))


def told(said: Said) -> str:
    """What an answer says beside its inputs, files of launches included."""
    return json.dumps(figures(said.answer), sort_keys=True)


def outcome(before: Callable[[], None], after: Callable[[], None], lines: tuple[str, ...], field: str) -> str:
    """What becomes of a change, asked in each line until one shows it."""
    refused, asked = 0, 0
    for line in lines:
        before()
        first = say(f"{line} --json")
        asked += not first.code
        after()
        second = say(f"{line} --json")
        if second.code:
            refused += not first.code
        elif first.code or told(first) != told(second):
            return "acts"
        elif any(re.search(rf"\b{re.escape(field)}\b", one["option"]) for one in second.answer.get("not_modelled", ())):
            return "listed"
    assert asked, "nothing can be asked of the file as it was"
    return "refused" if refused else "ignored"


def chip_outcome(field: str) -> str:
    labels = field in table.CHIP_LABELS
    value = (table.CHIP_LABELS if labels else table.CHIP)[field]
    like = "A100-PCIe-80GB" if field.startswith("bridge") else "H100"
    base: Entry = yaml.safe_load(template("mine", catalog.chip(like)))
    if field == "bridge":
        base.pop("bridge")
    elif field.startswith("bridge."):
        base["bridge"].setdefault("gb_s", 300)
    write("bridged.yaml", {"schema": "gnomon.cluster/1", "chip": "chip.yaml", "count": 8, "bridged": True})
    lines = ("chips show chip.yaml",) if labels else table.CHIP_LINES
    changed = put(base, field, base["bridge"] | value if field == "bridge" and "bridge" in base else value)
    return outcome(lambda: write("chip.yaml", base), lambda: write("chip.yaml", changed), lines, field)


def cluster_outcome(field: str) -> str:
    beside, value = table.CLUSTER[field]
    base = {"schema": "gnomon.cluster/1", "chip": "H100", "count": 16} | beside
    changed = put(base, field, value)
    return outcome(
        lambda: write("cluster.yaml", base), lambda: write("cluster.yaml", changed), table.CLUSTER_LINES, field
    )


def plan_outcome(field: str) -> str:
    base, value = table.PLAN[field]
    changed = put(base, field, value)
    return outcome(lambda: write("plan.yaml", base), lambda: write("plan.yaml", changed), ("export plan.yaml",), field)


@pytest.mark.parametrize("field", [*table.CHIP, *table.CHIP_LABELS])
def test_every_field_of_a_chip(field: str) -> None:
    assert chip_outcome(field) in ACCOUNTED


@pytest.mark.slow
@pytest.mark.parametrize("field", table.CLUSTER)
def test_every_field_of_a_cluster(field: str) -> None:
    assert cluster_outcome(field) in ACCOUNTED


@pytest.mark.parametrize("field", list(table.CLUSTER)[::SAMPLE])
def test_some_fields_of_a_cluster(field: str) -> None:
    assert cluster_outcome(field) in ACCOUNTED


@pytest.mark.parametrize("field", table.PLAN)
def test_every_field_of_a_plan(field: str) -> None:
    assert plan_outcome(field) in ACCOUNTED


def nouns(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[type, tuple[Any, ...]]]:
    """The nouns of shapes, and where they stand."""
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from nouns(item, (*path, place))
    if not isinstance(value, dict):
        return
    last, before = (path or ("",))[-1], path[-2] if len(path) > 1 else ""
    by_place = {
        "intake": VisionPreprocessor,
        "indexer": Indexer,
        "cross": KINDS["cross"],
        "head_format": Format,
        "": Model,
    }
    by_list = {"blocks": Block, "mtp": Block, "towers": Tower, "formats": Format}
    found = KINDS.get(value.get("kind", "")) or by_place.get(last) or by_list.get(before)
    if found:
        yield found, path
    for key, item in value.items():
        yield from nouns(item, (*path, key))


def at(shapes: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        shapes = shapes[step]
    return shapes


def shape_fields() -> list[tuple[type, str]]:
    """Every field of every noun, as the reader takes them."""
    return [
        (noun, field.name)
        for noun in table.NOUNS
        for field in dataclasses.fields(noun)
        if field.name not in (*table.NESTED, *table.SHAPE_LABELS) or (noun, field.name) in table.SHAPES
    ]


def other(noun: type, name: str, node: Entry) -> Any:
    """Twice as much, or the other way round."""
    field = next(field for field in dataclasses.fields(noun) if field.name == name)
    usual = None if field.default is dataclasses.MISSING else field.default
    now = node.get(name, usual)
    return not now if str(field.type) == "bool" else (now or 0) * 2 or 2


@functools.cache
def shapes_of(name: str) -> tuple[Entry, str]:
    found = load_model(name)
    return model_to_dict(found), found.kind


def shape_outcome(noun: type, name: str) -> str:
    said = table.SHAPES.get((noun, name))
    base, kind = shapes_of(said.model if said else table.NOUNS[noun])
    path = [place for one, place in nouns(base) if one is noun][said.place if said else 0]
    base, changed = copy.deepcopy(base), copy.deepcopy(base)
    for shapes in (base, changed):
        at(shapes, path).update(said.given if said else {})
    at(changed, path)[name] = said.value if said else other(noun, name, at(base, path))
    usual = ("fit shapes.yaml --on H200", *table.LINES.get(kind, table.LINES[""]))
    lines = said.lines if said and said.lines else usual
    return outcome(lambda: write("shapes.yaml", base), lambda: write("shapes.yaml", changed), lines, name)


SHAPE_FIELDS = shape_fields()
NAMES = [f"{noun.__name__}.{name}" for noun, name in SHAPE_FIELDS]


@pytest.mark.slow
@pytest.mark.parametrize(("noun", "name"), SHAPE_FIELDS, ids=NAMES)
def test_every_field_of_shapes(noun: type, name: str) -> None:
    assert shape_outcome(noun, name) in ACCOUNTED


@pytest.mark.parametrize(("noun", "name"), SHAPE_FIELDS[::SAMPLE], ids=NAMES[::SAMPLE])
def test_some_fields_of_shapes(noun: type, name: str) -> None:
    assert shape_outcome(noun, name) in ACCOUNTED


def read_fields(monkeypatch: pytest.MonkeyPatch, reads: list[tuple[str, Entry, str]]) -> set[str]:
    """The fields that readers ask for while commands run on files."""
    seen: set[str] = set()
    plain = Fields.raw

    def raw(self: Fields, key: str, *default: Any) -> Any:
        file, _, where = self.spot(key).partition(", field ")
        if file.endswith((".yaml", "plan")):
            seen.add(re.sub(r"\[\d+\]", "", where))
        return plain(self, key, *default)

    monkeypatch.setattr(Fields, "raw", raw)
    for name, entry, line in reads:
        write(name, entry)
        assert say(line).code == 0
    return seen


def test_every_field_that_a_chip_is_read_for_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    base: Entry = yaml.safe_load(template("mine", catalog.chip("A100-PCIe-80GB")))
    base |= {"scaleup_gb_s": 31.5, "scaleup_size": 8, "aliases": ["x"], "note": "y"}
    seen = read_fields(monkeypatch, [("chip.yaml", base, "chips show chip.yaml")])
    told = {*table.CHIP, *table.CHIP_LABELS}
    assert {"rates_tflops", "bridge.link", "like"} < seen
    assert seen - told - {"sources." + part for part in ("source", "date", "confidence")} == set()


def test_every_field_that_a_cluster_is_read_for_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"schema": "gnomon.cluster/1", "chip": "H100", "count": 16}
    links = {"scaleup": table.LINK, "scaleout": table.LINK, "host": table.HOST | {"link": table.LINK}}
    pools = {"schema": "gnomon.cluster/1", "pools": [{"chip": "H100", "count": 8}]}
    line = "fit llama-3.2-1b --on cluster.yaml:2"
    seen = read_fields(monkeypatch, [("cluster.yaml", base | links, line), ("cluster.yaml", pools, line)])
    seen = {field.removeprefix("pools.") for field in seen}
    assert {"grid", "host.link.gb_s", "pools", "pod_nodes"} < seen
    assert seen - {*table.CLUSTER, *table.CLUSTER_LABELS} == set()


def test_every_field_that_a_plan_is_read_for_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = [("plan.yaml", plan, "export plan.yaml") for plan in (table.SERVED, table.TRAINED)]
    seen = read_fields(monkeypatch, reads)
    assert {"strategy.vp", "engine.settings.zero", "load.rate_per_s"} < seen
    goals = {field for field in seen if field.startswith(("goals.", "engine.settings.max"))}
    assert seen - {*table.PLAN, *table.PLAN_RECORDS} - goals == set()


def test_every_noun_of_shapes_is_there() -> None:
    assert set(KINDS.values()) < set(table.NOUNS)
    assert set(table.SHAPES) <= set(SHAPE_FIELDS)
    assert len(SHAPE_FIELDS) > 120
