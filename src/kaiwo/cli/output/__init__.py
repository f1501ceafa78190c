"""Format and print text, tables, JSON and YAML."""
