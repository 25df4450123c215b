"""What lies between two trees, as text that `git apply` and `patch` understand. Pure.

    render                one change of a tree, as the part of a patch that it is

Imported by: `operations`. Imports: `petri.trees`.
"""

from petri.patches.rendering import Patch, Read, render

__all__ = ["Patch", "Read", "render"]
