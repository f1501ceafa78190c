"""The plugin contract, the registry, guarded calls, and the built-in plugins."""
