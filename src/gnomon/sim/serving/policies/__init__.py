"""Scheduling policies that several engines have; one that only one engine has stands in that engine's folder."""
