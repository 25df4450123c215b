"""Petri: a self-hosted runtime for the code that AI agents write."""

__version__ = "0.1.0"
