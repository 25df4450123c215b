"""Exactly `python main.py`: programs in tables, and the ways to run them that must not be told apart."""
