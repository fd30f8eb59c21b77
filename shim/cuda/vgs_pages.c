#define _GNU_SOURCE
#include "vgs_pages.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The part of the range that one line of /proc/self/maps describes. False: none. */
static bool read_line(const char *line, uint64_t at, struct vgs_pages *part) {
  unsigned long long low, high, offset, inode;
  unsigned major_number, minor_number;
  char access[8];
  int name = 0;
  if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu %n", &low, &high, access, &offset, &major_number, &minor_number,
             &inode, &name) < 7 ||
      high <= at)
    return false;
  const char *path = line + name;
  *part = (struct vgs_pages){.writable = access[1] == 'w', .map_begin = low, .map_end = high};
  if (low > at || access[0] != 'r')
    part->kind = VGS_PAGES_NONE;
  else if (access[3] == 's') {
    part->kind = VGS_PAGES_FILE;
    part->device = makedev(major_number, minor_number);
    part->inode = inode;
    part->offset = offset + (at - low);
    size_t nbytes = strcspn(path, "\n");
    if (nbytes < sizeof part->path)
      memcpy(part->path, path, nbytes);
  } else
    part->kind = inode ? VGS_PAGES_OTHER : strncmp(path, "[stack", 6) ? VGS_PAGES_PRIVATE : VGS_PAGES_STACK;
  return true;
}

/* Whether the mapping `next` at `at` continues the mapping that begins at `begin`: the same kind, the same file, the
 * next offset. */
static bool continues(const struct vgs_pages *pages, uint64_t begin, const struct vgs_pages *next, uint64_t at) {
  return pages->kind == next->kind && (next->kind == VGS_PAGES_PRIVATE ||
                                       (next->kind == VGS_PAGES_FILE && next->device == pages->device &&
                                        next->inode == pages->inode && next->offset == pages->offset + (at - begin)));
}

void vgs_pages_look(uint64_t begin, uint64_t end, struct vgs_pages *pages) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char *line = NULL;
  size_t room = 0;
  uint64_t at = begin;
  *pages = (struct vgs_pages){.kind = VGS_PAGES_NONE};
  while (maps && at < end && getline(&line, &room, maps) > 0) {
    struct vgs_pages part;
    if (!read_line(line, at, &part))
      continue;
    if (part.kind == VGS_PAGES_NONE)
      break;
    bool writable = part.writable && (at == begin || pages->writable);
    if (at == begin)
      *pages = part;
    else if (!continues(pages, begin, &part, at))
      pages->kind = VGS_PAGES_OTHER;
    pages->writable = writable;
    at = part.map_end;
  }
  free(line);
  if (maps)
    fclose(maps);
  if (at < end)
    pages->kind = VGS_PAGES_NONE;
}

unsigned vgs_pages_mappings(uint64_t begin, uint64_t end, uint64_t *ends, unsigned room) {
  unsigned count = 0;
  for (uint64_t at = begin; at < end; at = ends[count++]) {
    struct vgs_pages pages;
    vgs_pages_look(at, at + VGS_PAGE_NBYTES, &pages);
    if (pages.kind == VGS_PAGES_NONE || count == room)
      return 0;
    ends[count] = pages.map_end < end ? pages.map_end : end;
  }
  return count;
}

static bool is_file(int fd, const struct vgs_pages *pages) {
  struct stat st;
  int mode = fcntl(fd, F_GETFL);
  if (fstat(fd, &st) || st.st_dev != pages->device || st.st_ino != pages->inode || !S_ISREG(st.st_mode) || mode < 0)
    return false;
  return (mode & O_ACCMODE) == O_RDWR || (!pages->writable && (mode & O_ACCMODE) == O_RDONLY);
}

/* The file may have no name any more, but the program often has it open. */
static int find_open(const struct vgs_pages *pages) {
  DIR *folder = opendir("/proc/self/fd");
  int found = -1;
  for (struct dirent *entry; folder && found < 0 && (entry = readdir(folder));) {
    int fd = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(folder) && is_file(fd, pages))
      found = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  }
  if (folder)
    closedir(folder);
  return found;
}

static int open_path(const char *path, const struct vgs_pages *pages) {
  struct stat st; /* opening a device or a pipe may have side effects */
  if (stat(path, &st) || !S_ISREG(st.st_mode))
    return -1;
  int fd = open(path, (pages->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 || is_file(fd, pages))
    return fd;
  close(fd);
  return -1;
}

int vgs_pages_open(const struct vgs_pages *pages) {
  char mapping[64];
  if (pages->kind != VGS_PAGES_FILE)
    return -1;
  int fd = find_open(pages);
  if (fd < 0 && pages->path[0] == '/')
    fd = open_path(pages->path, pages);
  if (fd >= 0)
    return fd;
  /* Only the privileged may follow this link. */
  snprintf(mapping, sizeof mapping, "/proc/self/map_files/%llx-%llx", (unsigned long long)pages->map_begin,
           (unsigned long long)pages->map_end);
  return open_path(mapping, pages);
}
