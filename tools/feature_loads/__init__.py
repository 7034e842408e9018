"""vLLM's options under load, each beside the same engine without it: `python -m tools.feature_loads first OUT`.

Needs a GPU and vLLM; a batch takes two minutes to start and five to measure. Starts the engines of a batch at once,
with dummy weights and as `vllm serve` does (the asynchronous front end, the engine core in a process of its own), and
measures them in turn:

first   base        prefix caching: prompts that share 30 and 80% of their tokens, the first again with nothing shared,
                    and prefixes that together exceed the KV cache
        lora-8      32 adapters of rank 16 on 8 slots
        lora-4      4 adapters on 4 slots, and requests without an adapter beside none
second  ngram-off   prompts of repeated patterns, without speculation
        ngram       the same with n-gram drafts of 3 tokens, all requests greedy or half of them
        fp8-kv      the KV cache in fp8
        offload     the prefixes that exceed the KV cache, with blocks kept in host memory
third to fifth      the same options on models that no fit has seen, with other shares of shared prompts and other rates
host                adapters and drafts again, with what the worker's host takes for each step (tools/host_times.py)

`base` also has the loads without any option that `lora` and `fp8-kv` are compared with: static batches of 1,024 tokens
in and 128 out, and Poisson arrivals. Loads of one name have the same arrivals, lengths and prompts on every engine of a
model. A burst of the same requests comes before a load whose rate is a share of the saturation rate.

A request has what tools/server_loads.py records, its prefix group and prefix tokens, adapter, whether it is greedy, how
many of its tokens were cached (on the GPU: local, elsewhere: external) and in how many pieces its output came. A step
also has the tokens it made, cached prompt tokens, the prefix cache's queries and hits (and the connector's), KV usage
in 1/10,000, drafts, drafted and accepted tokens. OUT gets ENGINE.json.gz as its loads end, NVML's samples
(power.csv.gz) and the engines' own output (logs.tar.gz). A load that fails is noted, and the next one goes on.
"""

from __future__ import annotations

from tools.feature_loads.batch import START_S, engines, run_batch
from tools.feature_loads.bench import Bench, summary
from tools.feature_loads.configs import BATCHES, DENSE, DRAFTS, ENGINES, OTHER, UNSEEN, UNSEEN_FIRST_RUNNER, Engine
from tools.feature_loads.loads import (
    SHARE,
    at_share,
    base,
    check_lora,
    check_ngram,
    fp8_kv,
    host_adapters,
    host_base,
    host_ngram,
    lora_few,
    lora_many,
    ngram,
    ngram_off,
    offload,
    other_base,
    other_lora,
    other_ngram,
    statics,
)
from tools.feature_loads.measuring import FREE, measure
from tools.feature_loads.runner import RANK, FeatureRunner, Seen, adapter_path, write_adapters
from tools.feature_loads.steps import Steps
from tools.feature_loads.works import (
    BURST,
    CHECK_SHARED,
    COUNT,
    OTHER_SHARED,
    OVER_GROUPS,
    OVER_PER_S,
    PLAIN,
    PLAIN_PER_S,
    SHARED,
    STATIC,
    Ints,
    Maker,
    SharedPrompts,
    Work,
)

__all__ = [
    "BATCHES",
    "BURST",
    "CHECK_SHARED",
    "COUNT",
    "DENSE",
    "DRAFTS",
    "ENGINES",
    "FREE",
    "OTHER",
    "OTHER_SHARED",
    "OVER_GROUPS",
    "OVER_PER_S",
    "PLAIN",
    "PLAIN_PER_S",
    "RANK",
    "SHARE",
    "SHARED",
    "START_S",
    "STATIC",
    "UNSEEN",
    "UNSEEN_FIRST_RUNNER",
    "Bench",
    "Engine",
    "FeatureRunner",
    "Ints",
    "Maker",
    "Seen",
    "SharedPrompts",
    "Steps",
    "Work",
    "adapter_path",
    "at_share",
    "base",
    "check_lora",
    "check_ngram",
    "engines",
    "fp8_kv",
    "host_adapters",
    "host_base",
    "host_ngram",
    "lora_few",
    "lora_many",
    "measure",
    "ngram",
    "ngram_off",
    "offload",
    "other_base",
    "other_lora",
    "other_ngram",
    "run_batch",
    "statics",
    "summary",
    "write_adapters",
]
