"""PyTorch: its cost model, and the built-in runner that executes training plans."""
