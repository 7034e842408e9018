"""How long one decode step takes, and what it is made of."""

import gnomon

step = gnomon.predict("llama-3.1-8b", on="H100", phase="decode", batch=32, context=1024)

print(step.title)
print(f"{step.time_s.value * 1e3:.2f} ms ({step.time_s.low * 1e3:.2f} to {step.time_s.high * 1e3:.2f})")
for row in sorted(step.breakdown, key=lambda row: -row.time_s.value)[:5]:
    print(f"  {row.op:<24} {row.time_s.value * 1e6:8.0f} us   {row.bound:<8} {row.time_s.provenance}")
