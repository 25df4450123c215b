"""How much of a project is looked at. It is a stranger's: whatever it holds, looking at it ends soon."""

MOST_FILES = 5_000
"""In one closure; a program that imports more is wanted for what was seen so far."""
MOST_SOURCE_BYTES = 8 << 20
"""In one source file: a hundred thousand long lines."""
MOST_MANIFEST_BYTES = 16 << 20
"""In one manifest or lock; a lock of thousands of packages has some."""
MOST_FRESH_BYTES = 64 << 20
"""Of sources that are read for the first time, in one closure."""
MOST_FOLDERS = 4_000
"""That are listed in one search for tests, workspaces or code below a folder."""
MOST_REQUIREMENTS = 2_000
"""In one manifest."""
MOST_BECAUSE = 10
"""Places that are named for each package."""
MOST_FOREIGN = 5_000
"""Imports of others' modules that are looked up for one run."""
MOST_REFUSALS = 100
"""That are told for one run: whoever has more will not read them."""
