/* The notice's configuration. */
#ifndef VGS_NOTICE_CONF_H
#define VGS_NOTICE_CONF_H

#include <stdbool.h>
#include <stddef.h>

enum { VGS_NOTICE_TEXT_NBYTES = 2048, VGS_NOTICE_PATH_NBYTES = 512 };

/* What /etc/vgpu/notice.conf says. */
struct vgs_notice_conf {
  char marker[VGS_NOTICE_PATH_NBYTES];
  char message[VGS_NOTICE_TEXT_NBYTES]; /* lines, each ended by '\n' */
  bool exempt;                          /* this process's user sees no notice */
};

/* Read the configuration; where there is none, the defaults. */
void vgs_notice_conf_read(struct vgs_notice_conf *conf);

/* Copy at most capacity - 1 bytes of a regular file, and a NUL. The number of bytes, or -errno. */
int vgs_notice_file_read(const char *path, char *text, size_t capacity);

#endif
