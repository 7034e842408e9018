"""TorchTitan: FSDP2, DTensor, pipelining and torch.compile, as its published runs use them."""
