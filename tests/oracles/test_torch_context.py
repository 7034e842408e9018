"""Attention put together from parts of the keys, beside PyTorch's over all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from torch.nn import functional as F

from gnomon.engines.torch import context

pytestmark = pytest.mark.oracle

DEVICES = [
    pytest.param(("cpu", torch.float32, 1e-5), id="cpu"),
    pytest.param(
        ("cuda", torch.bfloat16, 2e-2),
        id="flash",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")],
    ),
]
HEADS, TOKENS = 4, 64


@pytest.mark.parametrize("how", DEVICES)
def test_parts_of_the_keys_make_the_whole(how: tuple[str, torch.dtype, float]) -> None:
    device, dtype, close = how
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(2, HEADS, TOKENS, 16, device=device, dtype=dtype) for _ in range(4))
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    whole = F.scaled_dot_product_attention(*leaves)
    whole.backward(grad)

    out, lse = context._attend(q, k[:, :, :24], v[:, :, :24], False)
    out, lse = out.to(torch.float32, copy=True), lse.clone()
    context._merge(out, lse, *context._attend(q, k[:, :, 24:], v[:, :, 24:], False))
    torch.testing.assert_close(out, whole.float(), rtol=close, atol=close)

    read = context.Read(grad, q, out.to(dtype), lse)
    parts = [context._attend_backward(read, k[:, :, keys], v[:, :, keys], False) for keys in (slice(24), slice(24, 64))]
    found = parts[0][0] + parts[1][0], *(torch.cat([a, b], 2) for a, b in zip(parts[0][1:], parts[1][1:], strict=True))
    for own, leaf in zip(found, leaves, strict=True):
        torch.testing.assert_close(own.float(), leaf.grad.float(), rtol=close, atol=2 * close)


@pytest.mark.parametrize("how", DEVICES)
def test_a_piece_is_causal_to_itself(how: tuple[str, torch.dtype, float]) -> None:
    device, dtype, close = how
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, HEADS, TOKENS, 16, device=device, dtype=dtype) for _ in range(3))
    found, _ = context._attend(q, k, v, True)
    torch.testing.assert_close(found, context.plain(q, k, v), rtol=close, atol=close, check_dtype=False)


def test_ranks_have_all_tokens_and_equal_work() -> None:
    lines = [context.ContextRanks(group=None, size=4, own=rank) for rank in range(4)]
    pieces = torch.arange(TOKENS).chunk(8)
    held = [torch.cat([pieces[number] for number in context._pieces(line)]) for line in lines]
    assert sorted(torch.cat(held).tolist()) == list(range(TOKENS))
    assert len({int((one + 1).sum()) for one in held}) == 1  # keys that its queries see
    for rank in range(4):
        seen = 0
        for turn in range(4):
            rows, keys, causal = context._seen(lines[rank], turn, TOKENS // 4)
            pairs = held[rank][rows].unsqueeze(1) >= held[(rank - turn) % 4][keys]
            assert causal or pairs.all()
            seen += int(pairs.sum())
        assert seen == int((held[rank] + 1).sum())  # nothing is left out
