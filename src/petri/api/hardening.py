"""Headers that every answer of ours carries, whoever made it."""

HARDENED = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
