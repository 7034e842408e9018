"""Timelines from step costs. Knows seconds, tokens and blocks; never an architecture or a chip."""
