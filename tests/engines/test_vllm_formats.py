"""Which kernels a format gets on a chip, and what is refused."""

from __future__ import annotations

import pytest

from gnomon.catalog import chip, chip_names
from gnomon.engines.vllm.formats import as_run, obstacle, running, supported
from gnomon.errors import InputError
from gnomon.graph.dtypes import GEMM_FORMATS, gemm_format
from gnomon.graph.formats import gemm_dtype, known
from gnomon.load import model as load_model
from gnomon.spec import Format
from gnomon.spec.formats import NARROW
from gnomon.spec.narrowed import in_format

BLOCKS = Format(name="fp8", bits=8, block=(128, 128), scale_bits=32, activations="fp8")


@pytest.mark.parametrize(
    ("name", "on", "runs"),
    [
        ("fp8", "H100", "fp8"),
        ("fp8", "L4", "fp8"),
        ("fp8", "B200", "fp8"),
        ("fp8", "MI300X", "fp8"),
        ("fp8", "A100", "fp8-weights"),
        ("fp8", "T4", "fp8-weights"),
        ("int8", "A100", "int8"),
        ("int8", "H100", "int8"),
        ("int4", "A100", "int4-weights"),
        ("int4", "B200", "int4-weights"),
        ("nvfp4", "B200", "nvfp4"),
        ("nvfp4", "H200", "nvfp4-weights"),
        ("mxfp4", "H100", "mxfp4-weights"),
        ("mxfp4", "B200", "mxfp4-weights"),
    ],
)
def test_kernels(name: str, on: str, runs: str) -> None:
    assert gemm_dtype(as_run(NARROW[name], chip(on))) == runs


def test_blocks_of_fp8() -> None:
    assert gemm_dtype(as_run(BLOCKS, chip("H200"))) == "fp8-blocks"
    assert gemm_dtype(as_run(BLOCKS, chip("A100"))) == "fp8-weights"


@pytest.mark.parametrize(
    ("name", "on", "why"),
    [
        ("int8", "B200", "from Turing to Hopper only. What runs there: bf16, fp16, fp8, int4, mxfp4, nvfp4"),
        ("int4", "V100", "Turing or later. What runs there: fp16"),
        ("int4", "MI300X", "only on NVIDIA. What runs there: bf16, fp16, fp8, int8"),
    ],
)
def test_refusals(name: str, on: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        as_run(NARROW[name], chip(on))


def test_formats_that_nothing_stands_for() -> None:
    odd = Format(name="nf4", bits=4, block=(1, 64), scale_bits=32)
    assert not known(odd)
    assert obstacle(odd, chip("H100"))


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", chip_names())
def test_what_is_said_to_run_runs(name: str) -> None:
    found = chip(name)
    plain = load_model("llama-3.2-1b")
    for dtype in supported(found):
        if dtype in NARROW:
            gemm_format(gemm_dtype(as_run(NARROW[dtype], found)))
            assert running(in_format(plain, dtype), found).dtype == dtype
        else:
            assert dtype in found.rates_flops


def test_products_agree_with_what_is_stored() -> None:
    """Bytes of a weight in a product are those of the format on disk, for a matrix that blocks divide."""
    rows, columns = 4096, 8192
    formats = {"fp8-blocks": BLOCKS, "nvfp4": NARROW["nvfp4"]}
    formats |= {f"{name}-weights": NARROW[name] for name in ("fp8", "int4", "mxfp4", "nvfp4")}
    for name, format in formats.items():
        assert GEMM_FORMATS[name].weights == pytest.approx(format.bytes(rows, columns) / (rows * columns), rel=1e-3), (
            name
        )
