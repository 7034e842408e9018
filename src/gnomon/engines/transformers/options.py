"""The transformers and Accelerate that plans are written for, and their words for what a plan says."""

from __future__ import annotations

VERSION, ACCELERATE = "5.17.0", "1.15.0"
TRAINING, LAUNCHED, SCRIPT, CONFIG = "training.yaml", "accelerate.yaml", "train.py", "config.json"
"""Arguments of the Trainer, Accelerate's configuration, the script between them, and the network's."""
OPTIMIZERS = {
    "adamw": "adamw_torch_fused",
    "adamw-bf16": "adamw_torch_fused",
    "adam8bit": "adamw_bnb_8bit",
    "sgd": "sgd",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
}
"""`TrainingArguments.optim` of each optimizer."""
WEIGHTS = {"adamw-bf16": "bfloat16"}
"""The format that weights are kept in, where it is not fp32."""
