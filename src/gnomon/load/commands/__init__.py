"""Commands, scripts and manifests that start serving engines, read as data: nothing in them is ever run."""
