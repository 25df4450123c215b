"""Syncing: what the two sides of a sync say to each other. Server and client speak it with the same code."""
