"""What holds the keys and values of sequences: blocks that are only counted, or hashed blocks that prompts share."""
