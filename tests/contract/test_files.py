"""No file is opened below `load`: what an answer reads is read at the edge; the catalog reads what ships with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gnomon

ROOT = Path(gnomon.__file__).parent
BELOW = ("planning", "techniques", "engines", "cost", "sim", "search", "graph")
WATCHED = """
import json, os, sys
import gnomon

ROOT, BELOW = {root!r}, {below!r}
seen, wrong = [], []

def package(frame):
    file = frame.f_code.co_filename
    return file[len(ROOT) + 1:].split(os.sep)[0] if file.startswith(ROOT + os.sep) else ""

def watch(event, arguments):
    if event != "open" or not isinstance(arguments[0], (str, bytes, os.PathLike)):
        return
    path, frame, packages = os.fsdecode(arguments[0]), sys._getframe(1), []
    while frame is not None:
        name = frame.f_code.co_filename
        if "importlib" in name or name.endswith(os.sep + "launch.py"):  # a module is imported, or a command written
            return
        packages += [package(frame)] if package(frame) else []
        frame = frame.f_back
    if packages:
        seen.append(path)
        shipped = packages[0] == "catalog" and path.startswith(ROOT)
        if not shipped and set(packages) & set(BELOW):
            wrong.append([path, packages])

sys.addaudithook(watch)
{answer}
print(json.dumps([seen, wrong]))
"""
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i / 2},300,20\n" for i in range(100))
ANSWERS = {
    "predict": "gnomon.predict('llama-3.1-8b', on='H200:2', batch=4, context=100)",
    "predict a network": "gnomon.predict('qwen2.5-vl-7b', on='H100', phase='prefill', tokens=100)",
    "predict under torch": "gnomon.predict('dit-xl-2-256', on='H100')",
    "fit": "gnomon.fit('deepseek-v3', on='H100:8')",
    "ops": "gnomon.ops([dict(op='gemm', dtype='bf16', m=8, n=4096, k=4096, engine='torch')], on='H100')",
    "simulate": "gnomon.simulate_serving('llama-3.1-8b', on='L40S', trace='trace.csv')",
    "plan": "gnomon.plan_serving('llama-3.1-8b', fleet='H100:1', trace='trace.csv', slo='ttft_p90=1s')",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_nothing_below_load_opens_a_file(name: str, tmp_path: Path) -> None:
    """In a process of its own, in which nothing has been read before."""
    (tmp_path / "trace.csv").write_text(TRACE)
    code = WATCHED.format(root=str(ROOT), below=BELOW, answer=ANSWERS[name])
    told = {"GNOMON_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen, wrong = json.loads(done.stdout)
    assert seen, "nothing was seen to be opened: the watch is broken"
    assert wrong == []
