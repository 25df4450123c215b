"""The folder objects of one sync: those that are made in it, and those in the tenant's store."""

from petri.store import Store, Writing
from petri.trees import EMPTY, Folder, FolderObject, address, decode


class Objects:
    """Gives folder objects by their addresses, and takes new ones, in memory until `keep`."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._stored = store.fetch(tenant)
        self._made: dict[bytes, bytes] = {}
        self._opened: dict[bytes, FolderObject] = {}

    def fetch(self, wanted: bytes) -> FolderObject:
        """Return a folder object; `NotFound` if it was neither made nor is in the store."""
        found = self._opened.get(wanted)
        if found is None:
            encoded = self._made.get(wanted)
            found = self._stored(wanted) if encoded is None else decode(encoded)
            self._opened[wanted] = found
        return found

    def put(self, encoded: bytes) -> bytes:
        """Take a folder object and return its address."""
        found = address(encoded)
        self._made[found] = encoded
        return found

    def made_for(self, tree: bytes) -> list[bytes]:
        """Return the folder objects of `tree` that were made here, each behind those in it."""
        waiting, found = [tree], dict[bytes, None]()
        while waiting:
            wanted = waiting.pop()
            if wanted in self._made and wanted not in found and wanted != EMPTY:
                found[wanted] = None
                waiting += [each.address for each in self.fetch(wanted).values() if isinstance(each, Folder)]
        return [self._made[each] for each in reversed(found)]

    def keep(self, writing: Writing, *trees: bytes) -> None:
        """Put what was made of `trees` into the store; there once the session is committed."""
        for tree in dict.fromkeys(trees):
            for encoded in self.made_for(tree):
                writing.put_folder(encoded)
