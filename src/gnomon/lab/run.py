"""One run of an experiment on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gnomon.calibrate.card import Card, before
from gnomon.calibrate.session import first_card
from gnomon.errors import CalibrationError, InputError, MissingExtraError
from gnomon.lab import experiment
from gnomon.lab.base import Outcome, Tell
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.predicted import predictions

DEVICES = ("cuda", "cpu")
CPU_NOTE = "run on a CPU: results are checked, nothing is timed"


def run(slug: str, given: Mapping[str, str], device: str, tell: Tell) -> Outcome:
    """Run an experiment. Raises before any work where a name, size, package or GPU is missing."""
    chosen = experiment(slug)
    check_device(device)
    sizes = chosen.read_sizes(given, device)
    torch = _torch(device)
    card, notes = _checked_card() if device == "cuda" else (None, (CPU_NOTE,))
    torch.manual_seed(SEED)
    bench = Bench(torch, device, tell, card)
    start = time.monotonic()
    try:
        findings = chosen.work(bench, sizes)
    except torch.OutOfMemoryError as failure:
        hint = f"Give smaller sizes; `gnomon lab` lists those of {slug}."
        raise CalibrationError(f"out of GPU memory: {str(failure).splitlines()[0]}", hint=hint) from None
    name = str(torch.cuda.get_device_name(0)) if device == "cuda" else "cpu"
    rows = [row.row for row in findings.compared] if device == "cuda" else []
    return Outcome(
        slug=slug,
        title=chosen.title,
        sizes=sizes,
        findings=findings,
        device=name,
        sm_hz=bench.sm_hz,
        date=time.strftime("%Y-%m-%d"),
        versions=_versions(torch),
        notes=notes,
        wall_s=time.monotonic() - start,
        claim=chosen.claim,
        predicted=predictions(chosen, rows, findings.facts, name),
    )


def check_device(device: str) -> None:
    if device not in DEVICES:
        raise InputError(f"'{device}' is not a device", where="--device", hint=f"Use {' or '.join(DEVICES)}.")


def check_machine(device: str) -> None:
    """Raise where it is no device, or PyTorch or the GPU is missing."""
    check_device(device)
    _torch(device)


def _torch(device: str) -> Any:
    # cuBLAS reads this once, when it starts: without it equal GEMMs may differ in their last bits.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "torch", "gnomon lab") from None
    if device == "cuda" and not torch.cuda.is_available():
        hint = "Run it on the machine with the GPU, or with --device cpu, which checks and times nothing."
        raise CalibrationError("no CUDA device is visible", where="--device cuda", hint=hint)
    return torch


def _checked_card() -> tuple[Card, tuple[str, ...]]:
    card = first_card()
    return card, tuple(f"the GPU was not idle: {problem}" for problem in before(card))


def _versions(torch: Any) -> dict[str, str]:
    found = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda or "")}
    with suppress(PackageNotFoundError):
        found["triton"] = version("triton")
    return found
