"""One step of any network, priced, for `predict`, `explain` and `verify`."""
