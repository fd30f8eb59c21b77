/* Linked into the extension of tests/fuzz/worker_lines.py: the counts of executed lines (gcov's) of all processes that
 * load it are those of one file, mapped before they are confined. So they need not end in order, or write a file. The
 * linker has put the counts between the two symbols (vgt_shared_counts.ld). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern char vgt_counts_begin[], vgt_counts_end[];

__attribute__((constructor(101))) static void share_counts(void) {
  int fd = open(VGT_COUNTS_FILE, O_RDWR | O_CLOEXEC);
  size_t nbytes = (size_t)(vgt_counts_end - vgt_counts_begin);
  if (fd < 0 || ftruncate(fd, (off_t)nbytes) ||
      mmap(vgt_counts_begin, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
    perror(VGT_COUNTS_FILE);
  if (fd >= 0)
    close(fd);
}

/* gcov's, at the end of a process: only the one that is asked to writes what all have counted. */
void __real___gcov_exit(void);
void __wrap___gcov_exit(void);
void __wrap___gcov_exit(void) {
  if (getenv("VGT_WRITE_COUNTS"))
    __real___gcov_exit();
}
