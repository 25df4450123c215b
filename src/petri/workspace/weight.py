"""Space and names: what files take of a disk, or may."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes in blocks on disk, and files, folders and links by name."""

    disk_bytes: int
    inodes: int

    def __add__(self, other: "Weight") -> "Weight":
        return Weight(self.disk_bytes + other.disk_bytes, self.inodes + other.inodes)

    def __sub__(self, other: "Weight") -> "Weight":
        return Weight(self.disk_bytes - other.disk_bytes, self.inodes - other.inodes)

    def fits(self, share: "Weight") -> bool:
        """Say whether it is no more than `share`, neither in bytes nor in names."""
        return self.disk_bytes <= share.disk_bytes and self.inodes <= share.inodes

    def or_more(self, other: "Weight") -> "Weight":
        """Return the larger of both, in bytes and in names."""
        return Weight(max(self.disk_bytes, other.disk_bytes), max(self.inodes, other.inodes))

    def of(self, share: "Weight") -> str:
        """Return in words what it is of `share`."""
        return (
            f"{self.disk_bytes} of {share.disk_bytes} bytes (limits.disk_bytes) and "
            f"{self.inodes} of {share.inodes} files (limits.inodes)"
        )
