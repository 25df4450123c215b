"""Why packages were not installed. It never ends a run: it is told, in words, and the run starts without."""

NO_SPACE = "no space is left on this host for packages"


class NotInstalled(Exception):
    """The sentence is for whoever asked for the run."""

    def __init__(
        self,
        sentence: str,
        *,
        names: tuple[str, ...] = (),
        is_passing: bool = False,
        is_impossible: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.names = names
        """The requirements it is about, where that is known."""
        self.is_passing = is_passing
        """Another time may do better: it is worth asking again soon."""
        self.is_impossible = is_impossible
        """The requirements cannot be met, so that fewer of them might be."""


class NoWheel(NotInstalled):
    """The requirements could be met, but for one package that has no wheel for this platform."""

    def __init__(self, sentence: str, package: str, names: tuple[str, ...]) -> None:
        super().__init__(sentence, names=names, is_impossible=True)
        self.package = package
