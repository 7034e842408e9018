"""Which vLLM the oracles run: the installed one, or the one whose folder GNOMON_VLLM names (a wheel's Python files,
unpacked; `pip download vllm==0.33.0 --no-deps`, `unzip '*.py' 'vllm-*/*'`). Imported before anything of vLLM is."""

from __future__ import annotations

import os
import sys
import tempfile

import pytest

FOLDER = os.environ.get("GNOMON_VLLM", "")
if FOLDER and FOLDER not in sys.path:
    sys.path.insert(0, FOLDER)
    # Models are looked at in a process of its own, and what is found is kept.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH", ""))))
    os.environ.setdefault("VLLM_CACHE_ROOT", tempfile.mkdtemp())

pytest.importorskip("vllm", reason="vLLM is not installed; run `make test-oracles`")
import vllm  # noqa: E402
import vllm.platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402

from gnomon.engines.vllm.releases import RELEASES, release  # noqa: E402

if vllm.__version__ not in RELEASES:
    pytest.skip(f"vLLM {vllm.__version__} is not described", allow_module_level=True)
RELEASE = release(vllm.__version__)
# Without a device vLLM refuses to make even its argument parser.
vllm.platforms._current_platform = CpuPlatform()

if RELEASE.measured:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
else:
    from vllm.entrypoints.common.cli_args import make_arg_parser

__all__ = ["FOLDER", "RELEASE", "make_arg_parser"]
