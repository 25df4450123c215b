"""Attacks from inside a cell, as programs: each prints `GOT` and what it got, if it gets anything.

What they know of their host stands before them: BAIT_FILE, NEIGHBOUR, HOME, VICTIM, PORT and so on.
"""
# ruff: noqa: E501 - an attack is easier to read on one long line than on three short ones

PRELUDE = """
import ctypes, errno, fcntl, glob, os, resource, signal, socket, stat, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def got(what):
    print("GOT", what)

def can(attempt, *more):
    try:
        answer = attempt(*more)
    except Exception:
        return False
    return answer is not False

def call(number, *words):
    return libc.syscall(number, *(ctypes.c_long(word) if isinstance(word, int) else word for word in words))
"""

FILES = {
    "a file of the host by its path": "can(lambda: got(open(BAIT_FILE).read()))",
    "a neighbour's file by its path": "can(lambda: got(open(NEIGHBOUR).read()))",
    "the ledger": "can(lambda: got(open(HOME + '/petri/ledger.db', 'rb').read(9)))",
    "root's folder": "can(lambda: got(os.listdir('/root'))); can(lambda: got(os.listdir('/home')))",
    "passwords": "can(lambda: got(open('/etc/shadow').read()))",
    "accounts of the host": "[got(x) for x in open('/etc/passwd') if x.startswith('root:')]",
    "through the roots and folders of processes": """
        for place in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
            can(lambda: got(open(place + BAIT_FILE).read()))
            can(lambda: os.path.exists(place + HOME) and got(place))
    """,
    "up and up from every open folder": """
        for number in range(3, 4096):
            can(lambda: got(os.readlink(f"/proc/self/fd/{number}")))
        for place in ("/workspace", "/tmp", "/usr", "/dev", "/proc", "/proc/1/cwd", "/proc/1/root"):
            can(lambda: got(open(place + "/.." * 20 + BAIT_FILE).read()))
    """,
    "by walking everywhere": """
        for root, folders, files in os.walk("/"):
            if root.startswith(("/proc", "/usr")):
                folders.clear()
            if os.path.basename(BAIT_FILE) in files or "secret.txt" in files:
                got(root)
    """,
    "by a symbolic link and by a hard one": """
        os.symlink(BAIT_FILE, "/workspace/link")
        can(lambda: got(open("/workspace/link").read()))
        can(lambda: (os.link(BAIT_FILE, "/workspace/hard"), got("hard")))
        os.unlink("/workspace/link")
    """,
    "by a handle": """
        can(lambda: call(304, -100, 0, 0) >= 0 and got("open_by_handle_at"))
        got("EBADF is no refusal") if call(304, -1, ctypes.byref(ctypes.c_long()), 0) and ctypes.get_errno() == 9 else 0
    """,
    "the engine's own program": "can(lambda: (open('/proc/1/exe', 'r+b'), got('r+')))",
    "init's program by its path": "can(lambda: (open('/etc/petri/init', 'r+b'), got('r+')))",
    "libraries that others import": """
        for place in (os.__file__, "/usr/bin/python3", "/usr/lib/x.py", "/etc/passwd", "/etc/ld.so.preload", "/x"):
            can(lambda: (open(place, "ab"), got(place)))
            can(lambda: (os.rename(place, place + "~"), got(place)))
    """,
    "disks": """
        for place in glob.glob("/dev/*") + ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/vda", "/dev/sda", "/dev/kvm"]:
            name = os.path.basename(place)
            if os.path.exists(place) and name not in (
                "null zero full random urandom tty ptmx pts shm fd stdin stdout stderr core".split()
            ):
                got(place)
    """,
    "a device of one's own making": """
        for folder in ("/workspace", "/tmp", "/dev/shm"):
            for kind, number in ((stat.S_IFBLK, (254, 0)), (stat.S_IFCHR, (1, 1)), (stat.S_IFCHR, (10, 232))):
                can(lambda: (os.mknod(f"{folder}/node", kind | 0o666, os.makedev(*number)), got((folder, number))))
    """,
    "/sys": "can(lambda: os.listdir('/sys') and got('sys'))",
}

PROCESSES = {
    "arguments and variables of every process": """
        for place in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
            if place.split("/")[2] not in ("self", str(os.getpid())):
                can(lambda: "".join(CANARY_HALVES).encode() in open(place, "rb").read() and got(place))
    """,
    "init's variables": """
        said = open("/proc/1/environ", "rb").read() if os.access("/proc/1/environ", os.R_OK) else b""
        if set(x.partition(b"=")[0] for x in said.split(b"\\0")) - {b"", b"PATH"}:
            got(said)
    """,
    "the victim by its number": """
        can(lambda: (os.kill(VICTIM, 0), VICTIM > 64 and got("signalled")))
        can(lambda: (os.pidfd_open(VICTIM), VICTIM > 64 and got("pidfd")))
    """,
    "any process but one's own": """
        ours = {1, os.getpid(), os.getppid()}
        [got(pid) for pid in range(1, 40000) if pid not in ours and can(os.kill, pid, 0)]
    """,
    "init's memory, descriptors and map": """
        for name in ("mem", "maps", "fd/3", "fd/1", "environ", "stack", "syscall"):
            can(lambda: (open(f"/proc/1/{name}", "rb").read(1), got(name)))
        can(lambda: got(os.listdir("/proc/1/fd")))
    """,
    "what the kernel and the server left in one's own memory": """
        first, second = (half.encode() for half in CANARY_HALVES)  # never whole: it would be found for that
        memory = os.open("/proc/self/mem", os.O_RDONLY)
        for line in open("/proc/self/maps").readlines():
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            held = lambda: os.pread(memory, min(end - start, 1 << 26), start).split(first)[1:]
            can(lambda: [got(line) for part in held() if part.startswith(second)])
    """,
    "init by ptrace and its like": """
        for number in (101, 310, 311, 438, 312, 440):
            if call(number, 16, 1, 0, 0, 0, 0) >= 0:
                got(number)
    """,
    "init's life": "[can(lambda: (os.kill(1, n), 0)) for n in (9, 15, 11, 19, 6)]; time.sleep(0.1)",
    "another user's rights": """
        for become in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),
                       lambda: os.setresuid(0, 0, 0), lambda: os.seteuid(0)):
            can(lambda: (become(), got("became")))
    """,
    "capabilities": """
        said = dict(line.split(":", 1) for line in open("/proc/self/status"))
        for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
            if int(said[name], 16):
                got((name, said[name]))
        if said["NoNewPrivs"].strip() != "1" or said["Seccomp"].strip() != "2":
            got(said)
    """,
    "programs that make one root": """
        for name in ("su", "sudo", "mount", "umount", "passwd", "newgrp", "chfn", "newuidmap", "fusermount", "pkexec"):
            path = f"/usr/bin/{name}"
            if os.path.exists(path):
                done = subprocess.run([path, "-c", "id -u"], capture_output=True, stdin=subprocess.DEVNULL, timeout=5)
                if done.stdout.strip() == b"0":
                    got(name)
    """,
    "a program that keeps its owner": """
        import shutil
        shutil.copy("/usr/bin/id", "/workspace/id")
        os.chmod("/workspace/id", 0o6755)
        said = subprocess.run(["/workspace/id", "-u"], capture_output=True, text=True).stdout
        if said.strip() != "1000":
            got(said)
    """,
    "a higher priority": """
        can(lambda: (os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), got("fifo")))
        was = os.nice(0)
        can(lambda: (os.setpriority(os.PRIO_PROCESS, 0, was - 5), os.nice(0) < was and got("nice")))
        can(lambda: (os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-500"), got("oom")))
    """,
    "higher limits": """
        for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE):
            hard = resource.getrlimit(kind)[1]
            can(lambda: (resource.setrlimit(kind, (hard + 1, hard + 1)), got(kind)))
    """,
    "a core dump": """
        can(lambda: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)))
        if os.fork() == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        if os.WCOREDUMP(os.wait()[1]):
            got("core")
    """,
    "keystrokes in a terminal": """
        for number in (0, 1, 2):
            can(lambda: (fcntl.ioctl(number, 0x5412, b"x"), got("TIOCSTI")))
        can(lambda: (os.open("/dev/tty", os.O_RDWR), got("/dev/tty")))
        master, slave = os.openpty()
        can(lambda: (fcntl.ioctl(slave, 0x5412, b"x"), got("TIOCSTI on a pty")))
    """,
}

KERNEL = {
    "a namespace": """
        for flags in (0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x2000000, 0x80):
            if libc.unshare(flags) == 0:
                got(hex(flags))
            child = call(56, flags | 17, 0, 0, 0, 0)
            if child == 0:
                os._exit(0)
            if child > 0:
                got(hex(flags))
        can(lambda: libc.setns(os.open("/proc/1/ns/net", 0), 0) == 0 and got("setns"))
    """,
    "mounts": """
        for kind in (b"tmpfs", b"proc", b"sysfs", b"cgroup2", b"overlay", b"devtmpfs", b"fuse", b"debugfs"):
            if libc.mount(b"x", b"/tmp", kind, 0, None) == 0:
                got(kind)
        if libc.umount2(b"/proc/sys", 2) == 0 or libc.chroot(b"/tmp") == 0 or call(155, b"/tmp", b"/tmp") == 0:
            got("mount table")
        for number in (428, 429, 430, 431, 432, 433, 442):
            if call(number, 0, 0, 0, 0, 0) >= 0:
                got(number)
    """,
    "settings of the kernel": """
        for place in ("kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "kernel/sysrq", "fs/file-max",
                      "kernel/hostname", "kernel/yama/ptrace_scope", "net/ipv4/ip_forward", "user/max_user_namespaces",
                      "kernel/ns_last_pid"):
            can(lambda: (open("/proc/sys/" + place, "r+").write("|/tmp/x"), got(place)))
        for place in ("/proc/sysrq-trigger", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/irq/0/smp_affinity",
                      "/proc/mtrr", "/proc/bus/pci/00/00.0", "/proc/fs/ext4", "/proc/acpi/wakeup"):
            can(lambda: (os.write(os.open(place, os.O_WRONLY), b"0 0 1"), got(place)))
    """,
    "what the kernel keeps to itself": """
        for name in ("kcore", "keys", "key-users", "timer_list", "interrupts", "kmsg", "slabinfo", "vmallocinfo",
                     "kpagecount", "kpageflags", "sched_debug", "cmdline", "latency_stats"):
            can(lambda: (said := open("/proc/" + name, "rb").read(64)) and said.strip(b"\\0 \\n0-f:") and got((name, said)))
        can(lambda: [got(x) for x in open("/proc/kallsyms") if int(x.split()[0], 16)][:1])
        if libc.klogctl(3, ctypes.create_string_buffer(64), 64) > 0:
            got("dmesg")
    """,
    "powers nobody needs": """
        for number, words in {321: (0, 0, 0), 298: (0, 0, -1, -1, 0), 425: (8, 0), 323: (0,), 248: (0, 0, 0, 0, -3),
                              250: (0, -3, 0), 300: (0, 0), 175: (0, 0, 0), 313: (-1, 0, 0), 246: (0, 0, 0, 0),
                              169: (0, 0, 0), 167: (0,), 163: (0,), 172: (3,), 173: (0, 1, 1), 135: (0xFFFFFFFE,),
                              164: (0, 0), 227: (0, 0), 447: (0,), 279: (1, 0, 0, 0, 0, 0)}.items():
            if call(number, *words) >= 0 or ctypes.get_errno() in (14, 9):
                got((number, ctypes.get_errno()))
    """,
    "the clock and the name of the host": """
        can(lambda: (time.clock_settime(time.CLOCK_REALTIME, 0), got("clock")))
        can(lambda: (socket.sethostname("x"), got("hostname")))
    """,
    "a release agent": """
        for place in glob.glob("/sys/fs/cgroup/*") + glob.glob("/proc/*/cgroup")[:1]:
            can(lambda: (open(place + "/release_agent", "w"), got(place)))
    """,
    "shared memory of the host": """
        if libc.shmget(SHM_KEY, 4096, 0o666) >= 0:
            got("shm")
        [got(x) for x in open("/proc/sysvipc/shm").readlines()[1:]]
    """,
    "handlers of binaries": "can(lambda: (open('/proc/sys/fs/binfmt_misc/register', 'w'), got('binfmt')))",
}

NETWORK = {
    "the host by every address": """
        ours = [b"127.0.0.1", b"127.1.2.3", b"0.0.0.0"]
        for address in ("127.0.0.1", "127.8.8.8", "0.0.0.0", "localhost", "10.0.0.1", "172.17.0.1", "192.168.0.1"):
            can(lambda: (socket.create_connection((address, PORT), 1), got(address)))
        for address in ("::1", "::ffff:127.0.0.1", "fe80::1"):
            can(lambda: (socket.create_connection((address, PORT), 1), got(address)))
    """,
    "the world": """
        for address in ("192.0.2.1", "169.254.169.254", "8.8.8.8", "255.255.255.255", "224.0.0.1"):
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            can(lambda: (udp.connect((address, 53)), udp.send(b"x"), got(address)))
    """,
    "names": """
        for name in ("example.com", "metadata.google.internal", "host.docker.internal", "_gateway"):
            can(lambda: got(socket.getaddrinfo(name, 80)))
    """,
    "interfaces and routes": """
        names = sorted(name for _, name in socket.if_nameindex())
        if names != ["lo"] or len(open("/proc/net/route").readlines()) > 1:
            got(names)
    """,
    "sockets of the host without a path": """
        can(lambda: (socket.socket(socket.AF_UNIX).connect("\\0" + ABSTRACT), got("abstract")))
        [got(x) for x in open("/proc/net/unix") if ABSTRACT in x]
    """,
    "sockets of the host with one": """
        for path in (PATH_SOCKET, "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
                     "/run/systemd/private", "/tmp/.X11-unix/X0"):
            can(lambda: (socket.socket(socket.AF_UNIX).connect(path), got(path)))
    """,
    "other families": """
        for family in set(range(64)) - {1, 2, 10, 16}:
            for kind in (1, 2, 3, 5):
                can(lambda: (socket.socket(family, kind, 0), got((family, kind))))
    """,
    "protocols that the kernel would load for us": """
        for family in (socket.AF_INET, socket.AF_INET6):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, 6):
                for protocol in (33, 115, 132, 136, 256, 262):
                    can(lambda: (socket.socket(family, kind, protocol), got((family, kind, protocol))))
            for kind in (socket.SOCK_SEQPACKET, 6):
                can(lambda: (socket.socket(family, kind, 0), got((family, kind))))
        for kind, protocol in ((socket.SOCK_STREAM, 6), (socket.SOCK_DGRAM, 17)):
            socket.socket(socket.AF_INET, kind, protocol).close()
    """,
    "raw packets": """
        for family in (2, 10, 17):
            for protocol in (1, 6, 17, 58, 255, 0x300):
                can(lambda: (socket.socket(family, 3, protocol), got((family, protocol))))
    """,
    "netlink beyond routes, and new interfaces": """
        for protocol in range(1, 24):
            can(lambda: (socket.socket(16, 3, protocol), got(protocol)))
        line = socket.socket(16, 3, 0)
        request = struct.pack("=IHHIIBBHiII", 32, 16, 0x605, 1, 0, 0, 0, 0, 0, 1, 1)
        can(lambda: line.send(request))
        answer = line.recv(4096)
        if struct.unpack_from("=i", answer, 16)[0] == 0:
            got("a new interface")
    """,
}

ATTACKS = {**FILES, **PROCESSES, **KERNEL, **NETWORK}
