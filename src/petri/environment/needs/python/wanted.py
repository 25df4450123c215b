"""What a Python program wants: by its own words, by its manifest, or by what it imports, in this order."""

from collections.abc import Iterator
from dataclasses import replace

from petri.environment.needs.asking import names_an_installer
from petri.environment.needs.bounds import MOST_FILES, MOST_FOREIGN, MOST_SOURCE_BYTES
from petri.environment.needs.collecting import Collected, listed
from petri.environment.needs.entry import Program, home
from petri.environment.needs.manifests import python as manifests
from petri.environment.needs.manifests.declared import Declaration, Declared, vet, vet_one
from petri.environment.needs.manifests.inline import inline
from petri.environment.needs.names.known import normalised
from petri.environment.needs.names.python import meaning
from petri.environment.needs.names.tables import pypi_ranks
from petri.environment.needs.names.verdicts import Not
from petri.environment.needs.nouns import Ask, Because, Policy, Refusal, Requirement, Wanted
from petri.environment.needs.project import Project, join, parent
from petri.environment.needs.python.closure import Closure, Foreign, Start
from petri.environment.needs.python.stdlib import is_standard

_ANY_PYTHON = (4, 0)
"""Newer than any: whatever was ever the standard library's is."""
_MOST_NAMES = 200
"""Of one `from x import …` that are looked up."""
_MOST_STARTS = 32
"""Folders of tests that modules are looked for in."""
_WELL_KNOWN = 3_000
"""A package this well known is meant even if some folder of the project has a module of its name."""


def python_wanted(project: Project, programs: list[Program], ask: Ask) -> Wanted:
    """Return what these programs want together."""
    by_itself = _inline(project, programs)
    if by_itself is not None:
        return _as_declared(by_itself, Collected(), ask.policy)
    for_tests = any(program.tests is not None for program in programs)
    declared = manifests.find(project, home(programs[0]), for_tests=for_tests)
    found = Collected()
    _tools(programs, found, ask.policy)
    if ask.policy.mode == "auto":
        seen = [each for program in programs for each in _foreign(project, program, ask.python)]
        _look_up(project, seen, declared, found, ask.policy)
    if declared is not None:
        return _as_declared(declared, found, ask.policy)
    return _by_imports(found, ask)


def _inline(project: Project, programs: list[Program]) -> Declared | None:
    for program in programs:
        for path in program.files:
            source = project.reader.read(path, MOST_SOURCE_BYTES)
            if source is not None and (found := inline(source, path)):
                project.asks |= names_an_installer(source)
                return found
        code = (program.code or "").encode(errors="replace")
        if found := inline(code, ""):
            project.asks |= names_an_installer(code)
            return found
    return None


def _tools(programs: list[Program], found: Collected, policy: Policy) -> None:
    for program in programs:
        for text, because in program.tools:
            verdict = vet_one(Declaration(text, because.path), policy)
            if isinstance(verdict, Requirement):
                found.want(verdict.name, text, because, is_needed=True)
            else:
                found.refuse(verdict.name, verdict.sentence, verdict.suggestion, because)


def _foreign(project: Project, program: Program, python: tuple[int, int]) -> list[Foreign]:
    files = program.files if program.tests is None else tuple(_tests(project, program))
    beside = list(dict.fromkeys(parent(file) for file in files))[:_MOST_STARTS]
    # A script's own folder comes first for Python; a run of tests adds those of the tests behind.
    folders = [*beside, program.folder] if program.tests is None else [program.folder, *beside]
    # `python -m app` runs `app/__main__.py`, which a package need not have to be imported.
    modules = program.modules
    if modules and is_standard(modules[0].partition(".")[0], python):
        modules = ()
    return Closure(project, Start((*folders, ""), files, modules, program.code), python).foreign


def _tests(project: Project, program: Program) -> Iterator[str]:
    """Yield the files that a run of tests would collect."""
    starts = program.tests or (program.folder,)
    count = 0
    for start in starts:
        if start.endswith(".py"):
            yield start
            continue
        for folder in project.folders(start):
            for name in sorted(project.names(folder)):
                if (
                    name == "conftest.py"
                    or (name.endswith(".py") and name.startswith("test_"))
                    or name.endswith("_test.py")
                ):
                    count += 1
                    if count > MOST_FILES:
                        return
                    yield join(folder, name)


def _look_up(
    project: Project, seen: list[Foreign], declared: Declared | None, found: Collected, policy: Policy
) -> None:
    """Sort imports into what is to be installed and what is refused; what is declared anyway is neither."""
    names = _declared_names(declared)
    for each in seen[:MOST_FOREIGN]:
        for module in _dotted(each):
            because = Because(each.path, each.found.line or None, each.found.said)
            verdict = meaning(module, policy)
            if isinstance(verdict, Not):
                if each.is_needed and not _may_be_declared(names) and not _is_somewhere(project, module):
                    found.refuse(_asked(each, module), verdict.sentence, verdict.suggestion, because)
            elif names.isdisjoint(verdict.candidates) and not _is_hidden(project, module, verdict.name):
                found.want(verdict.name, verdict.text, because, is_needed=each.is_needed)


def _dotted(each: Foreign) -> Iterator[str]:
    """Yield the names to look up: `from google.cloud import storage` is about `google.cloud.storage`."""
    names = [name for name in each.found.names if name != "*"][:_MOST_NAMES]
    if not names:
        yield each.found.module
    for name in names:
        yield f"{each.found.module}.{name}"


def _asked(each: Foreign, module: str) -> str:
    return module if "." in each.found.module or module == each.found.module else each.found.module


def _declared_names(declared: Declared | None) -> frozenset[str]:
    if declared is None:
        return frozenset()
    verdicts = (vet_one(each, Policy()) for each in declared.declarations)
    return frozenset(normalised(each.name) for each in verdicts)


def _may_be_declared(names: frozenset[str]) -> bool:
    """Say whether something is declared of which nobody here knows what it brings."""
    return any(name not in pypi_ranks() for name in names)


def _is_hidden(project: Project, module: str, name: str) -> bool:
    """Say whether some folder has a module of that name, and the package is not too well known for it."""
    return pypi_ranks().get(name, _WELL_KNOWN) >= _WELL_KNOWN and _is_somewhere(project, module)


def _is_somewhere(project: Project, module: str) -> bool:
    """Say whether any folder of the project has a module of that name: programs do change `sys.path`."""
    return module.partition(".")[0] in project.stems


def _as_declared(declared: Declared, found: Collected, policy: Policy) -> Wanted:
    vetted = vet(declared.declarations, policy)
    added = [
        each
        for each in found.requirements()
        if each.name not in {known.name for known in vetted.requirements}
    ]
    why = f"{declared.path or 'the code itself'} declares it" + (
        " and pins the versions" if declared.lock else ""
    )
    if added:
        why += f"; imports and commands add {listed([each.name for each in added])}"
    return Wanted(
        "python",
        (*vetted.requirements, *added),
        found.can_do_without(),
        (*vetted.refused, *found.refusals()),
        declared.source,
        why,
        declared.lock,
        declared.python,
    )


def _by_imports(found: Collected, ask: Ask) -> Wanted:
    requirements = found.requirements()
    if requirements:
        names = listed([each.name for each in requirements])
        why = f"no manifest speaks for it, and its imports ask for {names}"
    elif ask.policy.mode == "auto":
        why = "no manifest speaks for it, and nothing it imports is to be installed"
    else:
        why = "no manifest speaks for it, and the policy is `manifest-only`"
    wanted = Wanted("python", requirements, found.can_do_without(), found.refusals(), why=why)
    return replace(wanted, source="imports") if requirements or wanted.refused else wanted


def python_meaning(module: str, policy: Policy) -> Requirement | Refusal:
    """Return what a module that a run missed means."""
    because = (Because("", None, f"import {module}"[:200]),)
    if is_standard(module.partition(".")[0], _ANY_PYTHON):
        sentence = (
            f"`{module[:200]}` is the standard library's: no package brings it, and this Python has it not"
        )
        return Refusal(module[:200], sentence, None, because)
    verdict = meaning(module[:400], policy)
    if isinstance(verdict, Not):
        return Refusal(module[:200], verdict.sentence, verdict.suggestion, because)
    return Requirement(verdict.name, verdict.text, because)
