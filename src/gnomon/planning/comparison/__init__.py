"""A model on its chips with and without a technique."""
