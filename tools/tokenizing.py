"""How long a tokenizer takes over a prompt of text: `python tools/tokenizing.py OUT.csv`.

Needs tokenizers and transformers. No vocabulary of a published model comes with Gnomon, so one of the same kind is
trained first: byte-level BPE of 128,000 tokens, with the split pattern of Llama 3, on the Python files of this
interpreter's packages. Prompts are made as InferenceX's benchmark makes them: tokens of neighbouring numbers as text,
cut or continued until they have the length again. What is timed is the call that vLLM's renderer makes.

`tokenize_us` of `engines/vllm/overheads.yaml` is the median over the lengths (`tools/ship.py`). Its table was measured
on the host of that file: 16 cores of an Intel Xeon under Firecracker, tokenizers 0.23.2, transformers 5.17.0.
"""

from __future__ import annotations

import csv
import random
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

LENGTHS = (128, 512, 1024, 2048, 4096, 7372, 16384)
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
    r"|\s+"
)
VOCABULARY, TEXT_BYTES, LARGEST = 128_000, 60_000_000, 200_000
RUNS, TRIES = 25, 10


def texts() -> Iterator[str]:
    """Python files of the installed packages, in a drawn order, up to `TEXT_BYTES` together."""
    found, total = sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*.py")), 0
    random.shuffle(found)
    for path in found:
        size = path.stat().st_size
        if size < LARGEST:
            total += size
            yield str(path)
        if total > TEXT_BYTES:
            return


def trained() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train(list(texts()), trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet))
    return made


def prompt(made: Any, length: int) -> str:
    """A text of so many tokens."""
    vocabulary = made.get_vocab_size()
    first = random.randrange(vocabulary)
    text = made.decode([(first + i) % vocabulary for i in range(length)])
    for _ in range(TRIES):
        tokens = made.encode(text, add_special_tokens=False).ids
        if len(tokens) == length:
            break
        tokens = tokens[:length] + [random.randrange(vocabulary) for _ in range(length - len(tokens))]
        text = made.decode(tokens)
    return str(text)


def main(path: str) -> None:
    from transformers import PreTrainedTokenizerFast

    random.seed(0)
    made = trained()
    call = PreTrainedTokenizerFast(tokenizer_object=made)
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("tokens", "bytes_per_token", "token_us"))
        for length in LENGTHS:
            given, seconds = [prompt(made, length) for _ in range(RUNS)], []
            for text in given:
                begun = time.perf_counter()
                call(text)
                seconds.append(time.perf_counter() - begun)
            size = sum(len(text.encode()) for text in given) / RUNS / length
            table.writerow((length, f"{size:.2f}", f"{median(seconds) / length * 1e6:.3f}"))


if __name__ == "__main__":
    main(sys.argv[1])
