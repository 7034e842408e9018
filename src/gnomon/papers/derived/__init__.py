"""One file a re-derived paper, named by its slug; each has a `DERIVATION`."""
