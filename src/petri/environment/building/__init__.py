"""From what is wanted to a folder of packages that cells can read.

    environments   what a run gets; the only part that others talk to
    shelf          environments on disk, by address
    locks          what exactly is in one
    python, uv     resolving and installing Python packages
    javascript, bun    the same for JavaScript
    source_packages    what has no wheel, built in a cell (`yard`), checked (`wheels`) and kept (`built`)
    flights        many wait, one works
    windows        what a run sees of environments where that may change while it runs
    members        a project's own packages among installed ones
    completing     checking and compiling what is in use already

An environment is immutable and shared by everybody whose packages come to the same lock. Installers run on
this host as the server; they unpack wheels, and run nothing of what they unpack. What must be built is
unpacked and built in cells alone.
"""

from petri.environment.building.asking import Packages, Rules
from petri.environment.building.completing import Completion
from petri.environment.building.environments import Environments, Outfit
from petri.environment.building.failures import NotInstalled
from petri.environment.building.javascript import JavaScriptPackages
from petri.environment.building.members import node_modules
from petri.environment.building.progress import Progress, Tell
from petri.environment.building.python import PythonPackages
from petri.environment.building.shelf import Environment, Record, Shelf
from petri.environment.building.source_packages import Fetching, SourcePackages
from petri.environment.building.uv import Uv
from petri.environment.building.windows import (
    BESIDE_MEMBERS,
    COMMANDS,
    CONTINUING,
    NODE_MODULES,
    PIP_PYTHON,
    SHELF_AT,
    WINDOW_AT,
    Window,
    Windows,
)
from petri.environment.building.yard import Yard

__all__ = [
    "BESIDE_MEMBERS",
    "COMMANDS",
    "CONTINUING",
    "NODE_MODULES",
    "PIP_PYTHON",
    "SHELF_AT",
    "WINDOW_AT",
    "Completion",
    "Environment",
    "Environments",
    "Fetching",
    "JavaScriptPackages",
    "NotInstalled",
    "Outfit",
    "Packages",
    "Progress",
    "PythonPackages",
    "Record",
    "Rules",
    "Shelf",
    "SourcePackages",
    "Tell",
    "Uv",
    "Window",
    "Windows",
    "Yard",
    "node_modules",
]
