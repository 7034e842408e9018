"""Weights in other widths, with zeros or as factors: bytes by hand, and what GEMMs make of them."""

from __future__ import annotations

import pytest

import gnomon
from gnomon.catalog import chips
from gnomon.cost.efficiencies import efficiency
from gnomon.errors import InputError
from gnomon.graph.ops import Gemm
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, Strategy

SMALL = "llama-3.2-1b"
MATRICES = 16 * (2048 * (2048 + 2 * 512 + 2048) + 3 * 2048 * 8192)
ROWS = 16 * (2048 + 2 * 512 + 2048 + 2 * 8192 + 2048)
SHAPE = {"op": "gemm", "m": 4096, "n": 8192, "k": 8192}


def weights(on: str, *techniques: str) -> float:
    return gnomon.fit(SMALL, on=on, techniques=techniques).parts["weights"]


def time_us(on: str, dtype: str, **sizes: int) -> float:
    (row,) = gnomon.ops([SHAPE | sizes | {"dtype": dtype}], on=on)
    return float(row["time_us"])


@pytest.mark.parametrize(
    ("text", "bits", "scale_bytes"),
    [
        *((f"int4-weights:bits={bits}", bits, MATRICES / 128 * 2) for bits in (1, 2, 5, 6, 8)),
        ("sparse-weights", 9, 0),
        ("sparse-weights:format=int8", 5, 4 * ROWS),
    ],
)
def test_bytes_of_a_width(text: str, bits: int, scale_bytes: float) -> None:
    assert weights("A100") - weights("A100", text) == pytest.approx(MATRICES * (2 - bits / 8) - scale_bytes)


def test_fewer_bits_are_read_sooner() -> None:
    times = [time_us("A100", f"int{bits}-weights", m=1) for bits in (1, 2, 3, 4, 5, 6)]
    assert times == sorted(times) and times[0] < times[-1]


def test_sparse_gemms_reach_more_than_dense_ones_and_no_more_than_the_data_sheet() -> None:
    for chip in ("A100", "H100", "L40S"):
        dense, sparse = (time_us(chip, dtype) for dtype in ("bf16", "bf16-sparse"))
        assert dense / 2 < sparse <= dense
    assert time_us("V100-32GB", "bf16-sparse", m=1) <= time_us("V100-32GB", "fp16", m=1)


def test_no_sparse_rate_is_below_the_dense_one() -> None:
    for chip in chips():
        for dtype, rate in chip.sparse_flops.items():
            assert chip.gemm_rate(dtype, sparse=True) >= max(rate, chip.matrix_rate(dtype)) * (1 - 1e-12)


def test_factors_have_the_share_that_was_asked_for() -> None:
    engine, found = deploy(load_model(SMALL), parse_pool("A100"), strategy=Strategy(techniques=("low-rank-weights",)))
    _, plain = deploy(load_model(SMALL), parse_pool("A100"))
    batch = Batch.decode(8, 100)

    def weighed(deployment: object) -> tuple[float, float]:
        ops = [op for op in engine.graph(deployment).ops if isinstance(op, Gemm) and not op.name.startswith("head")]  # type: ignore[arg-type]
        return sum(op.count * op.n * op.k for op in ops), sum(op.count * op.flops(batch)[0] for op in ops)  # type: ignore[operator]

    for thin, whole in zip(weighed(found), weighed(plain), strict=True):
        assert thin / whole == pytest.approx(0.5, rel=0.01)
    assert weights("A100") - weights("A100", "low-rank-weights") == pytest.approx(MATRICES, rel=0.01)
    assert weights("A100", "low-rank-weights:share=1") == pytest.approx(weights("A100"))
    assert weights("A100:2", "low-rank-weights") < weights("A100:2")


def test_fp4_needs_a_chip_that_multiplies_it() -> None:
    load = {"phase": "prefill", "tokens": 2048, "batch": 4}
    plain, narrow = (
        gnomon.predict("qwen3-8b", on="B200", techniques=words, **load).time_s.value for words in ((), ("rotated-fp4",))
    )
    assert narrow < plain
    with pytest.raises(InputError, match="has no rate in fp4"):
        gnomon.predict("qwen3-8b", on="H100", techniques=["rotated-fp4"], **load)
    with pytest.raises(InputError, match="has no rate for 2:4 sparse weights"):
        gnomon.predict(SMALL, on="V100-32GB", phase="decode", context=10, techniques=["sparse-weights"])


def test_cards_with_shared_ports_run_fp32_slower_than_their_data_sheet() -> None:
    """An RTX A6000 was measured at 0.6 of it; whatever has no such row keeps what its profile says."""
    found = efficiency("gemm", "fp32", "Ada")
    assert found is not None and found.rate < 1
    assert efficiency("gemm", "fp32", "Hopper") is None
