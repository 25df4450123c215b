"""Folder objects at hand: those just made, and those remembered."""

from petri.sdk.folder.state import State
from petri.trees import FolderObject, address, decode


class Memory:
    """Gives folder objects by their addresses, and takes new ones."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.new: dict[bytes, bytes] = {}
        """What is not remembered yet."""

    def fetch(self, wanted: bytes) -> FolderObject:
        """Return a folder object; raises `Forgotten` if it is neither new nor remembered."""
        encoded = self.new.get(wanted)
        return decode(encoded) if encoded is not None else self._state.fetch(wanted)

    def put(self, encoded: bytes) -> bytes:
        """Take a folder object and return its address."""
        found = address(encoded)
        self.new[found] = encoded
        return found
