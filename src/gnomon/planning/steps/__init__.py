"""One step of any network, priced: what `predict`, `explain` and `verify` open up."""
