"""Commands, scripts and manifests that start engines, read as data: nothing in them is ever run."""
