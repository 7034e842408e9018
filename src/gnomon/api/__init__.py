"""The public functions, one file each. Import them from `gnomon`."""
