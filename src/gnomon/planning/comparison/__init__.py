"""A technique beside doing without it, on a model and chips of the user's."""
