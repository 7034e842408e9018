"""Techniques as callers and plans write them: what is no list of texts, or no value, is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gnomon
from gnomon.errors import GnomonError, InputError
from gnomon.report.plan import render
from gnomon.report.text import Style
from gnomon.techniques import applied

STEP = {"on": "H100:8", "seq": 2048, "global_batch": 16}
LOAD = {"rate": 1.0, "input": 64, "output": 64, "requests": 10}
ASKED: dict[str, Callable[[Any], object]] = {
    "simulate_training": lambda given: gnomon.simulate_training("llama-3.2-1b", **STEP, techniques=given),
    "predict": lambda given: gnomon.predict("llama-3.2-1b", on="H100", techniques=given),
    "fit": lambda given: gnomon.fit("llama-3.2-1b", on="H100", techniques=given),
    "simulate_serving": lambda given: gnomon.simulate_serving("llama-3.2-1b", on="H100", **LOAD, techniques=given),
    "plan_serving": lambda given: gnomon.plan_serving("llama-3.2-1b", fleet="H100:1", **LOAD, techniques=given),
}


@pytest.mark.parametrize("given", [5, None, [5], [None], [b"gpipe"], "int4-weights", b"gpipe", {"gpipe": 1}], ids=repr)
@pytest.mark.parametrize("function", ASKED)
def test_what_is_no_list_of_texts(function: str, given: Any) -> None:
    with pytest.raises(InputError, match=r"techniques: .* is not a list of techniques"):
        ASKED[function](given)


@pytest.mark.parametrize("given", [[5], [None], [b"gpipe"]], ids=repr)
def test_a_search_for_training_refuses_them_too(given: Any) -> None:
    with pytest.raises(InputError, match="is not a list of techniques"):
        gnomon.plan_training("llama-3.2-1b", cluster="H100:8", seq=2048, global_batch=16, techniques=given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpipe:stages=2,stages=4", "strategy.techniques, gpipe: stages is given twice"),
        ("gpipe:stages=2,stages=2", "strategy.techniques, gpipe: stages is given twice"),
        ("gpipe:stages=٤", "'٤' is not a number"),
        ("gpipe:stages=４", "'４' is not a number"),
        ("gpipe:stages=0_4", "'0_4' is not a number"),
        ("gpipe:stages=", "'' is not a number"),
        ("gpipe:", "'' is not a parameter of gpipe"),
        ("gpipe:stages=4,", "'' is not a parameter of gpipe"),
        ("gpipe:,stages=4", "'' is not a parameter of gpipe"),
    ],
)
def test_slips_of_a_value(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        applied("training", [text])
    assert message in str(caught.value)
    assert applied("training", ["gpipe:stages=4"]).pairs[0][1] == {"stages": 4.0}


@pytest.mark.parametrize("function", [name for name in ASKED if name != "simulate_training"])
def test_what_is_no_plain_decoder_is_refused_everywhere(function: str) -> None:
    load = {} if function in ("predict", "fit") else LOAD
    place = {"fleet": "H100:2"} if function == "plan_serving" else {"on": "H100"}
    with pytest.raises(InputError, match="int4-weights is not applied to gemma-3-12b, which is not a plain decoder"):
        getattr(gnomon, function)("gemma-3-12b", **place, **load, techniques=["int4-weights"])


@pytest.mark.heavy
def test_a_chip_that_no_plan_is_made_for_is_named() -> None:
    given = {"fleet": "H100:1,V100-32GB:1", **LOAD, "requests": 100}
    found = gnomon.plan_serving("llama-3.2-1b", **given, techniques=["int4-weights"])
    assert list(found.left_out) == ["V100-SXM2-32GB"]
    with pytest.raises(GnomonError) as caught:
        gnomon.predict("llama-3.2-1b", on="V100-32GB", techniques=["int4-weights"])
    assert found.left_out["V100-SXM2-32GB"] == caught.value.message
    page = render(found, Style())
    assert f"left out  V100-SXM2-32GB: {caught.value.message}" in page
    assert gnomon.plan_serving("llama-3.2-1b", **given).left_out == {}


def test_names_are_read_in_any_iterable() -> None:
    assert [one.name for one, _ in applied("serving", iter(["int4-weights"])).pairs] == ["int4-weights"]
