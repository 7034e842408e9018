"""Device, versions and SM clock of a measurement, as far as they are known."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnomon.engines.torch.ranks import Place

EVERY_MS = 500


def versions() -> dict[str, str | None]:
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else None
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "nccl": nccl}


def device_name(place: Place) -> str:
    return str(torch.cuda.get_device_name()) if place.device.type == "cuda" else platform.processor() or "cpu"


def sm_mhz(place: Place) -> int | None:
    """The current SM clock; None where nvidia-smi is not available."""
    command = _command(place)
    if command is None:
        return None
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return next(iter(_numbers(output)), None)


@contextmanager
def watched(place: Place) -> Iterator[list[int]]:
    """A list that, on exit, holds the SM clock sampled every EVERY_MS inside."""
    seen: list[int] = []
    command = _command(place)
    if command is None:
        yield seen
        return
    with subprocess.Popen([*command, f"--loop-ms={EVERY_MS}"], stdout=subprocess.PIPE, text=True) as watcher:
        try:
            yield seen
        finally:
            watcher.terminate()
            seen += _numbers(watcher.communicate()[0])


def _command(place: Place) -> list[str] | None:
    """Only the first rank queries the clock, and only of its own chip."""
    if place.device.type != "cuda" or place.rank != 0 or shutil.which("nvidia-smi") is None:
        return None
    chip = f"GPU-{torch.cuda.get_device_properties(place.device).uuid}"
    return ["nvidia-smi", "-i", chip, "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]


def _numbers(output: str) -> list[int]:
    return [int(line) for line in output.split() if line.isdigit()]
