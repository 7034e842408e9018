"""What a deployment needs of memory, and what would make it fit."""
