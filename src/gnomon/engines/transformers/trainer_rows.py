"""The script that an exported plan trains with where its sequences differ in length: a file has the documents of every
sequence, and a collator pads them or puts them one after the other."""

from __future__ import annotations

import json

from gnomon.spec.training_job import TrainingJob

ROWS = "sequences.jsonl"
"""The documents of one sequence a line."""
MOST_ROWS = 4096
"""Of more, every second or third is written."""

TEXT = '''"""Trains with the arguments of a YAML file: `accelerate launch … train.py training.yaml`.

Weights and tokens are random; sequences have the lengths of a file, one a line. Put your own model and data in the
place of all three.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DataCollatorWithFlattening,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)

FLATTENED = ("padding-free", "bfd")


@dataclass
class RunArguments:
    """What the Trainer has no argument for."""

    model_config: str
    """The folder of the network's config.json."""
    sequence_length: int
    """The most tokens of a sequence."""
    sequences: str
    """The file with the documents of each sequence."""
    packing: str = "none"
    lengths: str = ""
    """What the file was drawn from, for `gnomon import`."""
    lengths_seed: int = 0
    weights: str = "float32"
    """The format that weights and optimizer states are kept in."""


class RandomTokens(torch.utils.data.Dataset):
    """Every sequence as its documents, and all their tokens, by which samplers group them."""

    def __init__(self, vocab: int, rows: list[list[int]]) -> None:
        self.vocab, self.rows = vocab, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, object]:
        drawn = torch.Generator().manual_seed(place)
        documents = [torch.randint(self.vocab, (tokens,), generator=drawn) for tokens in self.rows[place]]
        return {"input_ids": torch.cat(documents), "documents": documents}


class Collator:
    def __init__(self, packing: str, length: int) -> None:
        self.packing, self.length = packing, length
        self.flattening = DataCollatorWithFlattening(return_flash_attn_kwargs=True)

    def __call__(self, rows: list[dict[str, object]]) -> dict[str, torch.Tensor]:
        if self.packing in FLATTENED:
            documents = [document for row in rows for document in row["documents"]]
            return self.flattening([{"input_ids": one.tolist(), "labels": one.tolist()} for one in documents])
        most = self.length if self.packing == "max-length" else max(len(row["input_ids"]) for row in rows)
        tokens = pad_sequence([row["input_ids"] for row in rows], batch_first=True)
        tokens = torch.nn.functional.pad(tokens, (0, most - tokens.shape[1]))
        real = torch.arange(most) < torch.tensor([[len(row["input_ids"])] for row in rows])
        return {"input_ids": tokens, "labels": tokens.masked_fill(~real, -100), "attention_mask": real.long()}


def main() -> None:
    parser = HfArgumentParser((RunArguments, TrainingArguments))
    run, arguments = parser.parse_yaml_file(sys.argv[1])
    config = AutoConfig.from_pretrained(run.model_config)
    attention = "flash_attention_2" if run.packing in FLATTENED else "sdpa"
    weights = getattr(torch, run.weights)
    model = AutoModelForCausalLM.from_config(config, dtype=weights, attn_implementation=attention)
    model.config.use_cache = False
    rows = [json.loads(line) for line in Path(run.sequences).read_text().splitlines()]
    collator = Collator(run.packing, run.sequence_length)
    tokens = RandomTokens(config.vocab_size, rows)
    trainer = Trainer(model=model, args=arguments, train_dataset=tokens, data_collator=collator)
    trainer.train()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
'''


def rows_text(job: TrainingJob) -> str:
    """The documents of drawn sequences, a sequence a line."""
    assert job.load.sequences is not None
    rows = job.load.sequences.real(job.load.seq)
    documents, starts = rows.documents.tolist(), [*rows.starts.tolist(), rows.documents.size]
    some = range(0, rows.count, -(-rows.count // MOST_ROWS))
    return "".join(f"{json.dumps(documents[starts[row] : starts[row + 1]])}\n" for row in some)
