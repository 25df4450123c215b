"""What a run wants: its imports and manifests read, names turned into packages, all under a policy. Pure.

entry         what is about to be run: files, modules, code, commands
manifests/    what the project declares itself
python/, javascript/, shell, missing    what the code asks for
names/        which package that means, by tables
"""

from collections.abc import Callable
from dataclasses import replace

from petri.environment.needs.asking import may_ask
from petri.environment.needs.entry import Program, programs
from petri.environment.needs.javascript.wanted import javascript_meaning, javascript_wanted
from petri.environment.needs.manifests.declared import Declaration, vet_one
from petri.environment.needs.manifests.npm import vet as vet_npm
from petri.environment.needs.missing import commands_wanted, is_builtin
from petri.environment.needs.nouns import Ask, Because, Language, Policy, Reader, Refusal, Requirement, Wanted
from petri.environment.needs.project import Project
from petri.environment.needs.python.wanted import python_meaning, python_wanted


def wanted(reader: Reader, ask: Ask) -> Wanted:
    """Return what `ask` wants of the world beyond its own files. Never raises for what a project contains."""
    language = "javascript" if ask.language == "typescript" else ask.language
    if ask.policy.mode == "off":
        return Wanted(language, why="installing is off")
    project = Project(reader)
    found = programs(project, ask)
    answers = [
        answer(project, those, ask)
        for which, answer in _ANSWERS.items()
        if (those := [each for each in found if each.language == which])
    ]
    asks = project.asks or any(_may_ask(each) for each in found)
    if not answers:
        return Wanted(language, why="it runs nothing that packages are installed for", asks=asks)
    return replace(answers[0], also=tuple(answers[1:]), asks=asks)


def _may_ask(program: Program) -> bool:
    command = program.command
    return program.asks or (
        command is not None and not is_builtin(command.words[0]) and may_ask(command.words[0])
    )


def _commands(project: Project, found: list[Program], ask: Ask) -> Wanted:
    del project
    return commands_wanted(found, ask)


_ANSWERS: dict[str, Callable[[Project, list[Program], Ask], Wanted]] = {
    "python": python_wanted,
    "javascript": javascript_wanted,
    "bash": _commands,
}


def meaning(module: str, language: Language, policy: Policy) -> Requirement | Refusal:
    """Return what a module means that turned out to be missing at run time."""
    return python_meaning(module, policy) if language == "python" else javascript_meaning(module, policy)


def vetted(text: str, language: Language, policy: Policy) -> Requirement | Refusal:
    """Return the requirement that somebody typed: `pip install 'numpy>=2'`, `npm install lodash@4`."""
    said = text.strip()
    if language == "python":
        return vet_one(Declaration(said, ""), policy)
    name, at, versions = said.rpartition("@") if "@" in said[1:] else (said, "", "")
    del at
    return vet_npm(name, versions, Because("", None, said[:200]), policy)
