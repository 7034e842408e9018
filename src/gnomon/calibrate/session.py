"""One calibration on this machine: the card is looked at, warmed up and measured into a table."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gnomon.calibrate.card import Card, before, refuse
from gnomon.calibrate.collect import Log, torch_module
from gnomon.calibrate.lab import Lab
from gnomon.calibrate.measure import CalibrationRun, Tell
from gnomon.calibrate.shapes import designs
from gnomon.errors import CalibrationError
from gnomon.load.chips import chip as find_chip
from gnomon.spec import Chip

PACKAGES = ("vllm", "triton")


def measure(
    out: Path, families: Sequence[str], *, budget_s: float, force: bool, tell: Tell | None
) -> tuple[Log, Chip, dict[str, int]]:
    """The table with all that could be measured in the time, the chip, and how many rows each outcome got."""
    lab, chip, head, problems = opened(str(out), force=force)
    torch = torch_module()
    log = Log.open(out, head)
    if force:
        log.force(problems)
    wanted = designs(
        families,
        vllm=importlib.util.find_spec("vllm") is not None,
        cards=torch.cuda.device_count(),
        formats=tuple(chip.rates_flops),
    )
    run = CalibrationRun(log=log, bench=lab, chip=chip, budget_s=budget_s, force=force, tell=tell or (lambda *_: None))
    try:
        return log, chip, run.measure(wanted)
    finally:
        lab.close()


def opened(out: str, *, force: bool) -> tuple[Lab, Chip, dict[str, Any], tuple[str, ...]]:
    """The first card, warmed up: its lab, chip, versions, and what is wrong with it, where it is measured in spite of
    that."""
    torch, card = torch_module(), first_card()
    problems = before(card)
    if not force:
        refuse(problems, out)
    name = str(torch.cuda.get_device_name(0))
    if not name.startswith(card.name):
        hint = "Set CUDA_VISIBLE_DEVICES to the card, by the name that `nvidia-smi -L` gives it."
        raise CalibrationError(f"PyTorch measures {name}, and the driver watches {card.name}", hint=hint)
    lab = Lab(torch, card)
    problems += lab.settle()
    if not force:
        refuse(problems, out)
    chip = find_chip(name)
    return lab, chip, _head(torch, chip, card), problems


def first_card() -> Card:
    """The card that PyTorch calls the first, by its number among all that the driver knows."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    try:
        return Card(named or "0")
    except OSError:
        hint = "It comes with NVIDIA's driver: libnvidia-ml.so.1."
        raise CalibrationError("the driver's library of management was not found", hint=hint) from None


def _head(torch: Any, chip: Chip, card: Card) -> dict[str, Any]:
    found = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(0)}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"chip": chip.name, "date": time.strftime("%Y-%m-%d"), "versions": found, "notes": list(card.notes())}
