"""Folder objects at hand: those just made, and those remembered."""

from petri.sdk.folder.state import State
from petri.trees import FolderObject, address, decode


class Memory:
    """Gives folder objects by their addresses, and takes new ones."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.new: dict[bytes, bytes] = {}
        """What is not remembered yet."""
        self.opened: dict[bytes, FolderObject] = {}
        """What was decoded before, or never had to be."""

    def fetch(self, wanted: bytes) -> FolderObject:
        """Return a folder object; raises `Forgotten` if it is neither new nor remembered."""
        found = self.opened.get(wanted)
        if found is None:
            encoded = self.new.get(wanted)
            found = decode(encoded) if encoded is not None else self._state.fetch(wanted)
            self.opened[wanted] = found
        return found

    def put(self, encoded: bytes) -> bytes:
        """Take a folder object and return its address."""
        found = address(encoded)
        self.new[found] = encoded
        return found
