"""What the kernel offers and the standard library does not: openat2, renameat2, syncfs."""

import ctypes
import errno
import functools
import os

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

_SYS_OPENAT2 = 437
"""One number on every architecture: calls added since 2019 share their numbers."""
_AT_FDCWD = -100

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(top: int, path: bytes, flags: int, resolve: int) -> int:
    """Open `path`, resolved from the folder `top` as `resolve` says; see openat2(2)."""
    how = _OpenHow(flags, 0, resolve)
    while True:
        fd: int = _libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(top),
            ctypes.c_char_p(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EINTR:
            raise _os_error()


@functools.cache
def has_openat2() -> bool:
    """Say whether openat2 works: kernels before 5.6 and old container profiles lack it."""
    try:
        os.close(openat2(_AT_FDCWD, b".", os.O_PATH | os.O_CLOEXEC, RESOLVE_BENEATH))
    except OSError as error:
        return error.errno not in (errno.ENOSYS, errno.EPERM)
    return True


def rename(source: int, name: str, destination: int, new_name: str, flags: int) -> None:
    """Rename between two folders, with flags that `os.rename` has no way to say.

    Raises EINVAL where the file system, or the C library, knows no such flags.
    """
    renameat2 = getattr(_libc, "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if renameat2(source, os.fsencode(name), destination, os.fsencode(new_name), flags):
        raise _os_error()


def syncfs(fd: int) -> None:
    """Make everything durable that was written to the file system of `fd`."""
    if _libc.syncfs(fd):
        raise _os_error()


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
