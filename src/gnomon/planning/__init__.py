"""From a deployment to figures: an engine's replica bound to its chips, spaces of plans, what evaluates them, and why
the others lost."""
