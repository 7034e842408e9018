"""Parts of a network with their gradients, on one rank: a file for each kind of part."""
