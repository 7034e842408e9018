"""The lab's attention over chosen blocks: a block that is not the chosen one, and a branch left out, are seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from gnomon.errors import InputError  # noqa: E402
from gnomon.lab.bench import Bench  # noqa: E402
from gnomon.lab.experiments import direct3d_s2 as sparse  # noqa: E402
from gnomon.lab.ways import Ways  # noqa: E402

pytestmark = pytest.mark.oracle


def passed(voxels: sparse.Voxels) -> list[bool]:
    """Of the sparse way's checks, which hold."""
    ways = Ways(Bench(torch, "cpu", lambda _: None))
    sparse._timed(ways, voxels)
    return [check.ok for check in ways.checks if sparse.SPARSE in check.what]


def drawn() -> sparse.Voxels:
    return sparse.drawn(Bench(torch, "cpu", lambda _: None), 4, 1024)


def test_what_is_right_passes() -> None:
    assert passed(drawn()) == [True]


def test_a_block_that_was_not_chosen_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sparse.Voxels._of

    def shifted(self: sparse.Voxels, x: Any, lists: Any) -> Any:
        lists = lists.clone()
        if lists.shape[-1] > 1:
            lists[..., 0] = (lists[..., 0] + 1) % lists.shape[1]
        return whole(self, x, lists)

    monkeypatch.setattr(sparse.Voxels, "_of", shifted)
    assert passed(drawn()) == [False]


@pytest.mark.parametrize("branch", range(3))
def test_a_branch_left_out_is_seen(branch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sparse.Voxels.gathered

    def fewer(self: sparse.Voxels) -> Any:
        gates = self.gates.clone()
        gates[branch] = 0
        return whole(replace(self, gates=gates))

    monkeypatch.setattr(sparse.Voxels, "gathered", fewer)
    assert passed(drawn()) == [False]


def test_blocks_are_chosen_by_their_means() -> None:
    voxels = drawn()
    for head in range(sparse.KV_HEADS):
        key = torch.stack([block.float().mean(0) for block in voxels.key[head].split(sparse.BLOCK)])
        group = voxels.query[2 * head : 2 * head + 2].float().mean(0)
        for place, block in enumerate(group.split(sparse.BLOCK)):
            scores = key @ block.mean(0)
            mine = set(voxels.chosen()[head, place].tolist())
            least = scores[list(mine)].min()
            assert len(mine) == sparse.CHOSEN
            assert all(score <= least + 1e-3 for at, score in enumerate(scores.tolist()) if at not in mine)


def test_sizes_make_blocks() -> None:
    bench = Bench(torch, "cpu", lambda _: None)
    for sizes, words in (({"tokens": 2100, "heads": 4}, "make no blocks"), ({"tokens": 2048, "heads": 6}, "6 heads")):
        with pytest.raises(InputError, match=words):
            sparse.work(bench, sizes)
