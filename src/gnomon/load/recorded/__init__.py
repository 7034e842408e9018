"""Requests as others recorded them: one file per format, found by what a file begins with.

| format | file | known by |
|---|---|---|
| own CSV, Azure LLM traces, BurstGPT | `table.py` | the first line |
| own JSONL | `own_lines.py` | `input_tokens` in the first line |
| Mooncake | `mooncake.py` | `hash_ids` in the first line |
| AIPerf | `aiperf.py` | `metadata` and `metrics` in the first line |
| vLLM bench | `vllm_bench.py` | an object with `input_lens` |
| GuideLLM | `guidellm.py` | an object with `benchmarks` |
| ShareGPT | `sharegpt.py` | a list |
"""
