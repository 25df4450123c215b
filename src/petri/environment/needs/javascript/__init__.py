"""JavaScript and TypeScript: what a file imports, and which of that is the project's own."""
