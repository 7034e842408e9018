"""Images that a trace counts for each request: the same as those of --images where they are alike, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError

MODEL = "qwen2.5-vl-7b"
COUNT = 60
SIZE = "532x420"
"""Pixels of an image of 19 x 15 tokens."""
TOKENS = 285


def rows(images: list[Any], tokens: list[Any] | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place, count in enumerate(images):
        row = {"arrival_s": 0.1 * place, "input_tokens": 60 + place % 7, "output_tokens": 12, "images": count}
        found.append(row | ({"image_tokens": tokens[place]} if tokens else {}))
    return found


def csv(path: Path, table: list[dict[str, Any]]) -> Path:
    lines = [",".join(table[0]), *(",".join("" if v is None else str(v) for v in row.values()) for row in table)]
    path.write_text("\n".join(lines) + "\n")
    return path


def jsonl(path: Path, table: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return path


WRITTEN = {"csv": csv, "jsonl": jsonl}


def simulated(trace: Path, **more: Any) -> Any:
    return gnomon.simulate_serving(MODEL, on="H200", trace=trace, **more)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", WRITTEN)
def test_equal_images_are_those_of_the_flag(kind: str, tmp_path: Path) -> None:
    plain = csv(tmp_path / "plain.csv", [{k: v for k, v in row.items() if k != "images"} for row in rows([0] * COUNT)])
    wanted = simulated(plain, images=f"2,{SIZE}")
    found = simulated(WRITTEN[kind](tmp_path / f"t.{kind}", rows([2] * COUNT, [TOKENS] * COUNT)))
    assert found.to_dict()["ttft_s"] == wanted.to_dict()["ttft_s"]
    assert (found.energy_j, found.steps) == (wanted.energy_j, wanted.steps)


@pytest.mark.heavy
def test_requests_without_images_are_those_of_text(tmp_path: Path) -> None:
    """No image at all is a load of text, and each request pays for its own alone."""
    table = rows([0] * COUNT)
    text = simulated(csv(tmp_path / "text.csv", [{k: v for k, v in row.items() if k != "images"} for row in table]))
    none = simulated(csv(tmp_path / "none.csv", table))
    assert none.to_dict()["ttft_s"] == text.to_dict()["ttft_s"]
    some = simulated(csv(tmp_path / "some.csv", rows([3 if place % 10 == 5 else None for place in range(COUNT)])))
    waited = some.run.first_token_s - some.run.requests.arrival_s
    with_images = waited[5::10]
    assert with_images.min() > 1.5 * waited[0]
    assert some.run.requests.input_tokens[5] > 65 and some.run.requests.input_tokens[6] == 66
    assert "18 images in all" in some.title


@pytest.mark.slow
def test_a_plan_has_them(tmp_path: Path) -> None:
    trace = csv(tmp_path / "t.csv", rows([place % 3 for place in range(400)]))
    fixed = {"max_num_seqs": 64, "max_num_batched_tokens": 8192}
    ask: dict[str, Any] = {"fleet": "H200:2", "slo": "ttft_p90=5s", "dtypes": ["bf16"], "settings": fixed}
    found = gnomon.plan_serving(MODEL, trace=trace, **ask)
    assert "with up to 2 images" in found.title
    again = gnomon.plan_serving(MODEL, trace=csv(tmp_path / "p.csv", rows([0] * 400)), **ask)
    assert found.best.ttft_s["mean"] > again.best.ttft_s["mean"]
    with pytest.raises(InputError, match="equally many images"):
        gnomon.plan_serving(MODEL, trace=trace, router="least-kv", **ask)
    with pytest.raises(InputError, match="equal replicas alone"):
        gnomon.plan_serving(MODEL, trace=trace, pools="auto", **ask)


BAD = [
    ([0, -1, 0], None, "line {}, column images: '?-1'? is not a whole number of zero or more"),
    ([0, 1.5, 0], None, "line {}, column images: '?1.5'? is not a whole number of zero or more"),
    ([0, "two", 0], None, "line {}, column images: '?two'? is not a whole number of zero or more"),
    ([0, 20_000, 0], None, "line {}, column images: '?20000'? is more than 10,000"),
    ([1, 1, 0], [TOKENS, -5, 0], "line {}, column image_tokens: '?-5'? is not a whole number of zero or more"),
    ([1, 1, 0], [TOKENS, 300, 0], "line {}, column image_tokens: '300' is not the 285 of the images before it"),
    ([1, 1, 0], [TOKENS, None, 0], "line {}, column image_tokens: '0' is not the 285 of the images before it"),
]


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize(("images", "tokens", "message"), BAD)
def test_a_bad_value_is_named_with_its_line(
    kind: str, images: list[Any], tokens: list[Any] | None, message: str, tmp_path: Path
) -> None:
    trace = WRITTEN[kind](tmp_path / f"t.{kind}", rows(images, tokens))
    with pytest.raises(InputError, match=message.format(3 if kind == "csv" else 2)):
        simulated(trace)


def test_what_is_not_followed_is_refused(tmp_path: Path) -> None:
    trace = csv(tmp_path / "t.csv", rows([1] * 5))
    with pytest.raises(InputError, match="has a column images"):
        simulated(trace, images="1")
    with pytest.raises(InputError, match="closed loop"):
        simulated(trace, concurrency=2)
    with pytest.raises(InputError, match=r"qwen3-8b takes no images"):
        gnomon.simulate_serving("qwen3-8b", on="H200", trace=trace)
    with pytest.raises(InputError, match="not by pools"):
        gnomon.simulate_serving(MODEL, pools=["H200:1"], trace=trace)
    with pytest.raises(InputError, match="not read here"):
        gnomon.tune("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", on="H200", trace=trace, slo="ttft_p90=1s")
    with pytest.raises(InputError, match="needs a column images"):
        simulated(csv(tmp_path / "o.csv", [{k: v for k, v in r.items() if k != "images"} for r in rows([1], [285])]))
    shared = [row | {"prefix_group": "a", "prefix_tokens": 10} for row in rows([1] * 5)]
    with pytest.raises(InputError, match="share no beginnings"):
        simulated(csv(tmp_path / "s.csv", shared))
    with pytest.raises(InputError, match=r"makes no image of 77 tokens"):
        gnomon.simulate_serving("gemma-3-12b", on="H200", trace=csv(tmp_path / "g.csv", rows([1] * 5, [77] * 5)))
