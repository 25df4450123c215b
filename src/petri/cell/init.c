/* init: the first process of every cell.
 *
 * bubblewrap ends its work by becoming this program, as pid 1 of the cell's own pid namespace. It starts the
 * command, waits for it, tells the server how it ended, and exits. With pid 1 gone the kernel kills whatever
 * the command left behind, and only then lets bubblewrap see the end: when bwrap is reaped, the cell is empty.
 *
 * Why not bubblewrap's own pid 1: it folds "exited with 137" and "killed by signal 9" into one number, and it
 * stays for as long as a background child does.
 *
 * The report goes through a pipe the command never holds. The command runs under the same uid, so this process
 * makes itself undumpable first: /proc/1/fd then cannot be opened from inside, and a result cannot be forged.
 *
 * A cell is made before its command is known. What to run lies in BRIEF_FD, a memory file, by the time a word
 * comes through GO_FD; nothing runs if that pipe ends first. With a PROGRAM, that one is started at once
 * (`cell/python/sitecustomize.py`): it gets ready, says so through READY_FD and waits for a byte from WAKE_FD,
 * reads the brief itself when it is told that there is one, and does what that says when the word has come. One
 * that is dead by then has not been a command: this process leaves with nothing said, and the run is given
 * another cell.
 *
 * usage: init REPORT_FD GO_FD BRIEF_FD STDIN_FD WAKE_FD READY_FD PROCESSES [PROGRAM ARGUMENT ...]
 *
 *   PROCESSES       how many there may be in the cell, threads and this one included, or 0: see `bound_processes`
 *   the word        'G', how large a file may become: 8 bytes, or 0 for no change
 *   before it       'B', 8 bytes: the brief is there
 *   the brief       4 bytes each: a mark, length of the rest, flags, arguments, variables; then, each with a 0 at
 *                   its end: the folder, the arguments, the variables. Flag 1: STDIN_FD is the command's input.
 *   the mark        0 until the command is about to start, then BEGUN. It is put where the server may look, and
 *                   not into the report: the server would wake up for it, and take the processor from the command.
 *
 *   'P'             the cell stands: there is nothing left to do in it before the word
 *   'X' errno:4     the command could not be started
 *   'E' status:4    the command ended; `status` as wait(2) has it
 *   'A' 0:4         and nobody else is left in the cell
 */

#include "kernel.h"

#define PR_SET_DUMPABLE 4
#define F_SETFD 2
#define F_DUPFD_CLOEXEC 1030
#define FD_CLOEXEC 1
#define O_CLOEXEC 02000000
#define WNOHANG 1
#define RLIMIT_FSIZE 1
#define RLIMIT_NPROC 6
#define MYSELF 0
#define E2BIG 7
#define ECHILD 10

#define BRIEF_HEAD 20
#define BEGUN "S"
#define MOST_BYTES (2 << 20)
#define MOST_WORDS 16384
#define HAS_INPUT 1
#define OUT_OF_THE_WAY 16 /* above all that are given, and below 32: a cell may be allowed no more */
#define RECORD 5
#define POLLIN 1

static unsigned char brief[MOST_BYTES];
static char *words[MOST_WORDS];
static long report_fd, go_fd, brief_fd, stdin_fd, wake_fd, ready_fd;

static void put_record(char *record, char kind, int value)
{
    record[0] = kind;
    record[1] = (char)(value & 255);
    record[2] = (char)((value >> 8) & 255);
    record[3] = (char)((value >> 16) & 255);
    record[4] = (char)((value >> 24) & 255);
}

static void report(char kind, int value, long size)
{
    char record[RECORD];
    put_record(record, kind, value);
    system_call(SYS_WRITE, report_fd, (long)record, size, 0);
}

/* In one piece: for each the server would wake up. */
static void report_end(int status, int alone)
{
    char records[2 * RECORD];
    put_record(records, 'E', status);
    put_record(records + RECORD, 'A', 0);
    system_call(SYS_WRITE, report_fd, (long)records, alone ? 2 * RECORD : RECORD, 0);
}

/* Say that the command is about to start. One of which that cannot be said does not. */
static void mark_begun(void)
{
    if (system_call(SYS_PWRITE64, brief_fd, (long)BEGUN, 1, 0) != 1)
        leave(7);
}

static void refuse(long error)
{
    report('X', (int)-error, RECORD);
    leave(127);
}

static void close_on_exec(long fd, long flag)
{
    system_call(SYS_FCNTL, fd, F_SETFD, flag, 0);
}

/* Read exactly `size` bytes; anything less means that there is nothing to do here any more. */
static void read_all(long fd, unsigned char *into, long size)
{
    long got;
    while (size > 0) {
        got = system_call(SYS_READ, fd, (long)into, size, 0);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            leave(3);
        into += got;
        size -= got;
    }
}

static unsigned long number_at(const unsigned char *bytes, int size)
{
    unsigned long value = 0;
    while (size--)
        value = value << 8 | bytes[size];
    return value;
}

/* Wait for the word, and return how large a file may become. Who is `woken` on the way has a brief to read. */
static unsigned long await_go(long woken)
{
    unsigned char word[9];
    for (;;) {
        read_all(go_fd, word, sizeof word);
        if (word[0] == 'G')
            return number_at(word + 1, 8);
        if (woken >= 0)
            system_call(SYS_WRITE, woken, (long)"B", 1, 0);
    }
}

/* Bound a process and all it will start, for good; 0 is no bound. Nothing has been said yet: a cell in which it
 * cannot be done never was one. */
static void bound(long process, long kind, unsigned long most)
{
    unsigned long pair[2];
    if (most == 0)
        return;
    pair[0] = pair[1] = most;
    if (system_call(SYS_PRLIMIT64, process, kind, (long)pair, 0) < 0)
        leave(4);
}

/* Hold the cell to so many processes even where it has no cgroup. The kernel counts them by user and by user
 * namespace (since 5.14): set in here, this counts those of this cell alone, however many its user has. Set before
 * bubblewrap made the namespace, it would count all of that user's, and no cell could be made beside them. */
static void bound_processes(unsigned long most)
{
    bound(MYSELF, RLIMIT_NPROC, most);
}

/* Take the next text off `*rest`, none of which reaches beyond `end`. */
static char *next_word(unsigned char **rest, unsigned char *end)
{
    char *word = (char *)*rest;
    while (*rest < end && **rest)
        ++*rest;
    if (*rest >= end)
        refuse(-E2BIG);
    ++*rest;
    return word;
}

/* Read as much of the brief as there is room for. */
static void read_brief(void)
{
    unsigned long size;
    read_all(brief_fd, brief, BRIEF_HEAD);
    size = number_at(brief + 4, 4);
    if (size <= MOST_BYTES - BRIEF_HEAD)
        read_all(brief_fd, brief + BRIEF_HEAD, (long)size);
}

/* Become what the brief says. */
static void become_command(void)
{
    unsigned char *rest = brief + BRIEF_HEAD, *end;
    unsigned long size = number_at(brief + 4, 4), arguments = number_at(brief + 12, 4);
    unsigned long variables = number_at(brief + 16, 4), at, count = 0;
    char *folder;
    long error;

    if (size > MOST_BYTES - BRIEF_HEAD || arguments == 0 || arguments + variables > MOST_WORDS - 2)
        refuse(-E2BIG);
    end = rest + size;
    folder = next_word(&rest, end);
    for (at = 0; at < arguments; at++)
        words[count++] = next_word(&rest, end);
    words[count++] = 0;
    for (at = 0; at < variables; at++)
        words[count++] = next_word(&rest, end);
    words[count] = 0;
    if (number_at(brief + 8, 4) & HAS_INPUT)
        system_call(SYS_DUP3, stdin_fd, 0, 0, 0);
    error = system_call(SYS_CHDIR, (long)folder, 0, 0, 0);
    if (error >= 0)
        error = system_call(SYS_EXECVE, (long)words[0], (long)words, (long)(words + arguments + 1), 0);
    refuse(error);
}

static long started(void)
{
    long command = system_call(SYS_FORK, FORK_ARGUMENT, 0, 0, 0);
    if (command < 0)
        refuse(command);
    return command;
}

/* Start the command when the word comes. */
static long start_at_the_word(void)
{
    long command;
    report('P', 0, 1);
    bound(MYSELF, RLIMIT_FSIZE, await_go(-1));
    read_brief();
    mark_begun();
    command = started();
    if (command == 0)
        become_command();
    return command;
}

/* Make a pipe whose ends have numbers that no program is to find anything at. */
static void pipe_aside(int *ends)
{
    int end;
    if (system_call(SYS_PIPE2, (long)ends, O_CLOEXEC, 0, 0) < 0)
        leave(5);
    for (end = 0; end < 2; end++) {
        long moved = system_call(SYS_FCNTL, ends[end], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY, 0);
        if (moved < 0)
            leave(5);
        system_call(SYS_CLOSE, ends[end], 0, 0, 0);
        ends[end] = (int)moved;
    }
}

static void become_program(char **program, char **variables, int *wake, int *ready)
{
    system_call(SYS_DUP3, wake[0], wake_fd, 0, 0);
    system_call(SYS_DUP3, ready[1], ready_fd, 0, 0);
    close_on_exec(brief_fd, 0);
    close_on_exec(stdin_fd, 0);
    refuse(system_call(SYS_EXECVE, (long)program[0], (long)program, (long)variables, 0));
}

/* Wait until the program is ready, and say so; no longer than until it has something to do. The pipe that it
 * says so through is kept: it would be told, by a signal, that nobody listens. */
static void await_ready(long ready)
{
    struct {
        int fd;
        short events, happened;
    } pipes[2];
    unsigned char said;
    pipes[0].fd = (int)ready;
    pipes[1].fd = (int)go_fd;
    pipes[0].events = pipes[1].events = POLLIN;
    pipes[0].happened = pipes[1].happened = 0;
    while (system_call_of_five(SYS_PPOLL, (long)pipes, 2, 0, 0, 0) == -EINTR)
        ;
    if (pipes[1].happened)
        return;
    read_all(ready, &said, 1);
    report('P', 0, 1);
}

/* Start `program` now, and let it go on when the word comes. */
static long start_ahead(char **program, char **variables)
{
    int wake[2], ready[2];
    long command;
    pipe_aside(wake);
    pipe_aside(ready);
    command = started();
    if (command == 0)
        become_program(program, variables, wake, ready);
    system_call(SYS_CLOSE, wake[0], 0, 0, 0);
    system_call(SYS_CLOSE, ready[1], 0, 0, 0);
    await_ready(ready[0]);
    bound(command, RLIMIT_FSIZE, await_go(wake[1]));
    if (system_call(SYS_WAIT4, command, 0, WNOHANG, 0) != 0)
        leave(6); /* it died while it waited: that is no end of a command, since none has begun */
    mark_begun();
    system_call(SYS_WRITE, wake[1], (long)"W", 1, 0);
    return command;
}

/* Every other process in here descends from this one: if it has no child, there is none. */
static int is_alone(void)
{
    long gone;
    do
        gone = system_call(SYS_WAIT4, -1, 0, WNOHANG, 0);
    while (gone > 0);
    return gone == -ECHILD;
}

static void await_end(long command)
{
    for (;;) {
        int status = 0;
        long gone = system_call(SYS_WAIT4, -1, (long)&status, 0, 0);
        if (gone == command) {
            report_end(status, is_alone());
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

    if (argc < 8)
        leave(2);
    report_fd = (long)number(argv[1]);
    go_fd = (long)number(argv[2]);
    brief_fd = (long)number(argv[3]);
    stdin_fd = (long)number(argv[4]);
    wake_fd = (long)number(argv[5]);
    ready_fd = (long)number(argv[6]);
    system_call(SYS_PRCTL, PR_SET_DUMPABLE, 0, 0, 0);
    system_call(SYS_UMASK, 022, 0, 0, 0); /* as in a shell; the launcher's own is stricter */
    close_on_exec(report_fd, FD_CLOEXEC);
    close_on_exec(go_fd, FD_CLOEXEC);
    close_on_exec(brief_fd, FD_CLOEXEC);
    close_on_exec(stdin_fd, FD_CLOEXEC);
    bound_processes(number(argv[7]));
    await_end(argc > 8 ? start_ahead(argv + 8, argv + argc + 1) : start_at_the_word());
}
