"""vLLM of 2023 and 2024: what its host adds, its defaults, what it refuses, and that an answer says what prices it."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.engines import engine
from gnomon.engines.vllm import releases
from gnomon.errors import InputError
from gnomon.load import model, parse_pool


def decode(engine_name: str, **more: Any) -> Any:
    given: dict[str, Any] = {"on": "A100-SXM-80GB", "batch": 1, "context": 256} | more
    return gnomon.predict(given.pop("model", "llama-2-7b"), engine=engine_name, phase="decode", **given)


@pytest.mark.parametrize("version", ["0.2.0", "0.5.4"])
def test_early_vllm_is_slower_says_so_and_is_not_started(version: str) -> None:
    early, later = decode(f"vllm@{version}", batch=32), decode("vllm", batch=32)
    assert early.time_s.value > 1.2 * later.time_s.value
    release = releases.described()[version]
    assert release.fitted_on in early.time_s.source and release.tested_on in early.time_s.source
    plan = gnomon.plan_serving(
        "llama-2-7b", fleet="A100-SXM-80GB:1", engine=f"vllm@{version}", rate=0.5, input=100, output=10,
        slo="ttft_p90=2s", requests=20,
    ).best.plan  # fmt: skip
    with pytest.raises(InputError, match=version.rpartition(".")[0]):
        gnomon.export(plan, to="vllm")


def test_early_vllm_waits_for_every_sequence_between_steps() -> None:
    """The host's work on sequences is in the open: a step of many takes longer by as much."""
    release = releases.described()["0.5.4"]
    gaps = {
        batch: sum(row.time_s.value for row in decode("vllm@0.5.4", batch=batch).breakdown if row.kind == "host")
        for batch in (8, 64)
    }
    assert gaps[64] - gaps[8] == pytest.approx(56 * release.host["gap_sequence_us"] * 1e-6, rel=0.02)


@pytest.mark.parametrize(
    ("version", "more", "why"),
    [
        ("0.2.0", {"settings": {"enforce_eager": False}}, "--set enforce_eager"),
        ("0.2.0", {"settings": {"enable_prefix_caching": True}}, "--set enable_prefix_caching"),
        ("0.5.4", {"settings": {"async_scheduling": True}}, "--set async_scheduling"),
        ("0.5.4", {"settings": {"num_speculative_tokens": 3}}, "num_speculative_tokens"),
        ("0.5.4", {"settings": {"kv_offloading_size": 4}}, "kv_offloading_size"),
        ("0.5.4", {"settings": {"scheduling_policy": "priority"}}, "--set scheduling_policy"),
        ("0.2.0", {"on": "A100-SXM-80GB:2", "pp": 2}, "--pp"),
        ("0.5.4", {"on": "A100-SXM-80GB:8", "tp": 8, "cp": 2, "model": "llama-2-70b"}, "decode_context_parallel_size"),
        ("0.2.0", {"dtype": "fp8", "on": "H100"}, "--dtype"),
        ("0.5.4", {"dtype": "mxfp4", "on": "H100"}, "--dtype"),
        ("0.2.0", {"kv_dtype": "fp8", "on": "H100"}, "--kv-dtype"),
    ],
)
def test_early_vllm_refuses_what_it_had_not(version: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        decode(f"vllm@{version}", **more)


@pytest.mark.parametrize("version", ["0.2.0", "0.5.4"])
def test_early_vllm_says_what_is_priced_as_today(version: str) -> None:
    """Settings that say what it does anyway are taken; a chip that came later is priced and said."""
    plain = decode(f"vllm@{version}")
    said = decode(f"vllm@{version}", settings={"async_scheduling": False, "max_num_seqs": 256})
    assert said.time_s.value == plain.time_s.value
    assert any("scheduler" in one.why and one.option.endswith(version) for one in plain.not_modelled)
    later = decode(f"vllm@{version}", on="B200")
    assert any("older than Blackwell" in one.why for one in later.not_modelled)
    assert not any("older than" in one.why for one in plain.not_modelled)


def test_early_vllm_has_its_own_defaults() -> None:
    """Nine tenths of the memory, whole prompts, and today's figures of one's own host are not its."""
    one = parse_pool("A100-SXM-80GB")
    settings = {
        version: engine(f"vllm@{version}").settings({}, model("llama-2-7b"), one)
        for version in ("0.2.0", "0.5.4", "0.24.0")
    }
    assert [one["gpu_memory_utilization"] for one in settings.values()] == [0.9, 0.9, 0.92]
    assert [one["max_num_batched_tokens"] for one in settings.values()] == [4096, 4096, 2048]
    assert [one["enforce_eager"] for one in settings.values()] == [True, False, False]
    weighed = engine("vllm@0.5.4").options_to_weigh({}, [one], shares=True)
    assert weighed and all(each.reject_reason and not each.usual for each in weighed)
