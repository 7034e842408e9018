"""The lab's video decoder: predicted memory against tensors that live, and slices that see too little."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from gnomon.lab.bench import Bench  # noqa: E402
from gnomon.lab.experiments.fast_and_memory_efficient_video_diffusion_using import _exact  # noqa: E402
from gnomon.lab.launches import Tally  # noqa: E402
from gnomon.lab.priced import torch_machine  # noqa: E402
from gnomon.lab.video import VideoDecoder, VideoShape, Walk, parameters, parts, walked  # noqa: E402
from gnomon.load.chips import chip  # noqa: E402

pytestmark = pytest.mark.oracle


class Living(TorchDispatchMode):
    """Bytes of the tensors that operators made and that are still there, and the most of them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = call(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.bytes:
                storage = tensor.untyped_storage()
                self.bytes[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.bytes.pop, storage._cdata)
        self.most = max(self.most, sum(self.bytes.values()))
        return out


class Shapes(Bench):
    """Tensors without values."""

    def __init__(self) -> None:
        super().__init__(torch, "meta", lambda _: None)

    def generator(self, seed: int = 0) -> Any:
        return None


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize(
    "shape",
    [
        VideoShape(frames=4, rows=4, columns=6, base=32),
        VideoShape(frames=14, rows=72, columns=128, base=128),
        VideoShape(frames=9, rows=30, columns=20, base=64),
    ],
    ids=str,
)
def test_memory_that_is_predicted_is_that_of_living_tensors(shape: VideoShape, count: int) -> None:
    decoder = VideoDecoder.drawn(Shapes(), shape.base, torch.bfloat16)
    with torch.no_grad(), Living() as living:
        x = torch.empty(shape.frames, 4, shape.rows, shape.columns, dtype=torch.bfloat16, device="meta")
        made = decoder.sliced(x, count) if count > 1 else decoder.whole(x)
    assert made.shape == (shape.frames, 3, 8 * shape.rows, 8 * shape.columns)
    walk = walked(Walk(Tally(torch_machine(chip("H200"))), turns=False), shape, count)
    assert walk.peak == pytest.approx(living.most, rel=2e-3)
    assert walk.live == made.numel() * 2


def test_parameters_are_those_drawn() -> None:
    decoder = VideoDecoder.drawn(Shapes(), 64, torch.bfloat16)
    drawn = sum(tensor.numel() for made in decoder.weights for pair in made.values() for tensor in pair)
    assert drawn == parameters(64)


def test_norms_of_a_slice_alone_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, whole = Bench(torch, "cpu", lambda _: None), VideoDecoder._scaled
    assert _exact(bench).ok
    monkeypatch.setattr(VideoDecoder, "_scaled", lambda self, x, weight: whole(self, x[:2], weight))
    assert not _exact(bench).ok


def test_parts_cover_everything_once() -> None:
    for size, count in ((14, 7), (83, 7), (3, 7), (5, 3)):
        covered = [i for part in parts(size, count) for i in range(size)[part]]
        assert covered == list(range(size)) and len(parts(size, count)) <= count
