"""The tables of facts that `petri.environment.needs` looks names up in, built from where the facts are.

    scripts/build-tables python     which distribution an import means: from the directories of wheels
    scripts/build-tables npm        which npm packages are well known
    scripts/build-tables debian     which Debian package a command is in

Each writes a file below `src/petri/environment/needs/tables/`, which begins with where its facts are from.
"""
