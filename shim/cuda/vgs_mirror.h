/* Managed variables of a driver that places them in the worker's memory: this process has a copy of each at the same
 * address. The copy is sent to the device before a launch and fetched after a synchronisation, which is what CUDA
 * promises for a device without concurrent managed access.
 * Host memory on a channel without shared memory is mirrored by the same calls (vgs_host_mirror.h). */
#ifndef VGS_MIRROR_H
#define VGS_MIRROR_H

#include "vgs_objects.h"

/* Mirror a library's variable on the entered context's device from now on (VGS_MIRRORING); does nothing if it is
 * mirrored already. OUT_OF_MEMORY: the program uses its address. */
CUresult vgs_mirror_add(uint64_t address, uint64_t nbytes, uint32_t library);

/* Called before a library is unloaded: its variables are no longer mirrored. */
void vgs_mirror_remove(uint32_t library);

/* Called before a launch in a stream, where memory of either kind is mirrored (VGS_MIRRORING): bring the program's
 * changes to the device. `submitted` is called once the launch has been sent, and does nothing without a flush by this
 * thread before. */
CUresult vgs_mirror_flush(uint32_t stream);
CUresult vgs_mirror_flush_host(void); /* host memory alone: also in a capture */
void vgs_mirror_submitted(void);

/* vgs_wait_stream and vgs_wait_context, with the program's changes brought to the device before and the kernels'
 * fetched afterwards. */
CUresult vgs_mirror_wait_stream(uint32_t stream);
CUresult vgs_mirror_wait_context(void);

/* The two halves for other waits. `after`: the wait's result is passed on. */
CUresult vgs_mirror_before_wait(void);
CUresult vgs_mirror_after(CUresult waited, uint32_t stream);

/* The same for an event; `entry`: what vgs_event_entry said before the wait. */
CUresult vgs_mirror_after_event(CUresult waited, struct vgs_event *event, uint64_t entry);

/* Called before a stream becomes part of a capture, in which nothing can be read. What the program has changed, and is
 * perhaps still on its way in the stream, is read behind it in another one then; where the tenant may have none, this
 * waits for the stream, and fetches. */
CUresult vgs_mirror_before_capture(const struct vgs_stream *stream);

/* Called before a copy or fill reads or writes the program's memory at [address, address + nbytes): if that is
 * mirrored, wait for the stream and fetch what its kernels have changed. */
CUresult vgs_mirror_before_copy(uint64_t address, uint64_t nbytes, uint32_t stream);

void vgs_mirror_fini(void);

#endif
