/* The rules (cases D04, D09, D10): entries are indices or GPU-<prefix of a UUID>, separated by commas. The first entry
 * that names no device ends the list; a device named twice makes it empty. CUDA_DEVICE_ORDER makes no difference: the
 * inventory is in PCI order, and its devices are equally fast. */
#include "vgs_visible.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void format_uuid(const uint8_t uuid[16], char text[41]) {
  static const char digits[] = "0123456789abcdef";
  char *next = text;
  memcpy(next, "GPU-", 4);
  next += 4;
  for (int i = 0; i < 16; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      *next++ = '-';
    *next++ = digits[uuid[i] >> 4];
    *next++ = digits[uuid[i] & 15];
  }
  *next = 0;
}

/* One entry without surrounding blanks: its length, and where the next begins (NULL after the last). */
static size_t next_entry(const char **entry, const char **rest) {
  const char *begin = *rest, *comma = strchr(begin, ',');
  const char *end = comma ? comma : begin + strlen(begin);
  *rest = comma ? comma + 1 : NULL;
  while (begin < end && isspace((unsigned char)*begin))
    begin++;
  while (end > begin && isspace((unsigned char)end[-1]))
    end--;
  *entry = begin;
  return (size_t)(end - begin);
}

/* Parse an index of at most six digits; -1: not an index. */
static int parse_index(const char *entry, size_t nbytes) {
  int index = 0;
  if (!nbytes || nbytes > 6)
    return -1;
  for (size_t i = 0; i < nbytes; i++) {
    if (!isdigit((unsigned char)entry[i]))
      return -1;
    index = index * 10 + (entry[i] - '0');
  }
  return index;
}

static bool is_uuid(const char *entry, size_t nbytes) {
  return nbytes > 4 && nbytes <= 40 && !strncmp(entry, "GPU-", 4);
}

bool vgs_visible_is_empty(const char *list) {
  if (!list)
    return false;
  int seen[VGS_DEVICE_MAX] = {0};
  const char *rest = list, *entry;
  bool empty = true;
  while (rest) {
    size_t nbytes = next_entry(&entry, &rest);
    int index = parse_index(entry, nbytes);
    if (index < 0 && !is_uuid(entry, nbytes))
      return empty;
    empty = false;
    if (index >= 0 && index < VGS_DEVICE_MAX && seen[index]++)
      return true;
    if (index < 0)
      return false; /* only the inventory can tell which device a UUID names */
  }
  return empty;
}

/* The device an entry names, or -1: no such device, or a prefix that fits several. */
static int match(const char *entry, size_t nbytes, const struct vgs_inventory *inventory) {
  int index = parse_index(entry, nbytes), found = -1;
  if (index >= 0)
    return (uint32_t)index < inventory->device_count ? index : -1;
  if (!is_uuid(entry, nbytes))
    return -1;
  for (uint32_t i = 0; i < inventory->device_count; i++) {
    char text[41];
    format_uuid(inventory->devices[i].uuid, text);
    if (strncasecmp(text, entry, nbytes))
      continue;
    if (found >= 0)
      return -1;
    found = (int)i;
  }
  return found;
}

int vgs_visible_select(const char *list, const struct vgs_inventory *inventory, int selected[VGS_DEVICE_MAX]) {
  int count = 0;
  if (!list) {
    for (uint32_t i = 0; i < inventory->device_count; i++)
      selected[count++] = (int)i;
    return count;
  }
  const char *rest = list, *entry;
  while (rest) {
    size_t nbytes = next_entry(&entry, &rest);
    int index = match(entry, nbytes, inventory);
    if (index < 0)
      break;
    for (int i = 0; i < count; i++)
      if (selected[i] == index)
        return 0;
    selected[count++] = index;
  }
  return count;
}
