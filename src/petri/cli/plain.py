"""Text that no terminal obeys."""


def plain(text: str) -> str:
    """Return `text` with everything spelt out that a terminal might obey: escapes, line breaks, overrides.

    Names and messages may have been chosen by the code that ran, or by another tenant.
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
