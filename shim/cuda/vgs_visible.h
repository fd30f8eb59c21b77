/* CUDA_VISIBLE_DEVICES. */
#ifndef VGS_VISIBLE_H
#define VGS_VISIBLE_H

#include "vgs_inventory.h"
#include <stdbool.h>

/* Whether the list shows nothing whatever the devices are: it is empty, or its first entry is -1 or makes no sense, or
 * an index is given twice. NULL (not set) shows everything. */
bool vgs_visible_is_empty(const char *list);

/* Inventory indices in the order the program sees them. Returns their number, 0 to VGS_DEVICE_MAX. */
int vgs_visible_select(const char *list, const struct vgs_inventory *inventory, int selected[VGS_DEVICE_MAX]);

#endif
