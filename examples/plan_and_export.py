"""The cheapest plan for a load within its goals, written as launch files into a folder."""

import sys
from pathlib import Path

import gnomon

answer = gnomon.plan_serving(
    "llama-3.1-8b", fleet="H100:8", rate=8, input=1024, output=256, requests=2000, slo="ttft_p90=1s,tpot_p90=40ms"
)
print(f"{answer.best.label}: ${answer.best.usd_h:.2f}/h, bound by {answer.binding}")
print(f"runner-up: {answer.runner_up['why']}")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "deploy")
folder.mkdir(parents=True, exist_ok=True)
exported = gnomon.export(answer.best.plan, to="vllm")
for name, text in exported.files.items():
    (folder / name).write_text(text)
    print(f"wrote {folder / name}")
for line in exported.not_expressed:
    print(f"left to you: {line}")
