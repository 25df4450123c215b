"""A run on this terminal: its output as it comes, its exit code as ours, our Ctrl-C as its end."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from petri.cli.diffs import print_diff
from petri.cli.installing import Installing as InstallingLine
from petri.cli.options import connect
from petri.cli.printing import plain, print_json, without
from petri.errors import Conflict, PetriError

if TYPE_CHECKING:
    from petri.sdk import Client, Command, Event, Stream
    from petri.wire import ExecAnswer

TIMED_OUT = 124
"""As `timeout` has it."""
LOST = 125
"""The run ended, but neither by itself nor by a signal: the server went down around it."""
INTERRUPTED = 130
ENDED = {"interrupted": "was interrupted, since the server stopped", "failed": "was lost by the engine"}
REPLACED = "\ufffd"


def run_live(petri: "Client", sandbox: str, command: "Command", *, as_json: bool) -> int:
    """Run `command`, print its output as it comes, and return the exit code to leave with.

    With `as_json`, only the final answer is printed.
    """
    with CtrlC() as ctrl_c:
        answer = watch(petri, petri.stream(sandbox, **command), ctrl_c, as_json=as_json)
    return INTERRUPTED if ctrl_c.pressed else exit_code(answer)


def watch(
    petri: "Client", events: "Iterator[Event]", ctrl_c: "CtrlC | None" = None, *, as_json: bool
) -> "ExecAnswer":
    """Print a run's output as it comes, or its final answer alone, and return that answer."""
    from petri.sdk import Done, Installing, Output, Started

    installing = InstallingLine()
    outlets: dict[Stream, Outlet] = {"stdout": Outlet(sys.stdout.buffer), "stderr": Outlet(sys.stderr.buffer)}
    try:
        for event in events:
            if isinstance(event, Started) and ctrl_c is not None:
                ctrl_c.ends(event.run_id)
            elif isinstance(event, Installing) and not as_json:
                installing.take(event.detail)
            elif isinstance(event, Output) and not as_json:
                installing.close()
                outlets[event.stream].show(event.text)
            elif isinstance(event, Done):
                installing.close()
                _conclude(petri, event.answer, outlets, as_json=as_json)
                return event.answer
    except BrokenPipeError:
        # Whoever read us has left. Left alone, the run would go on, unread, to its time limit.
        if ctrl_c is not None:
            ctrl_c.cancel()
        raise
    raise PetriError("the run's events stopped before its end")


def exit_code(answer: "ExecAnswer") -> int:
    """Return what a shell would see, had the command run here."""
    if answer.cancelled:
        return INTERRUPTED
    if answer.timed_out:
        return TIMED_OUT
    if answer.exit_code is not None:
        return answer.exit_code
    return LOST if answer.signal is None else 128 + answer.signal


class CtrlC:
    """While it is open, the first Ctrl-C cancels the run, and the second leaves it to the server.

    The handler cancels by itself, over a connection of its own: the main thread sits in a read on the
    stream, which goes on afterwards, so that the run's last words and its ending still arrive.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._run_id: str | None = None

    def __enter__(self) -> Self:
        self._before: Any = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def ends(self, run_id: str) -> None:
        """Say which run it is that Ctrl-C ends."""
        self._run_id = run_id
        if self.pressed:
            self.cancel()

    def cancel(self) -> None:
        """Cancel the run, if it has a name yet."""
        if self._run_id is None:
            return
        try:
            with connect() as petri:
                petri.cancel(self._run_id)
        except Conflict:
            pass  # it ended in the same moment
        except PetriError as error:
            _complain(
                f"the run could not be cancelled: {error.message}; press Ctrl-C again to leave it running"
            )

    def _press(self, _signal: int, _frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        self.cancel()


class Outlet:
    """Where one stream of a run comes out here, byte for byte.

    Events carry text, in which bytes that are none are replaced. A terminal may have it so. A file or a
    pipe may not: from the first such place on, its bytes are held back until the exact ones can be had.
    """

    def __init__(self, to: BinaryIO) -> None:
        self._to = to
        self._must_be_exact = not to.isatty()
        self._written = 0
        self.holds_back = False

    def show(self, text: str) -> None:
        """Write `text` at once, unless it is not what the run wrote."""
        if self.holds_back or (self._must_be_exact and REPLACED in text):
            self.holds_back = True
            return
        content = text.encode()
        self._to.write(content)
        self._to.flush()
        self._written += len(content)

    def catch_up(self, chunks: Iterable[bytes]) -> None:
        """Write all of the stream's exact `chunks` but what was written already."""
        skip = self._written
        for chunk in chunks:
            self._to.write(chunk[skip:])
            skip = max(0, skip - len(chunk))
        self._to.flush()


def _conclude(
    petri: "Client", answer: "ExecAnswer", outlets: "dict[Stream, Outlet]", *, as_json: bool
) -> None:
    if as_json:
        print_json(answer)
        return
    for stream, outlet in outlets.items():
        if outlet.holds_back:
            outlet.catch_up(petri.run_output_chunks(answer.run_id, stream))
    _remark(answer)
    if answer.keep != "always":
        _show_changes(petri, answer)


def _show_changes(petri: "Client", answer: "ExecAnswer") -> None:
    """Show what a run did to the files, and say whether it stays."""
    if answer.tree_before is None or answer.tree_after is None:
        return
    if answer.tree_before != answer.tree_after:
        print_diff(petri.diff(answer.sandbox_id, answer.tree_before, answer.tree_after))
    _complain("what it did to the files was kept" if answer.kept else "the files are as they were before")


def _remark(answer: "ExecAnswer") -> None:
    for names, why in without(answer.not_installed):
        _complain(f"not installed: {names}: {why}")
    if answer.timed_out:
        _complain("the run was stopped at its time limit")
    elif answer.disk_full:
        _complain(f"the run has filled its disk: {answer.remark}")
    elif answer.signal_name == "SIGXFSZ":
        _complain("the run was killed: it made a file larger than all the disk space it may have")
    elif answer.oom_killed:
        _complain("the run was killed: it wanted more memory than it may have")
    elif exit_code(answer) == LOST and answer.exit_code is None:
        _complain(f"the run did not come to its own end: it {ENDED.get(answer.state, 'ended')}")


def _complain(sentence: str) -> None:
    # By the descriptor: this may run inside a signal handler, half-way through a write to sys.stderr.
    os.write(2, f"petri: {plain(sentence)}\n".encode())
