"""Python code: what it imports, and which of that is its own."""
