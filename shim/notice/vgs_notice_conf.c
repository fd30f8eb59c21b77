/* /etc/vgpu/notice.conf: `key = value` lines, `#` begins a comment line.
 *
 * Names of users are looked up in /etc/passwd alone: the name service would load libraries and ask servers from inside
 * the program. For a user who is absent there (of a directory service), LOGNAME or USER gives the name: hiding a notice
 * from oneself needs no privilege. */
#define _GNU_SOURCE
#include "vgs_notice_conf.h"
#include "vgs_notice.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char default_conf[] = "/etc/vgpu/notice.conf";
static const char default_marker[] = "/etc/vgpu/blocked";
static const char default_message[] = "GPUs are switched off for you on this machine, by its administrator.\n";

int vgs_notice_file_read(const char *path, char *text, size_t capacity) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0)
    return -errno;
  struct stat status;
  size_t used = 0;
  ssize_t got = -1;
  if (!fstat(fd, &status) && S_ISREG(status.st_mode))
    while (used < capacity - 1 && (got = read(fd, text + used, capacity - 1 - used)) > 0)
      used += (size_t)got;
  close(fd);
  text[used] = 0;
  return got < 0 ? -EIO : (int)used;
}

/* The name of a user in /etc/passwd, into a buffer of `capacity` bytes; false if it is absent. */
static bool passwd_name(uid_t uid, char *name, size_t capacity) {
  char line[1024];
  FILE *passwd = fopen("/etc/passwd", "re");
  bool found = false;
  while (passwd && !found && fgets(line, sizeof line, passwd)) {
    char *password = strchr(line, ':'), *number = password ? strchr(password + 1, ':') : NULL, *end;
    if (!number || !isdigit((unsigned char)number[1]) || strtoul(number + 1, &end, 10) != uid || *end != ':')
      continue;
    *password = 0;
    found = (size_t)snprintf(name, capacity, "%s", line) < capacity;
  }
  if (passwd)
    fclose(passwd);
  return found;
}

static const char *environment_name(void) {
  const char *name = secure_getenv("LOGNAME");
  return name && *name ? name : secure_getenv("USER");
}

/* The number of a group in /etc/group; false if it is absent. A number stands for itself. */
static bool group_number(const char *name, gid_t *number) {
  char line[4096], *end;
  size_t nbytes = strlen(name);
  bool found = false;
  if (isdigit((unsigned char)*name)) {
    *number = (gid_t)strtoul(name, &end, 10);
    return !*end;
  }
  FILE *groups = fopen("/etc/group", "re");
  while (groups && !found && fgets(line, sizeof line, groups)) {
    if (strncmp(line, name, nbytes) || line[nbytes] != ':')
      continue;
    const char *password = strchr(line + nbytes + 1, ':');
    found = password && isdigit((unsigned char)password[1]);
    if (found)
      *number = (gid_t)strtoul(password + 1, NULL, 10);
  }
  if (groups)
    fclose(groups);
  return found;
}

/* Whether this process belongs to a group, as its own or as one of its others. */
static bool is_in_group(const char *name) {
  enum { GROUPS = 1024 };
  gid_t number, groups[GROUPS];
  if (!group_number(name, &number))
    return false;
  if (number == getgid() || number == getegid())
    return true;
  int count = getgroups(GROUPS, groups);
  for (int i = 0; i < count; i++)
    if (groups[i] == number)
      return true;
  return false;
}

/* Whether a list of names, numbers and @groups, separated by blanks or commas, contains this process's user. Destroys
 * the list. */
static bool lists_user(char *list) {
  char number[16], name[256] = "";
  snprintf(number, sizeof number, "%u", getuid());
  for (char *rest = list, *entry; (entry = strsep(&rest, " \t,"));) {
    if (!*entry)
      continue;
    if (*entry == '@') {
      if (is_in_group(entry + 1))
        return true;
      continue;
    }
    if (!strcmp(entry, number))
      return true;
    if (isdigit((unsigned char)*entry))
      continue;
    if (!*name && !passwd_name(getuid(), name, sizeof name)) {
      const char *told = environment_name();
      snprintf(name, sizeof name, "%s", told && *told ? told : "?");
    }
    if (!strcmp(entry, name))
      return true;
  }
  return false;
}

/* One line: its key and value without surrounding blanks; false for comments and what has no `=`. */
static bool split(char *line, char **key, char **value) {
  *key = line + strspn(line, " \t");
  char *equals = strchr(line, '=');
  if (**key == '#' || !equals)
    return false;
  *equals = 0;
  *value = equals + 1 + strspn(equals + 1, " \t");
  for (char *end = *key + strlen(*key); end > *key && isspace((unsigned char)end[-1]);)
    *--end = 0;
  for (char *end = *value + strlen(*value); end > *value && isspace((unsigned char)end[-1]);)
    *--end = 0;
  return true;
}

void vgs_notice_conf_read(struct vgs_notice_conf *conf) {
  char text[8192], *rest = text, *key, *value;
  size_t used = 0;
  conf->exempt = false;
  snprintf(conf->marker, sizeof conf->marker, "%s", default_marker);
  const char *path = secure_getenv("VGPU_NOTICE_CONF"), *marker = secure_getenv("VGPU_NOTICE_FILE");
  if (vgs_notice_file_read(path ? path : default_conf, text, sizeof text) > 0)
    for (char *line; (line = strsep(&rest, "\n"));) {
      if (!split(line, &key, &value))
        continue;
      if (!strcmp(key, "marker"))
        snprintf(conf->marker, sizeof conf->marker, "%s", value);
      else if (!strcmp(key, "exempt"))
        conf->exempt = conf->exempt || lists_user(value);
      else if (!strcmp(key, "message") && used < sizeof conf->message) /* one line each */
        used += (size_t)snprintf(conf->message + used, sizeof conf->message - used, "%s\n", value);
    }
  if (!used)
    snprintf(conf->message, sizeof conf->message, "%s", default_message);
  if (marker)
    snprintf(conf->marker, sizeof conf->marker, "%s", marker);
}
