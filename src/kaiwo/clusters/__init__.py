"""Three kinds of cluster behind one protocol."""
