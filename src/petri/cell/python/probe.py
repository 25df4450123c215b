"""Run by the engine to see that a Python which was started ahead is as if it were started for this script."""

import os
import sys

print(__name__, __file__, sys.path[0], os.getcwd(), sep="|", end="|")
print(*sys.argv, *sys.orig_argv[1:], "/etc/petri/python" in sys.path, sep="|", end="|")
with open("/proc/self/environ") as started_with:
    print("/etc/petri/python" in started_with.read())  # else it was not parked: it was started anew
