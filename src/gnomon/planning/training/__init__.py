"""Plans of training: one step composed, every way to cut a job up, and the search over them."""
