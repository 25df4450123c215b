"""Parks a Python in the cell that it will serve, at the moment before it opens its script.

`site` imports this at the very end of an interpreter's start, because PYTHONPATH names this folder. It waits
for the word of `init`, reads what is to be run, and returns: CPython then runs the script itself, so there is
nothing to imitate. The name of the script, or the code, was not known when the interpreter was started. There
is only room for it: a placeholder, whose characters are overwritten in place. Whatever cannot be had that way
is started anew, by exec, in this process.

Only modules that every start has loaded are used, and whatever this one leaves behind is taken away: what
runs next must not be able to tell.
"""

import os
import sys

_HERE = "/etc/petri/python"
_BRIEF_FD, _STDIN_FD, _WAKE_FD = 8, 9, 10
_HAS_INPUT, _IS_FOR_PROGRAM = 1, 2
_HEAD_BYTES = 16
_WINDOW_BYTES = 1 << 16
_TELLING = 16
"""Characters of the placeholder that nothing else begins with: few are found sooner than thousands."""


def _wide(text: str) -> bytes:
    """Return `text` as C has it. This codec is built in; `utf-32-le` would be imported, and be seen."""
    return text.encode("utf-32", "surrogatepass")[4:]


_BEFORE = _wide("/workspace/")
_LINE_END = _wide("\n")


def _read_all(descriptor: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def _places() -> tuple[int, int, int]:
    """Return where this process's heap begins, and where what the kernel shows of its words begins and ends.

    Of `maps` each line would have to be made, read and taken apart, which takes ten times as long.
    """
    status = os.open("/proc/self/stat", os.O_RDONLY)
    fields = os.read(status, 4096).rpartition(b") ")[2].split()
    os.close(status)
    heap, words, words_end = (int(field) for field in fields[44:47])
    return heap, words, words_end


class _Rooms:
    """Where in this process's memory the placeholder stands: the name of the script, or its code."""

    def __init__(self, placeholder: str) -> None:
        self.memory = os.open("/proc/self/mem", os.O_RDWR)
        self._placeholder = _wide(placeholder)  # held: it is itself a place where the placeholder stands
        self._beginning = _wide(placeholder[:_TELLING])
        self._found: list[tuple[int, bool, bool]] = []
        heap, words, words_end = _places()
        shown = os.pread(self.memory, words_end - words, words).rfind(placeholder.encode())
        self._shown = words + shown, len(placeholder)
        self._look_through_heap(heap)

    def _look_through_heap(self, at: int) -> None:
        reach = len(self._placeholder) + len(_LINE_END)
        # CPython makes that copy last; what comes behind are objects of our own
        while not any(is_path or is_code for _, is_path, is_code in self._found):
            try:
                held = os.pread(self.memory, _WINDOW_BYTES + reach, at)
            except OSError:  # there is no more of it
                return
            self._look_through(at, held)
            at += _WINDOW_BYTES

    def show(self, words: list[str]) -> None:
        """Have `ps` tell what is run, as far as there is room. What is left of the room are zeros."""
        address, size = self._shown
        text = os.fsencode("\0".join(words))[: size - 1]
        os.pwrite(self.memory, text.ljust(size, b"\0"), address)

    def _look_through(self, at: int, held: bytes) -> None:
        found = held.find(self._beginning)
        while 0 <= found < _WINDOW_BYTES:
            rest = found + len(self._placeholder)
            if held[found:rest] == self._placeholder:
                is_path = os.pread(self.memory, len(_BEFORE), at + found - len(_BEFORE)) == _BEFORE
                is_code = held[rest : rest + len(_LINE_END)] == _LINE_END
                self._found.append((at + found, is_path, is_code))
            found = held.find(self._beginning, found + 1)

    def _write(self, address: int, text: str) -> None:
        os.pwrite(self.memory, _wide(text + "\0"), address)

    def _rooms(self) -> list[tuple[int, bool, bool]]:
        """Return those where the placeholder still stands."""
        size = len(self._placeholder)
        return [each for each in self._found if os.pread(self.memory, size, each[0]) == self._placeholder]

    def put_code(self, code: str) -> bool:
        """Have `code` run, if it can be. Of its copies only the one with a line's end behind it is."""
        places = [address for address, _, is_code in self._rooms() if is_code]
        for address in places:
            self._write(address, code + "\n")
        return bool(places)

    def put_file(self, name: str) -> bool:
        """Have the script `name` run, if it can be: as typed, and whole where CPython had made it a path."""
        rooms = self._rooms()
        for address, is_path, _ in rooms:
            self._write(address - len(_BEFORE) if is_path and name.startswith("/") else address, name)
        return any(is_path for _, is_path, _ in rooms)


def _could_not(error: OSError) -> None:
    os.write(2, f"petri: the command could not be started: {error.strerror}\n".encode())
    os._exit(127 if error.errno == 2 else 126)


def _start_anew(words: list[str], variables: dict[str, str], memory: int) -> None:
    signal = sys.modules["_signal"]
    for descriptor in (_BRIEF_FD, _STDIN_FD, _WAKE_FD, memory):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would keep that
    try:
        os.execve(words[0], words, variables)
    except OSError as error:
        _could_not(error)


def _take_variables(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    raw = sys.modules["posix"].environ
    raw.clear()
    raw.update((os.fsencode(name), os.fsencode(value)) for name, value in variables.items())


def _has_user_site() -> bool:
    """Find the user's own packages anew: they lie in a home that was not known before."""
    site = sys.modules["site"]
    vars(site).update(USER_BASE=None, USER_SITE=None)
    folder = site.getusersitepackages()
    return site.ENABLE_USER_SITE and os.path.isdir(folder)


def _leave_no_trace() -> bool:
    """Take away how this module came here; say whether the host has one of its own of this name."""
    del sys.modules["sitecustomize"]
    sys.path.remove(_HERE)
    sys.path_importer_cache.pop(_HERE, None)
    try:
        __import__("sitecustomize")  # it is another one now
    except ImportError:
        return False
    return True


def _told() -> tuple[int, str, list[str], dict[str, str]]:
    """Return flags, folder, words and variables of the brief."""
    brief = _read_all(_BRIEF_FD)
    flags, count = (int.from_bytes(brief[at : at + 4], "little") for at in (4, 8))
    folder, *texts = os.fsdecode(brief[_HEAD_BYTES:-1]).split("\0")
    return flags, folder, texts[:count], dict(text.split("=", 1) for text in texts[count:])


def _await(word: bytes) -> None:
    """Wait until `init` says so; whoever says anything else is gone."""
    if os.read(_WAKE_FD, 1) != word:
        os._exit(3)


def _become(rooms: _Rooms, words: list[str]) -> bool:
    """Make this interpreter the one that was started with `words`; False if there is no room for them."""
    is_code = words[1] == "-c"
    if not (rooms.put_code(words[2]) if is_code else rooms.put_file(words[1])):
        return False
    rooms.show(words[2:] if is_code else words[1:])
    _take_words(words)
    return True


def _take_words(words: list[str]) -> None:
    sys.argv[:] = ["-c", *words[3:]] if words[1] == "-c" else words[1:]
    sys.orig_argv[1:] = (os.fsdecode(os.fsencode(word)) for word in words[1:])  # no object is in both


def _is_made_by_the_program() -> bool:
    """Say whether this interpreter is another one in a process that was parked; it then has its words, too.

    It begins as the first one did, with our folder and without the words, but there is nothing to wait for.
    What `ps` is shown tells both: the placeholder, or what was run.
    """
    source = os.open("/proc/self/cmdline", os.O_RDONLY)
    shown = _read_all(source)
    os.close(source)
    if shown.endswith(os.fsencode(sys.orig_argv[-1]) + b"\0"):
        return False
    _take_words(os.fsdecode(shown.rstrip(b"\0")).split("\0"))
    return True


def _park() -> None:
    """Wait for the brief, be ready for what it says, and wait for the word; then nothing of this is left."""
    rooms = _Rooms(sys.orig_argv[-1])
    _await(b"B")
    flags, folder, words, variables = _told()
    is_ours = False
    try:
        if flags & _HAS_INPUT:
            os.dup2(_STDIN_FD, 0)
        os.chdir(folder)
        if flags & _IS_FOR_PROGRAM:
            _take_variables(variables)
            is_ours = not _has_user_site() and _become(rooms, words)
    except OSError as error:
        _await(b"W")
        _could_not(error)
    _await(b"W")
    if not is_ours:
        _start_anew(words, variables, rooms.memory)
    for descriptor in (_BRIEF_FD, _STDIN_FD, _WAKE_FD, rooms.memory):
        os.close(descriptor)


try:
    _is_needed = not _leave_no_trace()
    if not _is_made_by_the_program():
        _park()
except BaseException:  # noqa: BLE001 - whatever it was, what comes next must not run
    # `site` would say so and go on, with a script that nobody has asked for.
    os.write(2, b"petri: this Python could not be parked\n")
    os._exit(3)
if _is_needed:
    # Nobody is there to be imported, which `site` takes for a matter of course.
    raise ImportError("no sitecustomize", name="sitecustomize")
globals().clear()
