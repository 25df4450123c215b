"""What a JavaScript or TypeScript program wants: by its package.json, or by what it imports."""

from dataclasses import replace

from petri.environment.needs.collecting import Collected, listed
from petri.environment.needs.entry import Program, home
from petri.environment.needs.javascript.closure import Foreign, closure
from petri.environment.needs.javascript.local import LocalFiles
from petri.environment.needs.javascript.members import as_members, members
from petri.environment.needs.manifests import npm as manifests
from petri.environment.needs.manifests.npm import Declared
from petri.environment.needs.names.npm import objection_to_import, package_of
from petri.environment.needs.nouns import Ask, Because, Policy, Refusal, Requirement, Source, Wanted
from petri.environment.needs.project import Project

_CUT = (
    "this project has more packages of its own than are linked (500, among 4,000 folders): some cannot be "
    "imported by their names; list those you need in `workspaces` by their folders, or import them by path"
)


def javascript_wanted(project: Project, programs: list[Program], ask: Ask) -> Wanted:
    """Return what these programs want together."""
    own = members(project, [home(program) for program in programs])
    foreign: list[Foreign] = []
    used: dict[str, None] = {}
    if ask.policy.mode == "auto":
        for program in programs:
            local = LocalFiles(project, program.folder, own.folders)
            foreign += closure(project, local, program)
            used |= local.used
    declared = manifests.find(project, home(programs[0]), ask.policy, own.folders, used)
    found = Collected()
    if own.is_cut:
        found.refuse("workspaces", _CUT, None, Because("package.json", None, "workspaces"))
    for each in foreign:
        _look_up(each, declared.names if declared else frozenset(), found, ask.policy)
    wanted = _by_manifest(declared, found) if declared else _by_imports(found, ask)
    return replace(wanted, members=as_members(project, own))


def _look_up(each: Foreign, declared: frozenset[str], found: Collected, policy: Policy) -> None:
    name = package_of(each.found.specifier)
    if name is None or name in declared:
        return
    because = Because(each.path, each.found.line, each.found.said)
    objected = objection_to_import(name, policy)
    if objected is None:
        found.want(name, f"{name}@*", because, is_needed=each.is_needed)
    elif each.is_needed:
        found.refuse(name, objected.sentence, objected.suggestion, because)


def _by_manifest(declared: Declared, found: Collected) -> Wanted:
    added = found.requirements()
    why = f"{listed(list(declared.paths))} declare{'' if len(declared.paths) > 1 else 's'} it" + (
        f" and {declared.lock.path} pins the versions" if declared.lock else ""
    )
    if declared.overruled:
        why += f"; the first of them decides over {listed(list(declared.overruled))}"
    if added:
        why += f"; imports add {listed([each.name for each in added])}"
    return Wanted(
        "javascript",
        (*declared.requirements, *added),
        found.can_do_without(),
        (*declared.refused, *found.refusals()),
        "lock" if declared.lock else "manifest",
        why,
        declared.lock,
    )


def _by_imports(found: Collected, ask: Ask) -> Wanted:
    requirements, refused = found.requirements(), found.refusals()
    if requirements:
        names = listed([each.name for each in requirements])
        why = f"no package.json speaks for it, and its imports ask for {names}"
    elif ask.policy.mode == "auto":
        why = "no package.json speaks for it, and nothing it imports is to be installed"
    else:
        why = "no package.json speaks for it, and the policy is `manifest-only`"
    source: Source = "imports" if requirements or refused else "none"
    return Wanted("javascript", requirements, found.can_do_without(), refused, source, why)


def javascript_meaning(specifier: str, policy: Policy) -> Requirement | Refusal:
    """Return what a specifier that a run missed means."""
    because = Because("", None, f'import "{specifier[:200]}"')
    name = package_of(specifier[:400])
    if name is None:
        return Refusal(specifier[:200], f"`{specifier[:200]}` does not name an npm package", None, (because,))
    objected = objection_to_import(name, policy)
    if objected is not None:
        return Refusal(name, objected.sentence, objected.suggestion, (because,))
    return Requirement(name, f"{name}@*", (because,))
