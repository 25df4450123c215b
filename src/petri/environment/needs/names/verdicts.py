"""What looking a name up comes to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meant:
    """What an import means: the distribution to install, and all those that would do."""

    text: str
    """What the installer is told."""
    candidates: tuple[str, ...]
    """Normalised names; the one to install is the first."""

    @property
    def name(self) -> str:
        """The distribution's normalised name."""
        return self.candidates[0]


@dataclass(frozen=True, slots=True)
class Not:
    """Why nothing is installed for a name, and what may have been meant."""

    sentence: str
    suggestion: str | None = None
