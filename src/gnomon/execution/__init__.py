"""Plans run for real: what can be started, how it is started and measured, and what was measured beside predictions."""
