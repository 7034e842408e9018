"""Sweep files: what they mean, and what is refused before anything is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.api.sweep import COMMANDS, parameters
from gnomon.errors import InputError
from gnomon.load.sweep import MOST_QUESTIONS, read_sweep
from gnomon.spec.sweep import Sweep

HEAD = "command: predict\nfixed: {model: llama-3.2-1b, on: H100}\n"


def read(text: str, tmp_path: Path) -> Sweep:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    return read_sweep(file, parameters())


def questions(text: str, tmp_path: Path) -> list[dict[str, Any]]:
    found = read(text, tmp_path)
    return [found.question(index) for index in range(len(found))]


def test_lists_are_multiplied_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = questions(HEAD + "over: {dtype: [bf16, fp8], batch: [1, 2, 3]}\n", tmp_path)
    assert [(one["dtype"], one["batch"]) for one in found] == [
        ("bf16", 1), ("bf16", 2), ("bf16", 3), ("fp8", 1), ("fp8", 2), ("fp8", 3),
    ]  # fmt: skip
    assert list(found[0]) == ["model", "on", "dtype", "batch"]
    swapped = questions(HEAD + "over: {batch: [1, 2, 3], dtype: [bf16, fp8]}\n", tmp_path)
    assert [(one["dtype"], one["batch"]) for one in swapped][:2] == [("bf16", 1), ("fp8", 1)]


def test_lists_that_advance_together(tmp_path: Path) -> None:
    text = "command: predict\nzip:\n- {model: [llama-3.2-1b, llama-3.1-8b], on: [H100, 'H100:2']}\n- {batch: [1, 2]}\n"
    found = questions(text, tmp_path)
    assert [(one["model"], one["on"], one["batch"]) for one in found] == [
        ("llama-3.2-1b", "H100", 1), ("llama-3.2-1b", "H100", 2),
        ("llama-3.1-8b", "H100:2", 1), ("llama-3.1-8b", "H100:2", 2),
    ]  # fmt: skip
    one_group = "command: predict\nfixed: {model: llama-3.2-1b}\nzip: {on: [H100, H200], batch: [1, 2]}\n"
    assert [(one["on"], one["batch"]) for one in questions(one_group, tmp_path)] == [("H100", 1), ("H200", 2)]


def test_questions_written_out(tmp_path: Path) -> None:
    found = questions(HEAD + "each: [{batch: 1}, {batch: 2, dtype: fp8}]\nover: {context: [0, 5]}\n", tmp_path)
    assert [{key: one[key] for key in one if key not in ("model", "on")} for one in found] == [
        {"batch": 1, "context": 0}, {"batch": 1, "context": 5},
        {"batch": 2, "dtype": "fp8", "context": 0}, {"batch": 2, "dtype": "fp8", "context": 5},
    ]  # fmt: skip


def test_a_file_without_lists_is_one_question(tmp_path: Path) -> None:
    assert questions(HEAD, tmp_path) == [{"model": "llama-3.2-1b", "on": "H100"}]


def test_names_as_flags_and_values_as_flags_have_them(tmp_path: Path) -> None:
    text = (
        "command: predict\nfixed: {model: llama-3.2-1b, on: H100, kv-dtype: fp8, with: int4-weights,\n"
        "  set: {max_num_seqs: 64}}\nover: {context: [8k, 1e3, 12], dtype: [null, fp8]}\n"
    )
    found = questions(text, tmp_path)
    assert found[0] == {
        "model": "llama-3.2-1b", "on": "H100", "kv_dtype": "fp8", "techniques": ["int4-weights"],
        "settings": {"max_num_seqs": 64}, "context": 8000, "dtype": None,
    }  # fmt: skip
    assert [one["context"] for one in found[::2]] == [8000, 1000, 12]


def test_every_public_question_can_be_swept() -> None:
    known = parameters()
    assert set(COMMANDS.values()) < set(gnomon.__all__)
    assert {"model", "on"} <= set(known["predict"].required)
    assert {"model", "cluster", "seq", "global_batch"} == set(known["plan train"].required)
    assert "progress" not in known["plan serve"].hints and "record" not in known["simulate serve"].hints
    assert known["try"].required == ("name", "model", "on")


def test_a_mapping_is_a_sweep_too() -> None:
    given = {"command": "fit", "fixed": {"model": "llama-3.2-1b"}, "over": {"on": ["H100", "H200"]}}
    assert len(read_sweep(given, parameters())) == 2


def test_the_digest_is_of_the_questions(tmp_path: Path) -> None:
    base = read(HEAD + "over: {batch: [1, 2]}\n", tmp_path).digest
    assert read(HEAD + "# a remark\nover:\n  batch: [1, 2]\n", tmp_path).digest == base
    for other in ("over: {batch: [2, 1]}\n", "over: {batch: [1, 2, 3]}\n", "over: {context: [1, 2]}\n"):
        assert read(HEAD + other, tmp_path).digest != base


MANY = "[" + ", ".join(map(str, range(2200))) + "]"
BROKEN = {
    "no command": ("fixed: {model: m}\n", "field command", "is missing"),
    "unknown command": ("command: predictt\n", "field command", "Near: predict"),
    "a command that is no question": ("command: history\n", "field command", "unknown command"),
    "unknown name": (HEAD + "over: {bacth: [1]}\n", "field over.bacth", "Near: batch"),
    "unknown fixed name": ("command: predict\nfixed: {modle: m}\n", "field fixed.modle", "Near: model"),
    "unknown part": (HEAD + "overs: {batch: [1]}\n", "field overs", "Did you mean 'over'?"),
    "no model": ("command: predict\nfixed: {on: H100}\n", "sweep.yaml", "'model' is missing"),
    "model in some entries": (
        "command: predict\nfixed: {on: H100}\neach: [{model: a}, {batch: 2}]\n",
        "field each",
        "'model' is missing from some entries",
    ),
    "empty list": (HEAD + "over: {batch: []}\n", "field over.batch", "has no values"),
    "empty each": (HEAD + "each: []\n", "field each", "has no values"),
    "empty zip": (HEAD + "zip: [{}]\n", "field zip[0]", "has no values"),
    "no list": (HEAD + "over: {batch: 4}\n", "field over.batch", "Write a list, [4]"),
    "wrong type": (HEAD + "over: {batch: [1, true]}\n", "field over.batch[1]", "True is not a whole number"),
    "a text for a number": (HEAD + "over: {batch: [many]}\n", "field over.batch[0]", "'many' is not a count"),
    "a fraction": (HEAD + "over: {batch: [1.5]}\n", "field over.batch[0]", "whole number"),
    "a number for a text": (HEAD + "over: {dtype: [8]}\n", "field over.dtype[0]", "8 is not a text"),
    "a list for a text": (HEAD + "over: {dtype: [[fp8]]}\n", "field over.dtype[0]", "is not a text"),
    "a date": (HEAD + "over: {dtype: [2026-01-01]}\n", "field over.dtype[0]", "is not a text"),
    "null": ("command: predict\nfixed: {model: m, on: null}\n", "field fixed.on", "None is not a text"),
    "a setting that is a list": (HEAD + "over: {settings: [{a: [1]}]}\n", "field over.settings[0]", "plain value"),
    "settings as a text": (HEAD + "over: {settings: [a=1]}\n", "field over.settings[0]", "is not a mapping"),
    "a technique that is a number": (HEAD + "over: {techniques: [[1]]}\n", "field over.techniques[0]", "not a text"),
    "not a number": (HEAD + "over: {settings: [{a: .nan}]}\n", "field over.settings[0]", "plain value"),
    "twice in fixed and over": (HEAD + "over: {on: [H200]}\n", "field over.on", "given twice, here and under fixed.on"),
    "twice in zip and over": (
        HEAD + "over: {batch: [1]}\nzip: {batch: [2]}\n", "field zip.batch", "here and under over.batch",
    ),
    "twice in each and over": (
        HEAD + "each: [{batch: 1}]\nover: {batch: [2]}\n", "field over.batch", "here and under each",
    ),
    "twice by a dash": (HEAD + "over: {kv-dtype: [fp8], kv_dtype: [bf16]}\n", "field over.kv_dtype", "given twice"),
    "a value twice": (HEAD + "over: {batch: [4, 2, 4]}\n", "field over.batch", "4 is given twice, as entries 1 and 3"),
    "an entry twice": (HEAD + "each: [{batch: 4}, {batch: 4}]\n", "field each", "is given twice"),
    "uneven zip": (HEAD + "zip: {batch: [1, 2], context: [3]}\n", "field zip", "differ in length: batch 2, context 1"),
    "a key twice": (HEAD + "over: {batch: [1]}\nover: {batch: [2]}\n", "line 4", "given twice"),
    "each of numbers": (HEAD + "each: [3]\n", "field each[0]", "is not a mapping"),
    "over a list": (HEAD + "over: [3]\n", "field over", "is not a mapping"),
    "zip of numbers": (HEAD + "zip: 3\n", "field zip", "is not a list"),
    "too many": (HEAD + f"over: {{batch: {MANY}, context: {MANY}, tokens: {MANY}}}\n", "sweep.yaml", "more than"),
    "no mapping": ("- 1\n", "sweep.yaml", "not a mapping"),
    "code": ("command: !!python/object/apply:os.getcwd []\n", "line 1", "not plain YAML"),
    "aliases": ("command: &a predict\nfixed: {model: *a}\n", "sweep.yaml", "aliases"),
    "control letters": (HEAD + 'over: {dtype: ["\\e[31m"]}\n', "field over.dtype[0]", "is not a text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_names_its_place(name: str, tmp_path: Path) -> None:
    text, place, said = BROKEN[name]
    with pytest.raises(InputError) as caught:
        read(text, tmp_path)
    assert "sweep.yaml" in caught.value.where
    assert place in caught.value.where
    assert said in str(caught.value)


@pytest.mark.heavy
def test_ten_million_questions_and_no_more(tmp_path: Path) -> None:
    thousand = "[" + ", ".join(map(str, range(1000))) + "]"
    most = HEAD + f"over: {{batch: {thousand}, context: {thousand}, tokens: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}\n"
    found = read(most, tmp_path)
    assert len(found) == MOST_QUESTIONS
    assert found.question(MOST_QUESTIONS - 1) | {"model": "", "on": ""} == {
        "model": "", "on": "", "batch": 999, "context": 999, "tokens": 10,
    }  # fmt: skip
    with pytest.raises(InputError, match="11,000,000 questions are more than 10,000,000"):
        read(most.replace("10]", "10, 11]"), tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_sweep(tmp_path / "absent.yaml", parameters())
