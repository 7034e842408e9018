"""Layers, experts and ranks shared as vLLM's own functions share them, on a CPU."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from tests.graph.shapes import dense

from gnomon.engines.vllm.degrees import SEQUENCE_PARALLEL_MOE, stages
from gnomon.graph.routing import most_held
from gnomon.load.families import FAMILIES

pytest.importorskip("vllm", reason="vLLM is not installed; run `make test-oracles`")
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()

from vllm.config.parallel import ParallelConfig  # noqa: E402
from vllm.distributed.utils import get_pp_indices  # noqa: E402
from vllm.model_executor.models.registry import _VLLM_MODELS  # noqa: E402

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("layers", [1, 2, 26, 32, 48, 61, 80, 126])
def test_layers_are_shared_as_vllm_shares_them(layers: int) -> None:
    for pp in range(1, min(layers, 20) + 1):
        ours = [(stage.start, stage.end) for stage in stages(dense(layers=layers), pp)]
        assert ours == [get_pp_indices(layers, rank, pp) for rank in range(pp)]


def test_experts_are_shared_as_vllm_shares_them() -> None:
    from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map

    for experts in (8, 60, 128, 256):
        for ranks in (2, 3, 6, 8, 16, 64):
            if ranks <= experts:
                held = [determine_expert_map(ranks, rank, experts)[0] for rank in range(ranks)]
                assert max(held) == most_held(experts, ranks)
                assert held.count(max(held)) == (experts % ranks or ranks)


def test_the_default_is_gathered_and_scattered() -> None:
    assert ParallelConfig().all2all_backend == "allgather_reducescatter"
    assert ParallelConfig().enable_expert_parallel is False


def test_which_models_part_their_tokens() -> None:
    """Those whose file asks vLLM's configuration whether to, or takes its experts from one that does."""
    folder = Path(inspect.getfile(ParallelConfig)).parents[1] / "model_executor/models"
    asking = {file.stem for file in folder.glob("*.py") if "use_sequence_parallel_moe" in file.read_text()}
    assert len(asking) > 5
    for name, (_, *architectures) in FAMILIES.items():
        stems = {_VLLM_MODELS[known][0] for known in architectures if known in _VLLM_MODELS}
        if stems & asking:
            assert name in SEQUENCE_PARALLEL_MOE
        for stem in stems - asking:
            if name in SEQUENCE_PARALLEL_MOE:
                taken = re.findall(r"from \.(\w+) import", (folder / f"{stem}.py").read_text())
                assert set(taken) & asking, name
