"""One file for each kind of gang: which pods belong to it, and how many must start together."""
