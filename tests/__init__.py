"""Every promise Petri makes, as a test that can fail. Real parts only: see `conftest.py`."""
