"""Plans of serving: replicas, simulated and judged, and the report of a search."""
