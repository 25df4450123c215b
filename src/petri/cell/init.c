/* init: the first process of every cell.
 *
 * bubblewrap ends its work by becoming this program, as pid 1 of the cell's own pid namespace. It starts the
 * command, waits for it, tells the launcher how it ended, and exits. With pid 1 gone the kernel kills whatever
 * the command left behind, and only then lets bubblewrap see the end: when bwrap is reaped, the cell is empty.
 *
 * Why not bubblewrap's own pid 1: it folds "exited with 137" and "killed by signal 9" into one number, and it
 * stays for as long as a background child does.
 *
 * The report goes through a pipe the command never holds. The command runs under the same uid, so this process
 * makes itself undumpable first: /proc/1/fd then cannot be opened from inside, and a result cannot be forged.
 *
 * The cell can be made while the run is still being written down: the command starts when one byte comes
 * through GO_FD, and never if that pipe ends first.
 *
 * usage: init REPORT_FD GO_FD COMMAND [ARGUMENT ...]
 *
 *   'S'             the cell is complete; the command is about to start
 *   'X' errno:4     the command could not be started
 *   'E' status:4    the command ended; `status` as wait(2) has it
 */

#include "kernel.h"

#define PR_SET_DUMPABLE 4
#define F_SETFD 2
#define FD_CLOEXEC 1

static void report(long fd, char kind, int value, long size)
{
    char record[5];
    record[0] = kind;
    record[1] = (char)(value & 255);
    record[2] = (char)((value >> 8) & 255);
    record[3] = (char)((value >> 16) & 255);
    record[4] = (char)((value >> 24) & 255);
    system_call(SYS_WRITE, fd, (long)record, size, 0);
}

static void close_on_exec(long fd)
{
    system_call(SYS_FCNTL, fd, F_SETFD, FD_CLOEXEC, 0);
}

static void await_go(long fd)
{
    char word;
    long got;
    do
        got = system_call(SYS_READ, fd, (long)&word, 1, 0);
    while (got == -EINTR);
    if (got != 1)
        leave(3);
}

static void await_command(long fd, long command)
{
    for (;;) {
        int status = 0;
        long gone = system_call(SYS_WAIT4, -1, (long)&status, 0, 0);
        if (gone == command) {
            report(fd, 'E', status, 5);
            leave(0);
        }
        if (gone < 0 && gone != -EINTR)
            leave(1);
    }
}

/* `stack` is as the kernel left it: argc, argv..., 0, envp..., 0 */
void begin(long *stack)
{
    long argc = stack[0];
    char **argv = (char **)(stack + 1);
    char **envp = argv + argc + 1;
    long fd, command, error;

    if (argc < 4)
        leave(2);
    fd = number(argv[1]);
    system_call(SYS_PRCTL, PR_SET_DUMPABLE, 0, 0, 0);
    close_on_exec(fd);
    close_on_exec(number(argv[2]));
    await_go(number(argv[2]));
    report(fd, 'S', 0, 1);
    command = system_call(SYS_FORK, FORK_ARGUMENT, 0, 0, 0);
    if (command == 0) {
        error = system_call(SYS_EXECVE, (long)argv[3], (long)(argv + 3), (long)envp, 0);
        report(fd, 'X', (int)-error, 5);
        leave(127);
    }
    if (command < 0) {
        report(fd, 'X', (int)-command, 5);
        leave(1);
    }
    await_command(fd, command);
}
