/* The notice is shown once in a session. A library cannot inform its parent process, so a file in the user's runtime
 * directory has a line for each session that has seen the notice. The file never exceeds 4 KiB: old lines are removed.
 *
 * A session is what setsid(2) creates: a login shell, a service, a job. Session numbers are reused, so a line also
 * contains the leader's start time and the boot id, and the marker's time, so that a renewed marker is shown again.
 * The start time has a resolution of 10 ms: two PID namespaces whose first processes start within one tick count as one
 * session. */
#define _GNU_SOURCE
#include "vgs_notice_session.h"
#include "vgs_notice.h"
#include "vgs_notice_conf.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD_NBYTES = 4096, LINE_NBYTES = 128, LOCK_TRIES = 50, ANCESTORS = 1000 };

/* The facts about a process in /proc. */
struct process {
  int pid, parent, session;
  unsigned long long start; /* ticks since boot */
};

/* False if the process has ended or is hidden; then `found` is unchanged. */
static bool read_process(const char *name, struct process *found) {
  char path[32], text[1024];
  struct process read;
  snprintf(path, sizeof path, "/proc/%s/stat", name);
  if (vgs_notice_file_read(path, text, sizeof text) <= 0)
    return false;
  const char *field = strrchr(text, ')'); /* the end of field 2, which may hold blanks */
  if (!field || sscanf(text, "%d", &read.pid) != 1 ||
      sscanf(field, ") %*c %d %*d %d", &read.parent, &read.session) != 2)
    return false;
  for (int i = 2; field && i < 22; i++)
    field = strchr(field + 1, ' ');
  read.start = field ? strtoull(field + 1, NULL, 10) : 0;
  *found = read;
  return true;
}

static bool read_process_number(int pid, struct process *found) {
  char name[16];
  snprintf(name, sizeof name, "%d", pid);
  return read_process(name, found);
}

/* The leader of this process's session. A session that was created outside this PID namespace (unshare --pid, nsenter,
 * a job's sandbox) has the number 0 here; its leader is then taken to be the oldest ancestor inside the namespace. All
 * numbers are those of the namespace of /proc: if that is an outer one, it shows the real session. */
static bool find_leader(struct process *leader) {
  struct process parent;
  if (!read_process("self", leader)) {
    *leader = (struct process){.session = getsid(0)};
    leader->pid = leader->session;
    return leader->session > 0;
  }
  if (leader->session > 0) {
    int session = leader->session;
    if (!read_process_number(session, leader))
      *leader = (struct process){.pid = session};
    return true;
  }
  for (int i = 0; i < ANCESTORS && leader->parent > 0; i++) {
    if (!read_process_number(leader->parent, &parent) || parent.session != 0)
      break;
    *leader = parent;
  }
  return true;
}

/* The session's line, with its '\n'; 0 if this process cannot tell its session (no /proc, another PID namespace's). */
static size_t session_line(char line[LINE_NBYTES], const struct timespec *marked) {
  char boot[64] = "";
  struct process leader;
  if (!find_leader(&leader))
    return 0;
  vgs_notice_file_read("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  int used = snprintf(line, LINE_NBYTES, "%.36s %d %llu %lld.%09ld\n", boot, leader.pid, leader.start,
                      (long long)marked->tv_sec, marked->tv_nsec);
  return (size_t)used;
}

static bool is_my_directory(const char *path) {
  struct stat status;
  return *path == '/' && !stat(path, &status) && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

/* A file that only this user can write, or -1. In /tmp another user may have created anything under this name. */
static int open_record(const char *path) {
  struct stat status;
  int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
  if (fd >= 0 && (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid())) {
    close(fd);
    return -1;
  }
  return fd;
}

static int find_record(void) {
  char path[VGS_NOTICE_PATH_NBYTES], directory[VGS_NOTICE_PATH_NBYTES - 16];
  const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
  snprintf(directory, sizeof directory, "/run/user/%u", geteuid());
  if (runtime && strlen(runtime) < sizeof directory && is_my_directory(runtime))
    snprintf(directory, sizeof directory, "%s", runtime);
  int fd = -1;
  if (is_my_directory(directory)) {
    snprintf(path, sizeof path, "%s/vgpu-notice", directory);
    fd = open_record(path);
  }
  if (fd >= 0)
    return fd;
  snprintf(path, sizeof path, "/tmp/vgpu-notice-%u", geteuid());
  return open_record(path);
}

static bool lock(int fd) {
  const struct timespec pause = {.tv_nsec = 2000000};
  for (int i = 0; i < LOCK_TRIES; i++) {
    if (!flock(fd, LOCK_EX | LOCK_NB))
      return true;
    nanosleep(&pause, NULL);
  }
  return false;
}

/* Whether the line is new; then it is written. Needs the lock. */
static bool add_line(int fd, const char *line, size_t nbytes) {
  char text[RECORD_NBYTES + LINE_NBYTES];
  ssize_t got = pread(fd, text, RECORD_NBYTES, 0);
  size_t used = got < 0 ? 0 : (size_t)got;
  while (used && text[used - 1] != '\n') /* an existing file was longer */
    used--;
  text[used] = 0;
  const char *found = strstr(text, line);
  if (found && (found == text || found[-1] == '\n'))
    return false;
  if (used + nbytes > RECORD_NBYTES) { /* the younger half stays */
    const char *kept = strchr(text + used / 2, '\n');
    size_t dropped = kept ? (size_t)(kept + 1 - text) : used;
    used -= dropped;
    memmove(text, text + dropped, used);
  }
  memcpy(text + used, line, nbytes);
  used += nbytes;
  if (pwrite(fd, text, used, 0) == (ssize_t)used && ftruncate(fd, (off_t)used))
    errno = 0; /* too long a file: the next one reads its first 4 KiB */
  return true;
}

bool vgs_notice_session_first(const struct timespec *marked) {
  char line[LINE_NBYTES];
  size_t nbytes = session_line(line, marked);
  int fd = nbytes && nbytes < sizeof line ? find_record() : -1;
  if (fd < 0)
    return true;
  bool first = !lock(fd) || add_line(fd, line, nbytes);
  flock(fd, LOCK_UN); /* close would not unlock: a child that another thread forked meanwhile has the file open */
  close(fd);
  return first;
}
