/* CUDA_VISIBLE_DEVICES. */
#ifndef VGS_VISIBLE_H
#define VGS_VISIBLE_H

#include "vgs_inventory.h"
#include <stdbool.h>

/* Whether the list hides every possible device: it is empty, its first entry is -1 or invalid, or an index occurs
 * twice. NULL (not set) shows everything. */
bool vgs_visible_is_empty(const char *list);

/* Inventory indices in the order the program sees them. Returns their number, 0 to VGS_DEVICE_MAX. */
int vgs_visible_select(const char *list, const struct vgs_inventory *inventory, int selected[VGS_DEVICE_MAX]);

#endif
