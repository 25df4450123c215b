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
_BRIEF_FD, _STDIN_FD, _WAKE_FD, _READY_FD = 8, 9, 10, 11
_HAS_INPUT, _IS_FOR_PROGRAM = 1, 2
_HEAD_BYTES = 20
_BRIEF_BYTES = 8192
"""As much of a brief as nearly all have."""
_SHOWN_BYTES = 1 << 16
"""More than there is room for in what is shown of a process that was parked."""
_WINDOW_BYTES = 1 << 16
_PLACEHOLDERS = ("petri-parked", "#petri-parked")
"""What the last word of an interpreter that was started ahead is, but for its dots."""
_TELLING = 16
"""Characters of the placeholder that nothing else begins with: few are found sooner than thousands."""
_SAMPLE = 4
"""Characters to know its middle by, which is one dot after the other."""


def _wide(text: str) -> bytes:
    """Return `text` as C has it. This codec is built in; `utf-32-le` would be imported, and be seen."""
    return text.encode("utf-32", "surrogatepass")[4:]


_BEFORE = _wide("/workspace/")
_LINE_END = _wide("\n")


def _places() -> tuple[int, int, int]:
    """Return where this process's heap begins, and where what the kernel shows of its words begins and ends.

    Of `maps` each line would have to be made, read and taken apart, which takes ten times as long.
    """
    status = os.open("/proc/self/stat", os.O_RDONLY)
    fields = os.read(status, 1024).rpartition(b") ")[2].split()
    os.close(status)
    return int(fields[44]), int(fields[45]), int(fields[46])


def _look_through(memory: int, at: int, placeholder: bytes) -> list[tuple[int, bool, bool]]:
    """Return where in this process's heap the placeholder stands: the name of the script, or its code.

    Of each, whether it is part of a path, and whether it ends a line. Not all is read: the placeholder is so
    long that steps a little shorter than it cannot miss it. The C library has wide characters where their
    address can be divided by their size, and so have the steps.
    """
    heap, size, sample = at, len(placeholder), placeholder[-_SAMPLE * 4 :]
    beginning = placeholder[: _TELLING * 4]
    step = size - len(beginning) - len(sample)
    found: list[tuple[int, bool, bool]] = []
    # CPython makes that copy last; what comes behind are objects of our own
    while not any(is_path or is_code for _, is_path, is_code in found):
        window_end = at + _WINDOW_BYTES
        while at < window_end:
            try:
                seen = os.pread(memory, len(sample), at)
            except OSError:  # there is no more of it
                return found
            at += step
            if seen == sample:
                before = max(heap, at - step - size)
                place = max(0, os.pread(memory, at - step - before, before).rfind(beginning)) + before
                held = os.pread(memory, size + len(_LINE_END), place)
                if held.startswith(placeholder):
                    is_path = os.pread(memory, len(_BEFORE), max(heap, place - len(_BEFORE))) == _BEFORE
                    found.append((place, is_path, held.endswith(_LINE_END)))
                    at = place + size
    return found


def _standing(
    memory: int, rooms: list[tuple[int, bool, bool]], placeholder: bytes
) -> list[tuple[int, bool, bool]]:
    """Return those of `rooms` where the placeholder still stands."""
    return [room for room in rooms if os.pread(memory, len(placeholder), room[0]) == placeholder]


def _put_code(memory: int, rooms: list[tuple[int, bool, bool]], code: str) -> bool:
    """Have `code` run, if it can be. Of its copies only the one with a line's end behind it is."""
    places = [address for address, _, is_code in rooms if is_code]
    text = _wide(code + "\n\0")
    for address in places:
        os.pwrite(memory, text, address)
    return bool(places)


def _put_file(memory: int, rooms: list[tuple[int, bool, bool]], name: str) -> bool:
    """Have the script `name` run, if it can be: as typed, and whole where CPython had made it a path."""
    text = _wide(name + "\0")
    for address, is_path, _ in rooms:
        begins = address - len(_BEFORE) if is_path and name.startswith("/") else address
        os.pwrite(memory, text, begins)
    return any(is_path for _, is_path, _ in rooms)


def _show(memory: int, address: int, size: int, words: list[str]) -> None:
    """Have `ps` tell what is run, as far as there is room. What is left of the room are zeros."""
    text = os.fsencode("\0".join(words))[: size - 1]
    os.pwrite(memory, text.ljust(size, b"\0"), address)


def _could_not(error: OSError) -> None:
    os.write(2, f"petri: the command could not be started: {error.strerror}\n".encode())
    os._exit(127 if error.errno == 2 else 126)


def _start_anew(words: list[str], variables: dict[bytes, bytes], memory: int) -> None:
    signal = sys.modules["_signal"]
    for descriptor in (_BRIEF_FD, _STDIN_FD, _WAKE_FD, memory):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would keep that
    try:
        os.execve(words[0], words, variables)
    except OSError as error:
        _could_not(error)


def _take_variables(variables: dict[bytes, bytes]) -> None:
    """Have these and no others, in their order: for C, and for Python, whose `os` has them where `posix` has.

    `os.environ` would do the same, one by one, in five times the time.
    """
    held = sys.modules["posix"].environ
    for name in held:
        os.unsetenv(name)
    held.clear()
    held.update(variables)
    for name, value in variables.items():
        os.putenv(name, value)


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


def _told() -> tuple[int, bytes, list[str], dict[bytes, bytes]]:
    """Return flags, folder, words and variables of the brief."""
    brief = os.read(_BRIEF_FD, _BRIEF_BYTES)
    size, flags, count = (int.from_bytes(brief[at : at + 4], "little") for at in (4, 8, 12))
    while len(brief) < _HEAD_BYTES + size:
        brief += os.read(_BRIEF_FD, _HEAD_BYTES + size - len(brief)) or os._exit(3)
    folder, *texts = brief[_HEAD_BYTES:-1].split(b"\0")
    words = [os.fsdecode(text) for text in texts[:count]]
    return flags, folder, words, dict(text.split(b"=", 1) for text in texts[count:])


def _await(word: bytes) -> None:
    """Wait until `init` says so; whoever says anything else is gone."""
    if os.read(_WAKE_FD, 1) != word:
        os._exit(3)


def _become(memory: int, rooms: list[tuple[int, bool, bool]], words: list[str]) -> bool:
    """Make this interpreter the one that was started with `words`; False if there is no room for them."""
    put, said = (_put_code, words[2]) if words[1] == "-c" else (_put_file, words[1])
    _take_words(words)
    return put(memory, rooms, said)


def _take_words(words: list[str]) -> None:
    sys.argv[:] = ["-c", *words[3:]] if words[1] == "-c" else words[1:]
    sys.orig_argv[1:] = (os.fsdecode(os.fsencode(word)) for word in words[1:])  # no object is in both


def _is_made_by_the_program() -> bool:
    """Say whether this interpreter is another one in a process that was parked; it then has its words, too.

    It begins as the first one did, with our folder and without the words, but there is nothing to wait for.
    What `ps` is shown tells both: the placeholder, or what was run.
    """
    source = os.open("/proc/self/cmdline", os.O_RDONLY)
    shown = os.read(source, _SHOWN_BYTES)
    os.close(source)
    if not sys.orig_argv or shown.endswith(os.fsencode(sys.orig_argv[-1]) + b"\0"):
        return False  # the words are its own; a program with a Python inside has none
    _take_words(os.fsdecode(shown.rstrip(b"\0")).split("\0"))
    return True


def _is_started_ahead() -> bool:
    """Say whether this interpreter is to wait for a command. It need not be: others may be given our folder.

    Whoever reads `/proc/self/environ` finds it there, and may hand it on to what he starts.
    """
    return bool(sys.orig_argv) and sys.orig_argv[-1].rstrip(".") in _PLACEHOLDERS


def _park() -> None:
    """Wait for the brief, be ready for what it says, and wait for the word; then nothing of this is left."""
    placeholder = sys.orig_argv[-1]
    held = _wide(placeholder)  # until the end: it is itself a place where the placeholder stands
    memory = os.open("/proc/self/mem", os.O_RDWR)
    heap, shown, shown_end = _places()
    shown += os.pread(memory, shown_end - shown, shown).rfind(placeholder.encode())
    rooms = _look_through(memory, heap, held)
    os.write(_READY_FD, b"P")
    os.close(_READY_FD)
    _await(b"B")
    flags, folder, words, variables = _told()
    is_ours = False
    try:
        if flags & _HAS_INPUT:
            os.dup2(_STDIN_FD, 0)
        os.chdir(folder)
        if flags & _IS_FOR_PROGRAM:
            _take_variables(variables)
            is_ours = not _has_user_site() and _become(memory, _standing(memory, rooms, held), words)
    except OSError as error:
        _await(b"W")
        _could_not(error)
    if is_ours:
        _show(memory, shown, len(placeholder), words[2:] if words[1] == "-c" else words[1:])
    _await(b"W")
    if not is_ours:
        _start_anew(words, variables, memory)
    for descriptor in (_BRIEF_FD, _STDIN_FD, _WAKE_FD, memory):
        os.close(descriptor)


try:
    _is_needed = not _leave_no_trace()
    if not _is_made_by_the_program() and _is_started_ahead():
        _park()
except BaseException:  # noqa: BLE001 - whatever it was, what comes next must not run
    # `site` would say so and go on, with a script that nobody has asked for.
    os.write(2, b"petri: this Python could not be parked\n")
    os._exit(3)
if _is_needed:
    # Nobody is there to be imported, which `site` takes for a matter of course.
    raise ImportError("no sitecustomize", name="sitecustomize")
globals().clear()
