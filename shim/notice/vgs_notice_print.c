/* The notice on stderr. It must never be what stops a program: the write does not wait for a full pipe or a stopped
 * terminal (0.1 s at most). The caller has blocked the signals that the write can raise. */
#define _GNU_SOURCE
#include "vgs_notice_print.h"
#include "vgs_notice.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUTPUT_NBYTES = 4096, PATIENCE_MS = 100 }; /* 4096: PIPE_BUF, what a pipe takes whole or not at all */

struct output {
  char text[OUTPUT_NBYTES];
  size_t used;
};

struct style {
  bool framed, utf8, coloured;
};

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

/* Taken from the environment, as the program may not have called setlocale. */
static bool speaks_utf8(void) {
  static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  const char *locale = NULL;
  for (int i = 0; i < 3 && !locale; i++)
    locale = variable(names[i]);
  return locale && (strcasestr(locale, "UTF-8") || strcasestr(locale, "UTF8"));
}

static struct style choose_style(void) {
  const char *terminal = variable("TERM");
  struct style style = {.framed = isatty(STDERR_FILENO), .utf8 = speaks_utf8()};
  style.coloured = style.framed && terminal && strcmp(terminal, "dumb") && !variable("NO_COLOR");
  return style;
}

static void put(struct output *output, const char *text) {
  size_t nbytes = strlen(text);
  if (nbytes > sizeof output->text - output->used)
    return;
  memcpy(output->text + output->used, text, nbytes);
  output->used += nbytes;
}

/* Text of the administrator's, without what would steer a terminal: one '?' for each character that cannot be shown. */
static void put_clean(struct output *output, const char *text, size_t nbytes, bool utf8) {
  bool dropping = true; /* the rest of a character that is not shown */
  for (size_t i = 0; i < nbytes; i++) {
    unsigned char byte = (unsigned char)text[i], next = i + 1 < nbytes ? (unsigned char)text[i + 1] : 0;
    bool begins = byte < 0x80 || byte >= 0xc0, control = iscntrl(byte) || (byte == 0xc2 && next < 0xa0);
    char shown[2] = {byte == '\t' ? ' ' : (char)byte, 0};
    if (begins)
      dropping = byte != '\t' && (control || (byte >= 0x80 && !utf8));
    if (begins && dropping)
      shown[0] = '?';
    if (begins || !dropping)
      put(output, shown);
  }
}

static void put_rule(struct output *output, const struct style *style, bool top) {
  put(output, style->coloured ? "\033[1;33m" : "");
  if (style->utf8)
    put(output, top ? "\u250c\u2500 GPU access "
                    : "\u2514\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500\u2500");
  else
    put(output, top ? "+- GPU access " : "+-------------");
  for (int i = 0; i < 50; i++)
    put(output, style->utf8 ? "\u2500" : "-");
  put(output, style->coloured ? "\033[0m\n" : "\n");
}

static void put_line(struct output *output, const struct style *style, const char *line, size_t nbytes) {
  if (style->coloured)
    put(output, style->utf8 ? "\033[1;33m\u2502\033[0m " : "\033[1;33m|\033[0m ");
  else if (style->framed)
    put(output, style->utf8 ? "\u2502 " : "| ");
  else
    put(output, "GPU access: ");
  put_clean(output, line, nbytes, style->utf8);
  put(output, "\n");
}

static void compose(struct output *output, const char *message) {
  struct style style = choose_style();
  if (style.framed)
    put_rule(output, &style, true);
  while (*message && output->used < sizeof output->text - 512) { /* room for the lower rule */
    size_t nbytes = strcspn(message, "\r\n");
    put_line(output, &style, message, nbytes);
    message += nbytes;
    message += strspn(message, "\r");
    message += *message == '\n';
  }
  if (style.framed)
    put_rule(output, &style, false);
}

/* A descriptor 2 that closes at exec was not inherited: a program that closed its stderr has opened it for itself. */
bool vgs_notice_stderr_usable(void) {
  int of_descriptor = fcntl(STDERR_FILENO, F_GETFD), of_file = fcntl(STDERR_FILENO, F_GETFL);
  return of_descriptor >= 0 && !(of_descriptor & FD_CLOEXEC) && of_file >= 0 && (of_file & O_ACCMODE) != O_RDONLY;
}

/* A non-blocking descriptor that leaves the program's own unchanged: stderr opened again if it is a pipe or a terminal.
 * -1: not possible. */
static int open_nonblocking(mode_t mode) {
  if (!S_ISFIFO(mode) && !S_ISCHR(mode))
    return STDERR_FILENO; /* a file does not block, and opened again it has another offset; a socket is sent to */
  int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0 || (errno != EACCES && errno != ENOENT)) /* ENXIO: nobody reads the pipe */
    return fd;
  struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
  return poll(&room, 1, PATIENCE_MS) == 1 && (room.revents & POLLOUT) ? STDERR_FILENO : -1;
}

static void send_all(const struct output *output) {
  struct stat status;
  if (fstat(STDERR_FILENO, &status))
    return;
  int fd = open_nonblocking(status.st_mode);
  size_t sent = 0;
  for (bool waited = false; fd >= 0 && sent < output->used;) {
    const char *rest = output->text + sent;
    size_t nbytes = output->used - sent;
    ssize_t done =
        S_ISSOCK(status.st_mode) ? send(fd, rest, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT) : write(fd, rest, nbytes);
    if (done > 0) {
      sent += (size_t)done;
      continue;
    }
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (!done || errno != EAGAIN || waited || poll(&room, 1, PATIENCE_MS) != 1)
      break;
    waited = true;
  }
  if (fd >= 0 && fd != STDERR_FILENO)
    close(fd);
}

void vgs_notice_print(const char *message) {
  struct output output = {.used = 0};
  compose(&output, message);
  send_all(&output);
}
