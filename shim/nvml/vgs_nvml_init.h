/* The library's devices and the snapshot, between nvmlInit and nvmlShutdown. */
#ifndef VGS_NVML_INIT_H
#define VGS_NVML_INIT_H

#include "vgs_nvml.h"

/* Between enter (0, or UNINITIALIZED) and leave, the devices and the snapshot stay valid. Nests in no other lock. */
nvmlReturn_t vgs_nvml_enter(void);
void vgs_nvml_leave(void);

/* Everything below: only between enter and leave. */

/* Answer from the snapshot, else from vgpud. The result of a reply is NVML's; GPU_IS_LOST when vgpud does not answer.
 */
void vgs_nvml_ask(const struct vgs_nvml_question *question, struct vgs_nvml_reply *reply);
/* Look a question up in the snapshot without asking vgpud. Returns the result stored there, SUCCESS if there is none.
 * An argument count of UINT32_MAX matches an entry with any arguments. */
nvmlReturn_t vgs_nvml_known(const struct vgs_nvml_question *question);
void vgs_nvml_reply_fini(struct vgs_nvml_reply *reply);

struct vgs_device;
uint32_t vgs_nvml_device_count(void);
const struct vgs_device *vgs_nvml_device(uint32_t index);

/* Handles are addresses that are never dereferenced. vgs_nvml_index: the index of a handle, or -1. */
nvmlDevice_t vgs_nvml_handle(uint32_t index);
int vgs_nvml_index(nvmlDevice_t handle);

#endif
