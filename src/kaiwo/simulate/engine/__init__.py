"""The discrete-event engine: jobs, nodes and failures on a virtual clock, and the shipped `decide` in between."""
