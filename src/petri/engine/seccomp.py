"""Which system calls a cell may make: a table of refusals, each beside its reason.

Built with libseccomp into the program that bubblewrap loads just before the command starts. What is not
in the table is allowed, with four exceptions that stand before it, in `_preamble`:

- a foreign architecture is killed, since its calls have other numbers;
- x32, a second set of numbers on x86-64, does not exist;
- a call that is younger than this table does not exist either: nobody has looked at it yet;
- of internet protocols there are five: for any other the kernel would load a module that hardly anybody uses.
"""

import contextlib
import errno
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyseccomp

from petri.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Refusal:
    """Calls that are answered with `error` for `reason`."""

    calls: Sequence[str]
    reason: str
    error: int = errno.EPERM


REFUSED = (
    Refusal(("clone3",), "its flags lie in memory, where a filter cannot look: use clone", errno.ENOSYS),
    Refusal(("unshare", "setns"), "no new namespaces: they widen the kernel's attack surface"),
    Refusal(
        ("mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount"),
        "the mount table is part of the wall",
    ),
    Refusal(("open_tree", "mount_setattr", "quotactl", "quotactl_fd"), "the mount table is part of the wall"),
    Refusal(("statmount", "listmount"), "the mount table names folders of the host", errno.ENOSYS),
    Refusal(
        ("lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules"), "the host's affairs", errno.ENOSYS
    ),
    Refusal(("open_by_handle_at", "name_to_handle_at"), "opens files by number, past every path"),
    Refusal(
        ("io_uring_setup", "io_uring_enter", "io_uring_register"),
        "queued calls pass this filter by, and half of recent kernel holes are here",
        errno.ENOSYS,
    ),
    Refusal(("userfaultfd",), "holds the kernel at a point of one's choice: the exploit writer's tool"),
    Refusal(("bpf", "perf_event_open"), "programs and probes inside the kernel"),
    Refusal(("keyctl", "add_key", "request_key"), "keyrings are not namespaced"),
    Refusal(
        ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "process_madvise", "pidfd_getfd"),
        "reaching into other processes",
    ),
    Refusal(
        ("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "create_module"),
        "code in the kernel",
    ),
    Refusal(
        ("reboot", "swapon", "swapoff", "acct", "syslog", "vhangup", "nfsservctl"), "the machine's affairs"
    ),
    Refusal(
        ("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname"),
        "the machine's affairs",
    ),
    Refusal(
        ("iopl", "ioperm", "modify_ldt", "vm86", "vm86old"), "hardware and rarely used corners of the CPU"
    ),
    Refusal(
        ("move_pages", "migrate_pages", "mbind", "set_mempolicy", "set_mempolicy_home_node"),
        "placement of memory: holes, no use",
    ),
    Refusal(
        ("lookup_dcookie", "uselib", "ustat", "sysfs", "_sysctl", "personality"), "obsolete or dangerous"
    ),
    Refusal(("fanotify_init", "memfd_secret"), "watching or hiding what an operator must see"),
)

CLONE_NEW = {
    "CLONE_NEWTIME": 0x80,
    "CLONE_NEWNS": 0x0002_0000,
    "CLONE_NEWCGROUP": 0x0200_0000,
    "CLONE_NEWUTS": 0x0400_0000,
    "CLONE_NEWIPC": 0x0800_0000,
    "CLONE_NEWUSER": 0x1000_0000,
    "CLONE_NEWPID": 0x2000_0000,
    "CLONE_NEWNET": 0x4000_0000,
}
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_ALLOWED_FAMILIES = (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)
"""No others: AF_VSOCK above all is not namespaced and reaches the hypervisor."""
_FAMILIES = 64
_PROTOCOLS = (0, 1, 6, 17, 58)
"""Of sockets of the internet: the one that suits, ICMP, TCP, UDP, ICMPv6. SCTP, DCCP, L2TP, SMC and their
like are as large as TCP, seldom looked at, and loaded for whoever asks."""
_SOCK_RAW, _SOCK_SEQPACKET, _SOCK_DCCP, _SOCK_PACKET, _SOCK_KIND = 3, 5, 6, 10, 0xF
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SET_ASIDE = (0x4030_5828, 0x4030_582A, 0x4030_5839)
"""FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE: fallocate by other names."""
_PUNCH_HOLE, _COLLAPSE_RANGE = 0x02, 0x08

LAST_REVIEWED = 462
"""`mseal`, of Linux 6.10. From 424 on, numbers are the same on every architecture."""
_YOUNG = {
    "statmount": 457,
    "listmount": 458,
    "lsm_get_self_attr": 459,
    "lsm_set_self_attr": 460,
    "lsm_list_modules": 461,
}
"""Calls that Debian 12's libseccomp does not know by name."""

_BY_HALVES = 2
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_GREATER, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST, _AT_SECOND, _AT_THIRD = 0, 4, 16, 24, 32
"""Of an argument, its lower half: the kernel takes no more of a number that is an int."""
_KILL_PROCESS, _ERRNO = 0x8000_0000, 0x0005_0000
_ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}


def program() -> bytes:
    """Return the filter as a BPF program, or raise `Unavailable` if it cannot be built here."""
    try:
        rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
        _branch(rules)
        _refuse_calls(rules)
        _refuse_arguments(rules)
        _refuse_setting_aside(rules)
        return _preamble() + _exported(rules)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise Unavailable("the seccomp filter could not be built", detail=str(error)) from error


def _branch(rules: pyseccomp.SyscallFilter) -> None:
    """Have numbers found by halves, not one by one; with a libseccomp that is too old for it, one by one.

    The kernel goes through the filter for every number there is, for each cell, to know which never need it.
    """
    with contextlib.suppress(OSError):
        rules.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BY_HALVES)


def _refuse_calls(rules: pyseccomp.SyscallFilter) -> None:
    for refusal in REFUSED:
        for call in refusal.calls:
            number = number_of(call)
            if number >= 0:  # a call of another architecture has none here
                rules.add_rule(pyseccomp.ERRNO(refusal.error), number)


def number_of(call: str) -> int:
    """Return the number of a call on this machine; negative if it has none."""
    known = _YOUNG.get(call)
    return int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, call)) if known is None else known


def _preamble() -> bytes:
    """Return the instructions that come before libseccomp's own; each jump counts instructions to skip."""
    return b"".join(
        _INSTRUCTION.pack(*instruction)
        for instruction in (
            (_LOAD, 0, 0, _AT_ARCHITECTURE),
            (_JUMP_IF_EQUAL, 1, 0, _ARCHITECTURES[platform.machine()]),
            (_RETURN, 0, 0, _KILL_PROCESS),
            (_LOAD, 0, 0, _AT_NUMBER),
            (_JUMP_IF_GREATER, 0, 1, LAST_REVIEWED),  # x32 numbers begin at 2**30, so they are greater too
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
            *_refuse_protocols(),
        )
    )


def _refuse_protocols() -> list[tuple[int, int, int, int]]:
    """Return the instructions that know `_PROTOCOLS`, given the number; with libseccomp, a hundred rules.

    The answer is that of a kernel without the protocol, so that programs go on with another. A kind of
    socket can stand for its protocol: of SEQPACKET and DCCP, the one that suits is SCTP and DCCP.
    """
    most = len(_PROTOCOLS)
    known = [(_JUMP_IF_EQUAL, most - at, 0, protocol) for at, protocol in enumerate(_PROTOCOLS)]
    return [
        (_JUMP_IF_EQUAL, 0, most + 10, number_of("socket")),
        (_LOAD, 0, 0, _AT_FIRST),
        (_JUMP_IF_EQUAL, 1, 0, _AF_INET),
        (_JUMP_IF_EQUAL, 0, most + 7, _AF_INET6),
        (_LOAD, 0, 0, _AT_SECOND),
        (_AND, 0, 0, _SOCK_KIND),
        (_JUMP_IF_EQUAL, 1, 0, _SOCK_SEQPACKET),
        (_JUMP_IF_EQUAL, 0, 1, _SOCK_DCCP),
        (_RETURN, 0, 0, _ERRNO | errno.ESOCKTNOSUPPORT),
        (_LOAD, 0, 0, _AT_THIRD),
        *known,
        (_RETURN, 0, 0, _ERRNO | errno.EPROTONOSUPPORT),
    ]


def _refuse_arguments(rules: pyseccomp.SyscallFilter) -> None:
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for flag in CLONE_NEW.values():
        rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    for family in set(range(_FAMILIES)) - set(_ALLOWED_FAMILIES):
        rules.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    rules.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.GE, _FAMILIES))
    # Pairs are made of AF_UNIX alone; of any other family the kernel makes one socket before it says no.
    other_family = pyseccomp.Arg(0, pyseccomp.NE, _AF_UNIX)
    rules.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), "socketpair", other_family)
    for family in (_AF_INET, _AF_INET6):
        for kind in (_SOCK_RAW, _SOCK_PACKET):
            # One exact rule for each: a rule by "not equal" beside the others makes libseccomp lose some.
            kinds = pyseccomp.Arg(1, pyseccomp.MASKED_EQ, _SOCK_KIND, kind)
            rules.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family), kinds)
    # Of netlink only the routing tables, which are the cell's own; the rest is attack surface.
    other = pyseccomp.Arg(2, pyseccomp.GE, 1)
    rules.add_rule(refuse, "socket", pyseccomp.Arg(0, pyseccomp.EQ, _AF_NETLINK), other)
    for request in (_TIOCSTI, _TIOCLINUX, *_SET_ASIDE):
        # Only the low half counts: the kernel ignores the rest, so a filter must too.
        rules.add_rule(refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFF_FFFF, request))


def _refuse_setting_aside(rules: pyseccomp.SyscallFilter) -> None:
    """Allow of fallocate only what frees: what it sets aside, a terabyte a second, no watch can follow.

    The same answer as from a file system that cannot do it, so that programs go on by writing.
    """
    refuse = pyseccomp.ERRNO(errno.EOPNOTSUPP)
    freeing = _PUNCH_HOLE | _COLLAPSE_RANGE
    rules.add_rule(refuse, "fallocate", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, freeing, 0))


def _exported(rules: pyseccomp.SyscallFilter) -> bytes:
    descriptor = os.memfd_create("petri-seccomp", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
