"""From a deployment to an answer: an engine's replica bound to its chips, search spaces, evaluators, and why plans
lost."""
