"""Lists of words, written as people read them."""


def names_in(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()
