"""Objects from the wire, decoded into the values that the cache keeps."""
