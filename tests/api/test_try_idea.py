"""Ideas of papers on models and chips they never saw."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.papers.book import paper_book
from gnomon.papers.nearest import closest, needs
from gnomon.techniques import canonical, compared_by, for_paper, techniques

TEN = (
    "megatron-lm", "gpipe", "vocabulary-parallelism", "sequence-parallelism", "long-context-peak", "gptq", "glm-130b",
    "zero-offload", "deep-optimizer-states", "datastates-llm",
)  # fmt: skip


def _sessions(side: dict[str, Any]) -> float:
    """Sequences there is room for on chips and hosts, where serving is tried."""
    return side.get("sessions", 0) + sum(facts.get("sessions_on_host", 0) for facts in side.get("facts", {}).values())


@pytest.mark.parametrize("slug", TEN)
def test_every_paper_answers_elsewhere(slug: str) -> None:
    found = gnomon.try_idea(slug, model="qwen3-8b", on="MI300X:8")
    assert found.paper == slug and found.verdict
    assert found.applied is not None or (slug == "gptq" and "Marlin" in found.verdict)
    if found.gain is not None:
        plain, applied = dict(found.plain or {}), dict(found.applied or {})
        assert found.gain.value == pytest.approx(plain["step_time_s"].value / applied["step_time_s"].value)
        times = [plain[name].value / applied[name].value for name in ("step_time_s", "prompt_time_s") if name in plain]
        better = max(times) > 1.005 or _sessions(applied) > _sessions(plain)
        assert found.helps == (better and "without either" not in found.verdict)
    else:
        assert found.helps == (found.applied is not None)


@pytest.mark.parametrize(
    ("slug", "why"),
    [
        ("megatron-lm", "could use it"),
        ("gpipe", "could use it"),
        ("sequence-parallelism", "could use it"),
        ("vocabulary-parallelism", "no pipeline"),
        ("zero-offload", "the model fits without it"),
        ("deep-optimizer-states", "without either the model fits"),
    ],
)
def test_no_benefit_where_there_can_be_none(slug: str, why: str) -> None:
    found = gnomon.try_idea(slug, model="qwen3-0.6b", on="H200:1")
    assert not found.helps and found.verdict.startswith("No benefit here") and why in found.verdict


def test_what_fits_only_with_it() -> None:
    found = gnomon.try_idea("zero-offload", model="qwen3-8b", on="H200:1")
    assert found.helps and found.plain is None and found.applied is not None and found.gain is None


@pytest.mark.heavy
def test_without_is_the_best_plan_without() -> None:
    """The best of all plans is on one of the two sides."""
    words = {"seq": 131072, "global_batch": 4}
    found = gnomon.try_idea("sequence-parallelism", model="llama-3.1-8b", on="H100:16", **words)
    best = gnomon.plan_training("llama-3.1-8b", cluster="H100:16", **words).best.step_time_s.value
    assert found.plain is not None and found.applied is not None
    assert min(side["step_time_s"].value for side in (found.plain, found.applied)) == pytest.approx(best, rel=1e-9)


def test_an_idea_with_parameters() -> None:
    often = gnomon.try_idea("datastates-llm:every=30", model="qwen3-8b", on="H200:8")
    rarely = gnomon.try_idea("datastates-llm:every=300", model="qwen3-8b", on="H200:8")
    assert often.gain is not None and rarely.gain is not None and often.gain.value > 1.3 > rarely.gain.value > 1
    assert "every=300" in rarely.technique and "every=300" in rarely.against


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("zero-ofload", {}, "zero-offload"),
        ("gptq", {"seq": 4096}, "--seq"),
        ("gptq", {"engine": "torch"}, "--engine"),
        ("zero-offload", {"batch": 4}, "--batch"),
        ("zero-offload", {"optimizer": "adan"}, "adam"),
        ("zero-offload:stride=70", {}, "0 to 64"),
    ],
)
def test_slips_are_answered(name: str, words: dict[str, object], told: str) -> None:
    with pytest.raises(gnomon.GnomonError) as error:
        gnomon.try_idea(name, model="qwen3-8b", on="H200:1", **words)  # type: ignore[arg-type]
    assert told in str(error.value)


def test_plans_are_priced_once_for_all_techniques(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of all plans are the same with a technique and without; what it changes is made of them."""
    from gnomon.planning.training import search as train_search

    priced: list[int] = []
    figures = train_search.figures

    def counted(model: Any, load: Any, grid: Any, *rest: Any) -> Any:
        priced.append(grid.size)
        return figures(model, load, grid, *rest)

    monkeypatch.setattr(train_search, "figures", counted)
    gnomon.try_idea("offload-optimizer", model="llama-3.2-1b", on="H100:2", seq=512, global_batch=8)
    assert len(priced) == 1


def test_what_is_asked_for_is_what_is_tried() -> None:
    """A value that was given stays; only a trial's own choice of one is varied."""
    load = {"model": "qwen3-8b", "on": "H200:2", "seq": 2048, "global_batch": 8}
    for stride in (2, 4):
        found = gnomon.try_idea(f"offload-optimizer:stride={stride}", **load)
        assert found.technique == f"offload-optimizer:stride={stride}"
    assert gnomon.try_idea("deep-optimizer-states", **load).technique.startswith("offload-optimizer:stride=")


@pytest.mark.parametrize("name", ["async-checkpointing", "checkpoints", "datastates-llm"])
@pytest.mark.parametrize("values", ["", "every=7", "mode=asynchronous", "every=7,mode=asynchronous,storage_gb_s=3"])
def test_checkpoints_are_compared_with_waiting_for_as_many(name: str, values: str) -> None:
    found = gnomon.try_idea(f"{name}:{values}" if values else name, model="qwen3-0.6b", on="H200:2", global_batch=8)
    assert found.plain is not None and found.applied is not None
    (with_it,), (without,) = ([text] for side in (found.applied, found.plain) for text in side["techniques"])
    assert "mode=synchronous" in without and "mode=synchronous" not in with_it
    shared = [part for part in values.split(",") if part and not part.startswith("mode=")]
    assert all(part in with_it and part in without for part in shared)
    assert found.against == without and "storage" in " ".join(found.assumed)


def test_what_would_be_compared_with_itself_is_refused() -> None:
    with pytest.raises(gnomon.GnomonError, match=r"SLUG: .*is already the baseline of the comparison"):
        gnomon.try_idea("checkpoints:mode=synchronous", model="qwen3-0.6b", on="H200:2")


def test_only_with_it_the_model_fits() -> None:
    found = gnomon.try_idea("gptq", model="qwen3-32b", on="RTX-4090:1")
    assert found.helps and found.plain is None and found.applied is not None and found.gain is None
    assert found.verdict.startswith("Without it the model does not fit: its weights take 61.0 GiB of 21.8 GiB usable")
    assert found.inputs["batch"] == found.applied["sessions"] == 6
    asked = gnomon.try_idea("gptq", model="qwen3-32b", on="RTX-4090:1", batch=8)
    assert asked.helps and asked.applied is None and "room for 6 sequences" in asked.verdict
    assert "8 were requested" in asked.verdict and asked.missing == {"plain": "does not fit", "applied": "room for 6"}


def refusal(slug: str) -> str:
    with pytest.raises(InputError) as error:
        gnomon.try_idea(slug, model="qwen3-8b", on="H200:1")
    return str(error.value)


def test_a_paper_without_a_technique_says_so() -> None:
    """Whatever its status; and what it needs of Gnomon, and the technique that comes closest."""
    book = paper_book()
    for entry in (one for one in book.papers if not for_paper(one.slug)):
        message, lacking = refusal(entry.slug), [one for one in needs(entry) if one.state != "built"]
        assert message.startswith(f"SLUG: {entry.slug} is {entry.status}, not built as a technique, so it cannot be ")
        assert ("tried: it needs" in message) == bool(lacking)
        assert all(f"{one.name} ({one.state})" in message for one in lacking)
        near = closest(entry, book)
        assert ("comes closest" in message) == (near is not None)
        if near:
            assert f"{near['technique']} comes closest: `gnomon {near['compared_by']} " in message
    assert "unknown technique or paper 'splitwize'" in refusal("splitwize")


@pytest.mark.parametrize("name", [name for name, one in techniques().items() if compared_by(one) != "try"])
def test_what_changes_no_step_is_shown_by_a_load(name: str) -> None:
    """`try` refuses it and names the command that shows what it brings, which takes it."""
    assert f"Compare `gnomon {compared_by(techniques()[name])}` or `plan serve` --with {name}" in refusal(name)
    load = {"rate": 20.0, "input": 200, "output": 50, "requests": 20}
    assert gnomon.simulate_serving("qwen3-0.6b", on="H200:2", techniques=[name], **load).requests == 20


@pytest.mark.parametrize(("name", "title"), [("hybrimoe", "expert-offload"), ("tutel", "expert-overlap")])
def test_what_does_not_apply_either_is_not_compared_with(name: str, title: str) -> None:
    """On a dense model neither a paper's technique for experts nor its baseline runs, and the plain plan does."""
    found = gnomon.try_idea(name, model="qwen3-0.6b", on="H200:2")
    assert found.technique.startswith(title) and found.applied is None and not found.helps
    assert found.against == "" and found.plain is not None and found.plain["techniques"] == []
    assert found.verdict.startswith("No benefit here: ") and found.verdict.endswith("qwen3-0.6b has no experts.")


SERVING = [name for name, one in techniques().items() if "serving" in one.work and compared_by(one) == "try"]
TRAINING = [name for name, one in techniques().items() if "training" in one.work]
SERVED = [
    ("llama-3.1-8b", "RTX-4090"), ("llama-3.1-8b", "H100"), ("qwen3-32b", "RTX-4090"), ("qwen3-32b", "A100"),
    ("llama-3.1-70b", "H100"), ("llama-3.1-70b", "H100:2"), ("llama-3.1-405b", "H200:8"), ("llama-3.1-405b", "L4"),
    ("mixtral-8x7b", "A100"), ("deepseek-v3", "A100:16"), ("gpt-oss-120b", "H100"), ("qwen3-0.6b", "V100-32GB"),
    ("yi-34b", "MI300X"), ("qwen3-14b", "L40S"), ("llama-3.2-1b", "GB200:4"), ("qwen3-8b", "RTX-3090"),
]  # fmt: skip
LONG = {"context": 32768}
LOADS: tuple[dict[str, int], ...] = ({}, {"batch": 8}, {"batch": 200}, LONG, LONG | {"batch": 8})
TRAINED = [
    ("qwen3-0.6b", "H200:1"), ("qwen3-8b", "H200:1"), ("llama-3.1-8b", "A100-80GB:8"), ("llama-3.1-8b", "RTX-4090:8"),
    ("qwen3-14b", "H100:8"), ("mixtral-8x7b", "H100:16"), ("llama-3.1-70b", "H100:64"),
    ("llama-3.1-70b", "V100-32GB:8"),
    ("llama-2-7b", "MI300X:8"), ("qwen3-32b", "GB200:72"),
]  # fmt: skip


def check_serving(name: str, model: str, on: str, load: dict[str, int]) -> None:
    """Whatever side is shown, `predict` and `fit` say of the very same words that it fits, and how long it takes."""
    context = {"context": load["context"]} if "context" in load else {}
    limit = load_model(model).max_context
    if context.get("context", 0) > limit:
        return
    found = gnomon.try_idea(name, model=model, on=on, **load)
    sides = {key: getattr(found, key) for key in ("plain", "applied")}
    rooms = {}
    for key, side in sides.items():
        words = [found.technique] if key == "applied" else [found.against] if found.against else []
        try:
            room = gnomon.fit(model, on=on, context=found.inputs["context"], techniques=words)
        except gnomon.GnomonError:
            assert side is None and "run" in found.missing[key]
            continue
        rooms[key] = int(room.max_batch or 0) if room.fits else 0
        assert (side is not None) == (rooms[key] >= found.inputs["batch"]), f"{key}: {found.verdict}"
        if side is not None:
            batch, before = found.inputs["batch"], found.inputs["context"] - 1
            step = gnomon.predict(model, on=on, phase="decode", batch=batch, context=before, techniques=words)
            assert step.fits and step.time_s.value == side["step_time_s"].value
    if "batch" not in load and any(rooms.values()):
        assert any(sides.values()), "a batch is chosen that runs somewhere"
        assert all(sides[key] for key, room in rooms.items() if room), "and on both sides where both have room"
    if len(rooms) == 2 and bool(rooms["plain"]) != bool(rooms["applied"]):
        assert found.helps is bool(rooms["applied"]) and "does not fit" in found.verdict
    if found.plain is None or found.applied is None:
        assert found.gain is None and set(found.missing) == {key for key, side in sides.items() if side is None}


def check_training(name: str, model: str, on: str) -> None:
    """Whatever plan is shown fits and takes as long by itself; where one side has none, that is the answer."""
    found = gnomon.try_idea(name, model=model, on=on, seq=2048)
    for key in ("plain", "applied"):
        side = getattr(found, key)
        if side is None:
            continue
        ranks = prod(side["degrees"][degree] for degree in ("tp", "pp", "cp", "dp"))
        again = gnomon.simulate_training(
            model, on=f"{on.partition(':')[0]}:{ranks}", seq=2048, global_batch=found.inputs["global_batch"],
            techniques=side["techniques"], **side["degrees"], **side["settings"],
        )  # fmt: skip
        assert again.fits and again.step_time_s.value == pytest.approx(side["step_time_s"].value, rel=1e-9)
    if found.plain is None or found.applied is None:
        assert found.gain is None and found.helps is (found.applied is not None)
    else:
        assert found.gain is not None and found.helps is (
            found.gain.value > 1.005 and "without either" not in found.verdict
        )
        baseline = [canonical(text) for text in found.plain["techniques"]]
        assert baseline == ([canonical(found.against)] if found.against else [])


@pytest.mark.heavy
@pytest.mark.battery(8)
@pytest.mark.parametrize(("model", "on"), SERVED)
def test_what_is_shown_of_serving_runs(model: str, on: str) -> None:
    for index, name in enumerate(SERVING):
        check_serving(name, model, on, LOADS[(len(model) + index) % len(LOADS)])


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS, ids=str)
@pytest.mark.parametrize(("model", "on"), SERVED)
def test_whatever_is_shown_of_serving_runs(model: str, on: str, load: dict[str, int]) -> None:
    for name in SERVING:
        check_serving(name, model, on, load)


@pytest.mark.parametrize("name", TRAINING)
def test_what_is_shown_of_training_runs(name: str) -> None:
    check_training(name, "qwen3-8b", "H200:2")


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize(("model", "on"), TRAINED)
def test_whatever_is_shown_of_training_runs(model: str, on: str, name: str) -> None:
    check_training(name, model, on)


@pytest.mark.parametrize("words", [{}, {"context": 128}])
def test_a_model_that_does_not_decode_is_told_as_such(words: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"--model: bert-base has no decode"):
        gnomon.try_idea("gptq", model="bert-base", on="H100", **words)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"llama-3.2-11b-vision has layers that attend to images"):
        gnomon.try_idea("ring-attention", model="llama-3.2-11b-vision", on="H100:8")


@pytest.mark.parametrize("model", ["gpt2", "llama-2-7b"])
def test_a_length_that_nobody_gave_is_one_the_model_has(model: str) -> None:
    longest = load_model(model).max_context
    assert gnomon.try_idea("gptq", model=model, on="H100").inputs["context"] == min(2048, longest)
    assert gnomon.try_idea("ring-attention", model=model, on="H100:2").inputs["seq"] == min(8192, longest)
