"""PyTorch-native training: what Gnomon knows of it, and the runner that really starts it."""
