"""Single operators, priced in tables."""
