"""What is typed in a cell to ask the server for packages. Runs there; standard library only."""
