"""Passes over the operators of a layer: what sharding, formats and training make of them."""
