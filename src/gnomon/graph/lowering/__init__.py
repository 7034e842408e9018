"""Operators of the parts of a network on one rank: a file for each kind of part."""
