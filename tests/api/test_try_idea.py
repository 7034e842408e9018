"""Ideas of papers on models and chips they never saw."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon

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
        ("zero-offload", "all fits without it"),
        ("deep-optimizer-states", "without either all fits"),
    ],
)
def test_no_benefit_where_there_can_be_none(slug: str, why: str) -> None:
    found = gnomon.try_idea(slug, model="qwen3-0.6b", on="H200:1")
    assert not found.helps and found.verdict.startswith("It brings nothing here") and why in found.verdict


def test_what_fits_only_with_it() -> None:
    found = gnomon.try_idea("zero-offload", model="qwen3-8b", on="H200:1")
    assert found.helps and found.plain is None and found.applied is not None and found.gain is None


def test_without_is_the_best_plan_without() -> None:
    """The best of all plans is on one of the two sides."""
    words = {"seq": 131072, "global_batch": 4}
    found = gnomon.try_idea("sequence-parallelism", model="llama-3.1-8b", on="H100:16", **words)
    best = gnomon.plan_training("llama-3.1-8b", cluster="H100:16", **words).best.step_time_s.value
    assert found.plain is not None and found.applied is not None
    assert min(side["step_time_s"].value for side in (found.plain, found.applied)) == pytest.approx(best, rel=1e-9)


def test_an_idea_with_parameters() -> None:
    often = gnomon.try_idea("datastates-llm", model="qwen3-8b", on="H200:8")
    rarely = gnomon.try_idea("datastates-llm:every=100", model="qwen3-8b", on="H200:8")
    assert often.gain is not None and rarely.gain is not None and often.gain.value > 1.3 > rarely.gain.value > 1
    assert "every=100" in rarely.technique and "every=100" in rarely.against


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
    from gnomon.api import train_search

    priced: list[int] = []
    figures = train_search.figures

    def counted(model: Any, load: Any, grid: Any, *rest: Any) -> Any:
        priced.append(grid.size)
        return figures(model, load, grid, *rest)

    monkeypatch.setattr(train_search, "figures", counted)
    gnomon.try_idea("offload-optimizer", model="llama-3.2-1b", on="H100:2", seq=512, global_batch=8)
    assert len(priced) == 1
