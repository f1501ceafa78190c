"""Plugins that strangers wrote: found, allowed, loaded and run in confined worker processes."""
