#include "vgs_stub.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char devices_directory[] = "/sys/bus/pci/devices";

bool vgs_pci_begins(int devices, const char *name, const char *file, const char *text) {
  char path[300], found[16];
  if (snprintf(path, sizeof path, "%s/%s", name, file) >= (int)sizeof path)
    return false;
  int fd = openat(devices, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  ssize_t nbytes = read(fd, found, sizeof found - 1);
  close(fd);
  found[nbytes > 0 ? nbytes : 0] = 0;
  return !strncmp(found, text, strlen(text));
}

static bool is_address(const char *name) {
  unsigned domain, bus, device, function;
  int end = -1;
  return strlen(name) == 12 && sscanf(name, "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) == 4 &&
         end == 12;
}

static bool is_stub(int devices, const char *address) {
  char driver[64];
  snprintf(driver, sizeof driver, "%.12s/driver", address);
  return vgs_pci_begins(devices, address, "vendor", "0x10de") && vgs_pci_begins(devices, address, "class", "0x03") &&
         faccessat(devices, driver, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int by_address(const void *a, const void *b) { return strcmp(a, b); }

uint32_t vgs_stub_find(char addresses[VGS_STUB_MAX][VGS_STUB_ADDRESS_NBYTES]) {
  int directory = open(devices_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *devices = directory < 0 ? NULL : fdopendir(directory);
  uint32_t count = 0;
  if (!devices) {
    if (directory >= 0)
      close(directory);
    return 0;
  }
  struct dirent *entry;
  while (count < VGS_STUB_MAX && (entry = readdir(devices)))
    if (is_address(entry->d_name) && is_stub(directory, entry->d_name))
      memcpy(addresses[count++], entry->d_name, 13);
  closedir(devices);
  qsort(addresses, count, VGS_STUB_ADDRESS_NBYTES, by_address); /* equal width, so text order is address order */
  return count;
}
