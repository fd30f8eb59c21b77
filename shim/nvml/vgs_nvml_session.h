/* The control connection as NVML uses it: one hello, one snapshot, then questions. */
#ifndef VGS_NVML_SESSION_H
#define VGS_NVML_SESSION_H

#include "vgs_hello.h"
#include "vgs_nvml.h"

/* One answer of the snapshot. */
struct vgs_nvml_entry {
  uint32_t function;
  int32_t device;
  int32_t count; /* of arguments; -1: the answer is for any arguments */
  int64_t arguments[VGS_NVML_ARGUMENT_MAX];
  nvmlReturn_t result;
  const uint8_t *value; /* in `body` */
  uint32_t value_nbytes;
};

struct vgs_nvml_session {
  int fd; /* -1 while there is no connection */
  struct vgs_inventory inventory;
  uint8_t *body;
  struct vgs_nvml_entry *entries;
  uint32_t entry_count;
};

/* Connect, say hello, fetch the snapshot. 0, DRIVER_NOT_LOADED when no vgpud is configured or reachable,
 * LIB_RM_VERSION_MISMATCH when it speaks another version, or the NVML code for a refusal. On failure nothing stays
 * open. */
nvmlReturn_t vgs_nvml_session_open(struct vgs_nvml_session *session);
void vgs_nvml_session_close(struct vgs_nvml_session *session);

/* The snapshot's entry that answers the question, or NULL. */
const struct vgs_nvml_entry *vgs_nvml_session_find(const struct vgs_nvml_session *session,
                                                   const struct vgs_nvml_question *question);

/* Ask over the connection. False: it broke, and is closed. */
bool vgs_nvml_session_ask(struct vgs_nvml_session *session, const struct vgs_nvml_question *question,
                          struct vgs_nvml_reply *reply);

#endif
