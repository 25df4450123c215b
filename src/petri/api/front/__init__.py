"""The front: a client's bytes in, requests for the application out. Everybody is a stranger here.

No key has been checked yet, so whatever is done here is cheap, and what a client can make us keep is bounded.
uvicorn accepts connections and ends the server; from the first byte on they are ours (ADR 12).

`connection.py` is one client's line, `exchange.py` one request and its answer, `heads.py` says which requests
make sense, `patience.py` how much and how long we put up with, `refusals.py` how we say no at this point.
"""

from petri.api.front.connection import Connection
from petri.api.front.descriptors import DescriptorWatch
from petri.api.front.patience import Patience

__all__ = ["Connection", "DescriptorWatch", "Patience"]
