"""Lists of objects: options, columns, printing and watching."""
