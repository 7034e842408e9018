"""One file per experiment, named after the paper's slug with `_` for `-`, with its `EXPERIMENT`."""
