/* Generated tables: error names, and which device attribute fills which bytes of cudaDeviceProp. */
#ifndef VGS_RT_TABLES_H
#define VGS_RT_TABLES_H

#include <stddef.h>
#include <stdint.h>

struct vgs_rt_property {
  uint16_t offset;
  uint16_t nbytes; /* 4 or 8 */
  uint16_t attribute;
};

struct vgs_rt_property_layout {
  size_t nbytes, uuid, total_memory; /* the struct's size; offsets */
  size_t count;
  const struct vgs_rt_property *properties;
};

/* This major's layout; and that of 11, which library 12 also serves under the old name. */
extern const struct vgs_rt_property_layout vgs_rt_properties_current, vgs_rt_properties_old;

struct vgs_rt_error_entry {
  int code;
  const char *name;
  const char *text; /* NULL: the driver has the same code; its text is used */
};

extern const struct vgs_rt_error_entry vgs_rt_errors[];
extern const size_t vgs_rt_error_count;

#endif
