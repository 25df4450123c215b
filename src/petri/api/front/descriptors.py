"""File descriptors running out: the kernel does not say so to whoever accepts connections, so we look.

At the limit libuv takes a connection and closes it at once. That is right, it neither spins nor hangs, but
nobody learns of it.
"""

import errno
import os
import resource

from petri.api.front.seldom import Seldom


class DescriptorWatch:
    """Says in the log that there are none left. Looking costs two system calls."""

    def __init__(self) -> None:
        self._none_left = Seldom(
            "no file descriptor is left, so connections are closed without an answer; "
            "raise the limit (ulimit -n) or lower PETRI_MAX_CONNECTIONS"
        )

    def look(self) -> None:
        """See whether one could be had now."""
        try:
            os.close(os.dup(0))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                self._none_left.say(f": the limit is {limit}")
