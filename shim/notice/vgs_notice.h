/* The administrator's notice: why this user sees no GPU, said once on stderr where policy is the reason.
 *
 * Policy is the reason if the administrator's marker exists, CUDA_VISIBLE_DEVICES is set and empty, and cuInit answered
 * CUDA_ERROR_NO_DEVICE. Anything else (another code, "-1", no marker) is somebody else's story and stays silent. */
#ifndef VGS_NOTICE_H
#define VGS_NOTICE_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

enum { VGS_NOTICE_TEXT_NBYTES = 2048, VGS_NOTICE_PATH_NBYTES = 512 };

/* What /etc/vgpu/notice.conf says. */
struct vgs_notice_conf {
  char marker[VGS_NOTICE_PATH_NBYTES];
  char message[VGS_NOTICE_TEXT_NBYTES]; /* lines, each ended by '\n' */
  bool exempt;                          /* this process's user sees no notice */
};

/* To be called after each cuInit with what it answered: shows the notice if it is due. It changes nothing the program
 * can see: errno stays, no descriptor stays open, no signal is raised, and it waits for nobody longer than 0.2 s.
 * Any surprise means that nothing is shown, or, where only the session's record is at fault, once in each process.
 * Thread-safe; a forked child does not repeat its parent's. */
void vgs_notice_after_init(CUresult result);

/* The rest is vgs_notice_after_init's own. */

/* Read the configuration; where there is none, the defaults. */
void vgs_notice_conf_read(struct vgs_notice_conf *conf);

/* Copy at most capacity - 1 bytes of a regular file, and a NUL. The number of bytes, or -errno. */
int vgs_notice_file_read(const char *path, char *text, size_t capacity);

/* Whether nobody of this session (getsid(2)) has shown the notice of the marker with this time; remembers that now
 * somebody has. True where that cannot be remembered. */
bool vgs_notice_session_first(const struct timespec *marked);

/* Whether descriptor 2 can be what this process was given as its stderr. */
bool vgs_notice_stderr_usable(void);

/* Write `message` to stderr: framed on a terminal, else as lines that a log can hold. */
void vgs_notice_print(const char *message);

#endif
