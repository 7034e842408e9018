"""Hugging Face transformers as it trains: eager modules, SDPA, PyTorch's fused AdamW."""
