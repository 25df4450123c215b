"""Files on the wire: what an upload wrote, and what is in a folder."""

from petri.wire.values import Answer


class FileAnswer(Answer):
    """A file that was written."""

    path: str
    size: int
    digest: str
    """BLAKE3 of the content, in hex; also its ETag, and always a name for this version."""


class FilesWritten(Answer):
    """What an upload wrote."""

    files: list[FileAnswer]
    filename: str | None = None
    """The path, when there was one file."""


class EntryAnswer(Answer):
    """One entry of a workspace."""

    path: str
    kind: str
    """`file`, `folder`, `link` or `other`."""
    size: int
    mode: str
    """Permission bits in octal, such as `0644`."""
    modified_at: str
    target: str | None = None
    """Where a link points."""
    path_base64: str | None = None
    """The exact bytes of a path that is not UTF-8; `path` then shows `�` in their place."""


class Listing(Answer):
    """What is in a folder of the workspace."""

    path: str
    entries: list[EntryAnswer]
    truncated: bool
    """True when there is more than one answer holds; list a folder further down."""
