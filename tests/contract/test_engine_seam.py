"""What is particular to an engine stays in its folder: no option of its, no import of it, and no question which it is,
anywhere else; and a new one is a folder, or an entry point, alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.engine_options import OPTIONS

import gnomon
from gnomon import engines
from gnomon.engines import EngineInfo
from gnomon.engines.base import Capacity, Knob
from gnomon.engines.trtllm import options as trtllm_options
from gnomon.engines.vllm import options as vllm_options
from gnomon.engines.vllm.engine import Vllm
from gnomon.errors import InputError, UnknownNameError
from gnomon.export import targets
from gnomon.load import model as load_model
from gnomon.load.fleet import parse_pool

ROOT = Path(gnomon.__file__).parent
MEASURING = "calibrate/"
"""Runs an engine and fits what it measured, by the engine's own words."""
OPTIONS_IN = (
    MEASURING,
    "accuracy/deployment_rows.py",
    "accuracy/option_loads.py",
    "accuracy/disaggregated_rows.py",
    "accuracy/scripts.py",
    "accuracy/served.py",
    "accuracy/steps.py",
    "accuracy/trtllm_rows.py",
    "papers/index/",
)
"""And servers of one engine as they were started, and what figures of papers are computed with."""
IMPORTED_IN = (MEASURING, "accuracy/unseen.py")
"""And kernels of published tables, by the names one engine gives them."""
OTHER_MEANINGS = {
    ("load/families/minimax.py", "block_size"): "a field of the model's config.json",
    ("engines/vllm/roles.py", "disaggregation_mode"): "an option of Dynamo's worker",
    ("engines/trtllm/roles.py", "disaggregation_mode"): "an option of Dynamo's worker",
    ("engines/torchtitan/network.py", "attn_backend"): "an argument of TorchTitan's layers",
    (
        "engines/deepspeed/offload.py",
        "block_size",
    ): "bytes of a read from disk, in the `aio` of DeepSpeed's configuration",
    ("engines/transformers/imported.py", "block_size"): "the tokens of a sequence in run_clm.py",
}
SERVING_ONLY = [info.name for info in engines.engines() if info.serves]


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def named(text: str) -> set[tuple[str, str]]:
    """Options in a file, as names or as flags, each with its engine."""
    words = set(re.findall(r"[a-z0-9_]+", text)) | {
        flag.replace("-", "_") for flag in re.findall(r"--([a-z0-9-]+)", text)
    }
    return {(engine, name) for engine, names in OPTIONS.items() for name in names if name in words}


def imported(text: str) -> set[str]:
    """Modules that a file imports, at its top or inside of a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def asked(text: str, names: set[str]) -> list[str]:
    """Comparisons of something of an engine with an engine's name."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        words = {side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)}
        words |= {one.value for side in sides if isinstance(side, ast.Tuple) for one in side.elts
                  if isinstance(one, ast.Constant) and isinstance(one.value, str)}  # fmt: skip
        told = ast.unparse(node)
        if words & names and ("engine" in told or ".name" in told or "label" in told):
            found.append(told)
    return found


def test_options_of_an_engine_stay_in_its_folder() -> None:
    wrong = {
        (file, name)
        for file, text in sources()
        for _, name in named(text)
        if not file.startswith((*(f"engines/{one}/" for one in OPTIONS if name in OPTIONS[one]), *OPTIONS_IN))
    }
    assert wrong - OTHER_MEANINGS.keys() == set()
    assert OTHER_MEANINGS.keys() <= wrong, "an exception is no longer needed"


def test_exceptions_are_still_needed() -> None:
    texts = dict(sources())
    assert all(any(named(text) for file, text in texts.items() if file.startswith(place)) for place in OPTIONS_IN)
    modules = tuple(f"gnomon.engines.{name}." for name in SERVING_ONLY)
    assert all(
        any(one.startswith(modules) for file, text in texts.items() if file.startswith(place) for one in imported(text))
        for place in IMPORTED_IN
    )


def test_the_list_has_every_option_that_vllm_has_here() -> None:
    shared = {"quantization", "dtype", "kv_cache_dtype"}
    own = {option.name for option in vllm_options.OPTIONS} | vllm_options._FROM_STRATEGY.keys()
    assert own - shared <= set(OPTIONS["vllm"])
    assert sum(map(len, OPTIONS.values())) >= 60


def test_the_list_has_every_option_that_trtllm_has_here() -> None:
    shared = {"enable_chunked_prefill", "max_seq_len", "stream_interval"}
    assert {option.name for option in trtllm_options.OPTIONS} - shared <= set(OPTIONS["trtllm"])


@pytest.mark.heavy
@pytest.mark.parametrize("name", SERVING_ONLY)
def test_a_serving_engine_is_imported_by_nobody_else(name: str) -> None:
    """By what measures it or describes servers of it alone."""
    module = f"gnomon.engines.{name}"
    wrong = {
        file: found
        for file, text in sources()
        if not file.startswith(("engines/", *IMPORTED_IN))
        and (found := {one for one in imported(text) if f"{one}.".startswith(f"{module}.")})
    }
    assert wrong == {}


@pytest.mark.heavy
def test_nobody_asks_which_engine_it_is() -> None:
    names = {info.name for info in engines.engines()} | set(OPTIONS)
    wrong = {
        file: found
        for file, text in sources()
        if not file.startswith(("engines/", MEASURING)) and (found := asked(text, names))
    }
    assert wrong == {}


@pytest.mark.parametrize("info", engines.engines(), ids=lambda info: info.name)
def test_a_declaration_says_what_its_engine_is(info: EngineInfo) -> None:
    assert info.serves or info.trains
    for find, does in ((engines.engine, info.serves), (engines.training_engine, info.trains)):
        if not does:
            with pytest.raises(InputError, match="does not"):
                find(info.name)
            continue
        for version in info.versions:
            made = find(f"{info.name}@{version}")
            assert (made.name, made.title, made.version) == (info.name, info.title, version)
        assert find(info.name).version == (info.default or info.versions[-1])
    started = engines.operations_of(info.name)
    assert (started is not None) == bool(info.operations)
    if started is not None:
        assert (info.name, info.title) == (started.NAME, started.TITLE)


@pytest.mark.parametrize("name", SERVING_ONLY)
def test_a_capacity_is_said_in_settings_and_read_back(name: str) -> None:
    """What `settings_for` gives is what `capacity` finds, and every knob is one of the engine's settings."""
    engine = engines.engine(name)
    model, pool = load_model("llama-3.1-8b"), parse_pool("H100")
    usual = engine.settings({}, model, pool)
    wanted = Capacity(sequences=77, step_tokens=3000, context=5000)
    given = engine.settings_for(context=5000, sequences=77, step_tokens=3000)
    assert engine.capacity(engine.settings(given, model, pool)) == wanted
    assert engine.settings_for() == {}
    for knob in engine.knobs:
        assert knob.name in usual
        assert "{}" in knob.label
    assert {text.partition(" ")[0] for text in engine.listed_settings()} == set(usual)


class Renamed(Vllm):
    """vLLM's figures under other words: an engine of which nothing outside can know an option."""

    TO_OWN = {"max_model_len": "room", "max_num_seqs": "crowd", "max_num_batched_tokens": "gulp", "max_loras": "seats"}  # noqa: RUF012

    def _own(self, settings: Any) -> dict[str, Any]:
        return {self.TO_OWN.get(name, name): value for name, value in settings.items()}

    def _theirs(self, settings: Any) -> dict[str, Any]:
        back = {own: name for name, own in self.TO_OWN.items()}
        return {back.get(name, name): value for name, value in settings.items()}

    def _as_vllm(self, deployment: Any) -> Any:
        return replace(deployment, settings=self._theirs(deployment.settings))

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return tuple(replace(knob, name=self.TO_OWN[knob.name]) for knob in super().knobs)

    @property
    def cost_ranges(self) -> tuple[str, ...]:
        return tuple(self.TO_OWN[name] for name in super().cost_ranges)

    def goes_together(self, turned: Any) -> bool:
        return super().goes_together(self._theirs(turned))

    def capacity(self, settings: Any) -> Capacity:
        return super().capacity(self._theirs(settings))

    def settings_for(self, **wanted: int | None) -> dict[str, int]:
        return self._own(super().settings_for(**wanted))

    def settings(self, given: Any, model: Any, pool: Any) -> dict[str, Any]:
        return self._own(super().settings(self._theirs(given), model, pool))

    def not_modelled(self, given: Any, deployment: Any, idle: Any = (), *, under_load: bool = False) -> Any:
        named = [self._theirs({name: 0}).popitem()[0] for name in idle]
        return super().not_modelled(self._theirs(given), deployment, named, under_load=under_load)

    operations = None


def _in_vllm_words(name: str) -> Any:
    def method(self: Renamed, deployment: Any, *rest: Any) -> Any:
        return getattr(Vllm, name)(self, self._as_vllm(deployment), *rest)

    return method


for _name in ("check", "check_memory", "stages", "memory", "limits", "host", "step_cost", "drawn", "cost_key"):
    setattr(Renamed, _name, _in_vllm_words(_name))


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that brings an engine of its own."""
    info = EngineInfo(
        name="renamed", title="Renamed", versions=("1.0",), serves="tests.contract.test_engine_seam:made"
    )  # fmt: skip
    point = SimpleNamespace(name="renamed", load=lambda: info)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == engines.GROUP else [])
    caches = (engines._outside, engines.engine_info, engines.engines)
    for one in caches:
        one.cache_clear()
    yield
    monkeypatch.undo()
    for one in caches:
        one.cache_clear()


def made(version: str = "") -> Renamed:
    return Renamed(version="", name="renamed", title="Renamed")


LOAD = {"rate": 4, "input": 300, "output": 20, "requests": 60}


@pytest.mark.heavy
@pytest.mark.usefixtures("outside")
def test_an_engine_of_other_words_has_the_same_answers() -> None:
    """Steps, memory, loads and plans ask an engine in shared words, so its option names are its own business."""
    for theirs, ours in (
        (gnomon.predict("llama-3.1-8b", on="H100", batch=8, context=512, engine=name) for name in ("vllm", "renamed")),
        (gnomon.fit("llama-3.1-70b", on="H100:2", engine=name) for name in ("vllm", "renamed")),
        (gnomon.simulate_serving("llama-3.1-8b", on="H100", engine=name, **LOAD) for name in ("vllm", "renamed")),
    ):
        plain, other = (
            {key: value for key, value in one.to_dict().items() if key not in TOLD} for one in (theirs, ours)
        )
        assert plain == other
    theirs, ours = (
        gnomon.plan_serving("llama-3.1-8b", fleet="L4:2", slo="ttft_p90=1s", engine=name, **LOAD)
        for name in ("vllm", "renamed")
    )
    assert ours.best.label == theirs.best.label
    assert ours.best.usd_per_mtok == theirs.best.usd_per_mtok
    assert ours.plan_context == theirs.plan_context < theirs.model_context
    assert ours.best.plan.engine.settings["room"] == theirs.best.plan.engine.settings["max_model_len"]
    assert ours.command == ""  # nothing here starts it


TOLD = ("title", "inputs", "changes")
"""What names the engine, or its settings."""


@pytest.mark.usefixtures("outside")
def test_hints_are_in_an_engines_own_words() -> None:
    with pytest.raises(InputError, match="--set crowd=5000"):
        gnomon.predict("llama-3.1-8b", on="H100", batch=5000, context=10, engine="renamed")
    (first, *_) = gnomon.fit("llama-3.1-70b", on="H100:2", engine="renamed").changes
    assert "room" in str(first.flags)
    with pytest.raises(InputError, match="together with the setting room"):
        gnomon.fit("llama-3.1-8b", on="H100", context=100, settings={"room": 100}, engine="renamed")


@pytest.mark.usefixtures("outside")
def test_an_engine_from_outside_is_listed_beside_the_others() -> None:
    assert set(engines.serving_engines()) == {*SERVING_ONLY, "renamed"} >= {"vllm", "sglang", "trtllm"}
    with pytest.raises(UnknownNameError) as caught:
        engines.engine("renamde")
    assert "renamed" in str(caught.value)
    with pytest.raises(InputError, match="renamed does not train"):
        engines.training_engine("renamed")
    assert "renamed" not in targets()


def test_an_engine_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> EngineInfo:
        raise ImportError("no module named 'gone'")

    point = SimpleNamespace(name="broken", load=broken)
    monkeypatch.setattr(engines, "_outside", lambda: {"broken": point})
    with pytest.raises(InputError, match=r"the engine broken cannot be loaded: no module named 'gone'"):
        engines.engine("broken")
