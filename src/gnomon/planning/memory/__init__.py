"""The memory of a deployment, and what would make it fit."""
