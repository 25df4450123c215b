/* gate: what the launcher starts, and what becomes bubblewrap.
 *
 * Between a process of the launcher's and a cell lie a few steps that only the new process itself can take:
 * enter its cgroup, its network and its mounts, become expendable, take its limits, become the sandbox's user.
 * Forking the launcher to take them in Python copies its page tables and then its pages, a millisecond for
 * every cell; this program is started without a fork (posix_spawn) and takes the same steps in a tenth of that.
 *
 * usage: gate GROUP NETWORK FROM LIMITS MOUNTS USER COMMAND [ARGUMENT ...]
 *
 *   GROUP    -          no cgroup
 *            w8-11      write `0` to descriptors 8 to 11: the `tasks` files of cgroup v1
 *            b8-9       be born in the cgroup v2 of descriptor 8; tell the new process's id through 9
 *   NETWORK  12         enter the network of descriptor 12; or -, where bubblewrap makes one
 *   FROM     the first descriptor that is not the command's; all from here on are closed
 *   LIMITS   7=4096,4=0 resource limits by the kernel's numbers, or -
 *   MOUNTS   13         enter the mounts of descriptor 13, with terminals for this cell alone; or -
 *   USER     a uid, which is the gid too, or - to stay
 *
 * A step that fails ends it: a cell is never made with one wall less.
 */

#include "kernel.h"

#define COULD_NOT 126
#define EACCES 13
#define EINVAL 22
#define NOBODY_AT_ALL 0xffffffffL
#define CLONE_NEWNS 0x20000L
#define CLONE_NEWNET 0x40000000L
#define CLONE_PARENT 0x8000UL
#define CLONE_INTO_CGROUP 0x200000000UL
#define O_WRONLY_CLOEXEC 02000001
#define AT_FDCWD -100
#define EXPENDABLE "500"

static void complain(const char *step, long error)
{
    char digits[4];
    int length = 0;
    const char *end = step;
    while (*end)
        end++;
    system_call(SYS_WRITE, 2, (long)"petri-gate: could not ", 22, 0);
    system_call(SYS_WRITE, 2, (long)step, end - step, 0);
    system_call(SYS_WRITE, 2, (long)": error ", 8, 0);
    if (error >= 100)
        digits[length++] = (char)('0' + error / 100 % 10);
    if (error >= 10)
        digits[length++] = (char)('0' + error / 10 % 10);
    digits[length++] = (char)('0' + error % 10);
    digits[length++] = '\n';
    system_call(SYS_WRITE, 2, (long)digits, length, 0);
    leave(COULD_NOT);
}

static long must(long answer, const char *step)
{
    if (answer < 0)
        complain(step, -answer);
    return answer;
}

/* Have the rest of this program done by a child that was never outside its group: moving a process into a
 * cgroup v2 takes a lock over every process of the machine, about 10 ms. It becomes the launcher's child. */
static void be_born_in(unsigned long group, unsigned long tell)
{
    unsigned long order[11];
    int child;
    for (child = 0; child < 11; child++) /* by hand: `= {0}` becomes a call of memset, and there is no libc */
        order[child] = 0;
    order[0] = CLONE_PARENT | CLONE_INTO_CGROUP;
    order[10] = group;
    child = (int)must(system_call(SYS_CLONE3, (long)order, sizeof order, 0, 0), "be born in the cell's cgroup");
    if (child) {
        system_call(SYS_WRITE, (long)tell, (long)&child, sizeof child, 0);
        leave(0);
    }
}

static void enter(const char *group)
{
    unsigned long first, last;
    const char *rest;
    if (*group == '-')
        return;
    first = number_in(group + 1, &rest);
    last = number(rest + 1);
    if (*group == 'b')
        be_born_in(first, last);
    else
        for (; first <= last; first++)
            must(system_call(SYS_WRITE, (long)first, (long)"0", 1, 0), "enter the cell's cgroup");
}

static void enter_network(const char *network)
{
    if (*network != '-')
        must(system_call(SYS_SETNS, (long)number(network), CLONE_NEWNET, 0, 0), "enter the cell's network");
}

/* An operator may keep the server from the kernel's OOM killer. A cell would inherit that: nothing in it could
 * be killed for its memory. Written by root, this is also the least that the cell may set itself. Refused is
 * only who already is more expendable than this, and may not become less so. */
static void become_expendable(void)
{
    long file = must(system_call(SYS_OPENAT, AT_FDCWD, (long)"/proc/self/oom_score_adj", O_WRONLY_CLOEXEC, 0),
                     "find its place before the OOM killer");
    long answer = system_call(SYS_WRITE, file, (long)EXPENDABLE, 3, 0);
    if (answer != -EACCES)
        must(answer, "take its place before the OOM killer");
}

static void limit(const char *text)
{
    while (*text >= '0' && *text <= '9') {
        unsigned long pair[2], most[2];
        unsigned long kind = number_in(text, &text);
        pair[0] = number_in(text + 1, &text);
        must(system_call(SYS_PRLIMIT64, 0, (long)kind, 0, (long)most), "read a resource limit");
        if (pair[0] > most[1])
            pair[0] = most[1];
        pair[1] = pair[0];
        must(system_call(SYS_PRLIMIT64, 0, (long)kind, (long)pair, 0), "set a resource limit");
        if (*text == ',')
            text++;
    }
}

static void enter_mounts(const char *mounts)
{
    if (*mounts != '-')
        must(system_call(SYS_SETNS, (long)number(mounts), CLONE_NEWNS, 0, 0), "enter the cell's mounts");
}

static void become_user(const char *user)
{
    long id;
    if (*user == '-')
        return;
    id = (long)number(user);
    if (id == 0 || id >= NOBODY_AT_ALL) /* which the kernel takes for "as before": root */
        complain("become this user", EINVAL);
    must(system_call(SYS_SETGROUPS, 0, 0, 0, 0), "leave the server's groups");
    must(system_call(SYS_SETRESGID, id, id, id, 0), "take the sandbox's group");
    must(system_call(SYS_SETRESUID, id, id, id, 0), "become the sandbox's user");
}

/* `stack` is as the kernel left it: argc, argv..., 0, envp..., 0 */
void begin(long *stack)
{
    long argc = stack[0];
    char **argv = (char **)(stack + 1);
    char **envp = argv + argc + 1;

    if (argc < 8)
        leave(2);
    enter(argv[1]);
    become_expendable();
    enter_network(argv[2]);
    enter_mounts(argv[5]);
    must(system_call(SYS_CLOSE_RANGE, (long)number(argv[3]), ~0U, 0, 0), "close what is not the cell's");
    limit(argv[4]);
    become_user(argv[6]);
    must(system_call(SYS_EXECVE, (long)argv[7], (long)(argv + 7), (long)envp, 0), "start the cell's program");
}
