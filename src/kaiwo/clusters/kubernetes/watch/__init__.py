"""List and watch every kind of object, to keep the cache up to date."""
