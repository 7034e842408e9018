"""The literature in executable form: an index of papers, and those re-derived, one file each in `derived/`."""
