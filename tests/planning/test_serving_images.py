"""`--images`: tokens of prompts, the tower's time and memory, and who is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.load.plan import plan_from_dict
from gnomon.spec.loads.images import RequestImages
from gnomon.spec.plan_dict import plan_to_dict

LOAD: dict[str, Any] = {"on": "H200", "rate": 0.05, "input": 100, "output": 20, "requests": 12}


def served(model: str = "qwen2.5-vl-7b", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = gnomon.simulate_serving(model, **LOAD | more).to_dict()
    return found


@pytest.mark.heavy
def test_an_idle_replica_takes_the_tower_beside_the_longer_prompt() -> None:
    """1,280 by 720 pixels are 1,196 tokens: 46 by 26."""
    called = {"settings": {"front_end": "in_process"}}
    with_images, text = served(images="2,1280x720", **called), served(input=100 + 2 * 1196, **called)
    options = {"on": "H200", "phase": "prefill"}
    whole = gnomon.predict("qwen2.5-vl-7b", tokens=100, images=2, image="1280x720", **options)
    decoder = gnomon.predict("qwen2.5-vl-7b", tokens=100 + 2 * 1196, images=0, **options)
    tower = whole.time_s.value - decoder.time_s.value
    more = with_images["ttft_s"]["p50"] - text["ttft_s"]["p50"]
    assert more == pytest.approx(tower, rel=1e-6)
    assert with_images["inputs"]["images"] == "2,1280x720,tokens=1196"


@pytest.mark.heavy
def test_no_tokenizer_works_on_images() -> None:
    both = [served(images="4,1280x720", settings={"front_end": how}) for how in ("http", "in_process")]
    text = [served(settings={"front_end": how}) for how in ("http", "in_process")]
    added, usual = (one["ttft_s"]["p50"] - other["ttft_s"]["p50"] for one, other in (both, text))
    assert added == pytest.approx(usual, rel=1e-6)


@pytest.mark.heavy
def test_more_images_take_longer_and_more_memory() -> None:
    few, many = served(images="1,640x480"), served(images="4,640x480")
    assert many["ttft_s"]["mean"] > few["ttft_s"]["mean"]
    assert few["kv_blocks"] < served()["kv_blocks"]


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ("llama-3.1-8b", {}, "takes no images"),
        ("llama-3.2-11b-vision", {}, "cross-attention"),
        ("qwen2.5-vl-7b", {"engine": "sglang"}, "not simulated under SGLang"),
        ("qwen2.5-vl-7b", {"settings": {"speculative_method": "ngram_gpu"}}, "no images with speculative_method"),
        ("qwen2.5-vl-7b", {"on": "H200:2", "pp": 2}, "no images on data-parallel ranks or a pipeline"),
        ("qwen2.5-vl-7b", {"turns": 2}, "not simulated with --turns"),
        ("qwen2.5-vl-7b", {"images": "0"}, "not a number of images"),
        ("qwen2.5-vl-7b", {"images": "1,12"}, "not the size of an image"),
        ("mistral-small-3.1-24b", {"images": "1,4000x4000"}, "per side"),
    ],
)
def test_what_is_not_simulated_is_refused(model: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        served(model, **{"images": 1} | more)


@pytest.mark.slow
def test_a_plan_keeps_its_images() -> None:
    answer = gnomon.plan_serving(
        "qwen2.5-vl-7b",
        fleet="H200:1",
        rate=1,
        input=100,
        output=20,
        images="1,640x480",
        requests=200,
        slo="ttft_p90=2s",
    )
    plan = answer.best.plan
    written = json.loads(json.dumps(plan_to_dict(plan)))
    assert plan_from_dict(written).load == plan.load
    assert written["load"]["images"].startswith("1,640x480,tokens=")


@pytest.mark.parametrize("text", ["1", "3,640x480", "2,10x20,tokens=7"])
def test_descriptions_are_read_back(text: str) -> None:
    assert RequestImages.read(text).text == text
