"""Environment: what surrounds the files. Which packages a run wants, and the folders they are installed in.

    wanted        what a run is about to want: by its manifest, or by what it imports; pure
    meaning       which package a module means that a run missed; vetted: what somebody typed by name
    Reader        how this room sees a project; brought along by whoever asks
    Wanted        the answer: requirements and who needs each, refusals in words, who decided

Nothing here trusts a project. Reading is bounded in bytes, files and steps; a project that is broken in any
way wants nothing, and says so by running. `needs` finds out what is wanted and touches nothing.

Imported by: `operations`, `app`. Imports: nothing of ours.
"""

from petri.environment.needs import meaning, vetted, wanted
from petri.environment.needs.nouns import (
    Ask,
    Because,
    Code,
    File,
    Kind,
    Language,
    Lock,
    Member,
    Mode,
    Pin,
    Policy,
    Reader,
    Refusal,
    Requirement,
    Source,
    Wanted,
    Words,
)

__all__ = [
    "Ask",
    "Because",
    "Code",
    "File",
    "Kind",
    "Language",
    "Lock",
    "Member",
    "Mode",
    "Pin",
    "Policy",
    "Reader",
    "Refusal",
    "Requirement",
    "Source",
    "Wanted",
    "Words",
    "meaning",
    "vetted",
    "wanted",
]
