/* Memory and events shared with the tenant's other clients. An interprocess event is not a struct vgs_event: its state
 * changes in other processes, so every call asks the worker. */
#ifndef VGS_IPC_H
#define VGS_IPC_H

#include "vgs_range.h"

/* Whether cuIpcGetMemHandle takes an address of this range. */
bool vgs_ipc_is_capable(const struct vgs_range *range);

/* The event functions for handles of no ordinary event: INVALID_HANDLE if it is not an interprocess event either. */
CUresult vgs_ipc_event_create(CUevent *event, unsigned int flags);
CUresult vgs_ipc_event_destroy(CUevent event);
CUresult vgs_ipc_event_record(CUevent event, CUstream stream, unsigned int flags);
CUresult vgs_ipc_event_wait(CUstream stream, CUevent event, unsigned int flags);
CUresult vgs_ipc_event_query(CUevent event);
CUresult vgs_ipc_event_synchronize(CUevent event);

/* Whether an opened allocation of another client begins at the address. */
bool vgs_ipc_is_opened(CUdeviceptr dptr);

#endif
