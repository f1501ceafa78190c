"""Published placement policies as plugins, so that the shipped `decide` runs them beside Kaiwo's own."""
