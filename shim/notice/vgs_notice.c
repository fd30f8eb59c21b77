#define _GNU_SOURCE
#include "vgs_notice.h"
#include "vgs_notice_conf.h"
#include "vgs_notice_print.h"
#include "vgs_notice_session.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int shown; /* by this process, or by the one that forked it */

static bool is_set_and_empty(const char *name) {
  const char *value = getenv(name);
  return value && !*value;
}

static bool variable_is(const char *expected) {
  const char *value = secure_getenv("VGPU_NOTICE");
  return value && !strcmp(value, expected);
}

/* VGPU_NOTICE=why: the user asks why nothing is shown, and reads the reason where the notice would be. */
static void explain(const char *reason) {
  char text[VGS_NOTICE_PATH_NBYTES + 128];
  if (!variable_is("why") || !vgs_notice_stderr_usable())
    return;
  snprintf(text, sizeof text, "(no notice: %s)\n", reason);
  vgs_notice_print(text);
}

static void explain_marker(const char *path) {
  char reason[VGS_NOTICE_PATH_NBYTES + 64];
  snprintf(reason, sizeof reason, "there is no file %s", path);
  explain(reason);
}

static void consider(void) {
  struct vgs_notice_conf conf;
  struct stat marker;
  char text[VGS_NOTICE_TEXT_NBYTES];
  vgs_notice_conf_read(&conf);
  if (conf.exempt) {
    explain("this user is exempt by the notice's configuration");
    return;
  }
  if (stat(conf.marker, &marker) || !S_ISREG(marker.st_mode)) {
    explain_marker(conf.marker);
    return;
  }
  if (!vgs_notice_stderr_usable())
    return;
  if (__atomic_exchange_n(&shown, 1, __ATOMIC_RELAXED) || !vgs_notice_session_first(&marker.st_mtim)) {
    explain("this session has been shown it already");
    return;
  }
  bool says_more = vgs_notice_file_read(conf.marker, text, sizeof text) > 0 && text[strspn(text, " \t\r\n")];
  vgs_notice_print(says_more ? text : conf.message);
}

/* Writing can raise signals that end or stop a program: SIGPIPE, SIGXFSZ (a limit on files' sizes), SIGTTOU (a
 * terminal, from the background). They are blocked meanwhile, and consumed if they were raised. */
static void consider_unharmed(CUresult result, bool is_policy) {
  static const int raised[] = {SIGPIPE, SIGXFSZ, SIGTTOU};
  enum { COUNT = sizeof raised / sizeof raised[0] };
  const struct timespec at_once = {0};
  sigset_t held, before, pending_before, pending;
  sigemptyset(&held);
  for (int i = 0; i < COUNT; i++)
    sigaddset(&held, raised[i]);
  if (pthread_sigmask(SIG_BLOCK, &held, &before))
    return;
  sigpending(&pending_before);
  if (is_policy)
    consider();
  else
    explain(result == CUDA_ERROR_NO_DEVICE ? "CUDA_VISIBLE_DEVICES is not set and empty"
                                           : "cuInit did not answer that there is no device");
  sigpending(&pending);
  for (int i = 0; i < COUNT; i++) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, raised[i]);
    if (sigismember(&pending, raised[i]) && !sigismember(&pending_before, raised[i]))
      sigtimedwait(&one, NULL, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void vgs_notice_after_init(CUresult result) {
  bool asks = variable_is("why");
  if (!asks && (result != CUDA_ERROR_NO_DEVICE || __atomic_load_n(&shown, __ATOMIC_RELAXED)))
    return;
  bool is_policy = result == CUDA_ERROR_NO_DEVICE && is_set_and_empty("CUDA_VISIBLE_DEVICES");
  if ((!is_policy && !asks) || variable_is("0"))
    return;
  int saved = errno, cancel;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* the calls below are cancellation points; cuInit is none */
  consider_unharmed(result, is_policy);
  pthread_setcancelstate(cancel, NULL);
  errno = saved;
}
