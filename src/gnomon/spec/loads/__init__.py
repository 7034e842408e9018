"""Loads as they are described: arrivals, lengths, prefixes, sessions, adapters and priorities."""
