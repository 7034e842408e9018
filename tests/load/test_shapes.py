"""Shapes in YAML: what the documentation shows is read, and every slip is one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon import load
from gnomon.errors import InputError
from gnomon.load.shapes import KINDS, model_from_dict, model_to_dict, shapes_to_yaml

FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"
SMALL: dict[str, Any] = {
    "schema": "gnomon.model/1",
    "hidden": 64,
    "vocab": 1000,
    "max_context": 2048,
    "blocks": [
        {
            "count": 4,
            "mixer": {"kind": "attention", "heads": 8, "kv_heads": 2, "head_dim": 8},
            "ffn": {"kind": "dense", "inner": 128},
        }
    ],
}


def _block(**changes: Any) -> dict[str, Any]:
    return SMALL | {"blocks": [SMALL["blocks"][0] | changes]}


def test_the_documented_example(tmp_path: Path) -> None:
    """As in docs/formats.md, to the letter; every kind is named there."""
    text = FORMATS.read_text()
    example = next(part for part in re.findall(r"```\n(.*?)```", text, re.S) if "gnomon.model/1" in part)
    path = tmp_path / "small-hybrid.yaml"
    path.write_text(example)
    model = load.model(path)
    assert model.layers == 24
    assert model.is_moe
    assert all(f"`{kind}`" in text for kind in KINDS)


def test_a_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    model = load.model(str(path))
    assert (model.name, model.source, model.family) == ("mine", str(path), "custom")
    assert model.parameters == 4 * (64 * 64 * 2 + 2 * 64 * 16 + 3 * 64 * 128 + 128) + 2 * 64000 + 64
    assert gnomon.predict(path, on="H100", phase="decode", batch=4, context=128).time_s.value > 0
    assert load.config_of(path) == {}


@pytest.mark.parametrize(
    "name", ["deepseek-v3.2-exp", "nemotron-h-8b", "whisper-small", "qwen2.5-vl-7b", "dit-xl-2-256"]
)
def test_what_is_printed_is_read_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / "again.yaml"
    path.write_text(shapes_to_yaml(model_to_dict(load.model(name))))
    again = load.model(path)
    assert again.name == name
    assert (again.parameters, again.blocks, again.towers) == (
        load.model(name).parameters,
        load.model(name).blocks,
        load.model(name).towers,
    )


BROKEN = {
    "no-schema": ({key: value for key, value in SMALL.items() if key != "schema"}, "field schema: is missing"),
    "old-schema": (SMALL | {"schema": "gnomon.model/9"}, "'gnomon.model/9' is not gnomon.model/1"),
    "no-hidden": (SMALL | {"hidden": None}, "field hidden: is missing"),
    "hidden-text": (SMALL | {"hidden": "64"}, "field hidden: '64'"),
    "unknown": (SMALL | {"hiden": 64}, "field hiden: unknown field. Did you mean 'hidden'?"),
    "misspelt": (
        _block(mixer={"kind": "attention", "heads": 8, "kv_head": 8, "head_dim": 8}),
        "field blocks[0].mixer.kv_head: unknown field. Did you mean 'kv_heads'?",
    ),
    "no-blocks": (SMALL | {"blocks": []}, "field blocks: holds no layers"),
    "blocks-text": (SMALL | {"blocks": "many"}, "field blocks: 'many' is not a list"),
    "block-number": (SMALL | {"blocks": [3]}, "field blocks[0]: 3 is not a mapping"),
    "no-count": (_block(count=None), "field blocks[0].count: is missing"),
    "count-zero": (_block(count=0), "field blocks[0].count: 0"),
    "too-many": (_block(count=20_000), "20,000 layers are more than 10,000"),
    "no-kind": (_block(mixer={"heads": 8}), "field blocks[0].mixer.kind: is missing"),
    "wrong-kind": (
        _block(mixer={"kind": "atention"}),
        "field blocks[0].mixer.kind: unknown kind 'atention'. Near: att",
    ),
    "kind-elsewhere": (_block(ffn={"kind": "mamba2"}), "unknown kind 'mamba2'"),
    "field-elsewhere": (
        _block(ffn={"kind": "dense", "inner": 8, "heads": 2}),
        "field blocks[0].ffn.heads: unknown field",
    ),
    "heads-uneven": (
        _block(mixer={"kind": "attention", "heads": 8, "kv_heads": 3, "head_dim": 8}),
        "8 heads cannot share 3 key-value heads",
    ),
    "too-few-experts": (
        _block(ffn={"kind": "moe", "experts": 4, "topk": 5, "inner": 8}),
        "5 experts per token of only 4",
    ),
    "nothing": (_block(mixer=None, ffn=None), "blocks[0]: is a layer of nothing"),
    "flag-number": (SMALL | {"tied_embeddings": 1}, "field tied_embeddings: 1 is not true or false"),
    "dtype": (SMALL | {"dtype": "fp5"}, "unknown number format 'fp5'"),
    "pair": (
        _block(formats={"q": {"name": "fp8", "bits": 8, "block": [128]}}) | {"dtype": "fp8", "kept_dtype": "bf16"},
        "field blocks[0].formats.q.block: [128] is not 2 whole numbers",
    ),
    "kept": (_block(formats={"q": {"name": "fp8", "bits": 8}}) | {"dtype": "fp8"}, "field kept_dtype"),
    "tower": (SMALL | {"towers": [{"name": "vision"}]}, "field towers[0].hidden: is missing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_slips(case: str) -> None:
    data, said = BROKEN[case]
    with pytest.raises(InputError) as caught:
        model_from_dict(data, "mine.yaml")
    text = str(caught.value)
    assert said in text
    assert text.startswith("mine.yaml")
    assert "\n" not in text
