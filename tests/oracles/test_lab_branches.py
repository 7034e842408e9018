"""What experiments do only on a GPU, on a CPU: every way and kernel of theirs, with Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed; run `make test-oracles`")

pytestmark = pytest.mark.oracle

INTERPRETED = ("fused-mlp-intel", "hopper-dissection", "onesweep", "tempi", "tilus")
"""Experiments whose ways are Triton kernels beside PyTorch's operators."""

# Triton reads its mode when it is imported, so each runs in a process of its own; its interpreter multiplies fp16, not
# bf16.
CODE = """
import sys
import torch
torch.bfloat16 = torch.float16
from gnomon.lab import experiment
from gnomon.lab.bench import Bench
from gnomon.lab.experiments import fused_mlp_intel
compiled = fused_mlp_intel._compiled
fused_mlp_intel._compiled = lambda torch: compiled(torch, "eager")

class Device(str):
    def __eq__(self, other):
        return other in ("cpu", "cuda")
    def __ne__(self, other):
        return other not in ("cpu", "cuda")
    __hash__ = str.__hash__

class Branched(Bench):
    processors = 2
    def __init__(self):
        super().__init__(torch, "cpu", lambda _: None)
        self.device = Device("cpu")

found = experiment(sys.argv[1])
sizes = found.read_sizes({}, "cpu")
outcome = found.work(Branched(), sizes)
assert all(check.ok for check in outcome.checks), [check for check in outcome.checks if not check.ok]
assert not [note for note in outcome.notes if "cannot be run" in note], outcome.notes
assert {row.what for row in outcome.compared} == {row.what for row in found.rows(sizes)}
"""


@pytest.mark.parametrize("slug", INTERPRETED)
def test_every_way_of_a_gpu_is_right(slug: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", CODE, slug], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
