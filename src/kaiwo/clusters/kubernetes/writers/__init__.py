"""Everything that Kaiwo writes to the API server: Bindings, Evictions, Events, annotations and status."""
