"""The script that an exported plan trains with: the Trainer on a network of random weights and random tokens, so that
it starts without files."""

from __future__ import annotations

TEXT = '''"""Trains with the arguments of a YAML file: `accelerate launch … train.py training.yaml`.

Weights and tokens are random: put your own model and data in the place of both.
"""

import sys
from dataclasses import dataclass

import torch
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

SEQUENCES = 1 << 20


@dataclass
class RunArguments:
    """What the Trainer has no argument for."""

    model_config: str
    """The folder of the network's config.json."""
    sequence_length: int
    weights: str = "float32"
    """The format that weights and optimizer states are kept in."""


class RandomTokens(torch.utils.data.Dataset):
    def __init__(self, vocab: int, length: int) -> None:
        self.vocab, self.length = vocab, length

    def __len__(self) -> int:
        return SEQUENCES

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        drawn = torch.Generator().manual_seed(place)
        tokens = torch.randint(self.vocab, (self.length,), generator=drawn)
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = HfArgumentParser((RunArguments, TrainingArguments))
    run, arguments = parser.parse_yaml_file(sys.argv[1])
    config = AutoConfig.from_pretrained(run.model_config)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, run.weights))
    model.config.use_cache = False
    tokens = RandomTokens(config.vocab_size, run.sequence_length)
    trainer = Trainer(model=model, args=arguments, train_dataset=tokens)
    trainer.train()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
'''
