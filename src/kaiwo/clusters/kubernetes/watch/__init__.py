"""Lists and watches of every kind of object, which keep the cache up to date."""
