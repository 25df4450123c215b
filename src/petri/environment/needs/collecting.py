"""Requirements and refusals while they are collected: one for each name, with the first few who need it."""

from dataclasses import dataclass, field, replace

from petri.environment.needs.bounds import MOST_BECAUSE, MOST_REFUSALS
from petri.environment.needs.nouns import Because, Refusal, Requirement


@dataclass(slots=True)
class Collected:
    """What imports come to."""

    needed: dict[str, Requirement] = field(default_factory=dict)
    optional: dict[str, Requirement] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)

    def want(self, name: str, text: str, because: Because, *, is_needed: bool) -> None:
        """Note that `because` needs a package, or could use it."""
        where = self.needed if is_needed else self.optional
        known = where.get(name)
        if known is None:
            where[name] = Requirement(name, text, (because,))
        elif len(known.because) < MOST_BECAUSE and because not in known.because:
            where[name] = replace(known, because=(*known.because, because))

    def refuse(self, name: str, sentence: str, suggestion: str | None, because: Because) -> None:
        """Note that nothing is installed for a name."""
        known = self.refused.get(name)
        if known is None and len(self.refused) < MOST_REFUSALS:
            self.refused[name] = Refusal(name, sentence, suggestion, (because,))
        elif known and len(known.because) < MOST_BECAUSE and because not in known.because:
            self.refused[name] = replace(known, because=(*known.because, because))

    def requirements(self) -> tuple[Requirement, ...]:
        """Return what is needed, by name."""
        return tuple(self.needed[name] for name in sorted(self.needed))

    def can_do_without(self) -> tuple[Requirement, ...]:
        """Return what would be used if it were there, by name."""
        return tuple(self.optional[name] for name in sorted(self.optional.keys() - self.needed.keys()))

    def refusals(self) -> tuple[Refusal, ...]:
        """Return what was refused, by name."""
        return tuple(self.refused[name] for name in sorted(self.refused))


def listed(names: list[str]) -> str:
    """Return a few names in words."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
