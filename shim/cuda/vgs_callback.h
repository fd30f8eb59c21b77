#ifndef VGS_CALLBACK_H
#define VGS_CALLBACK_H

/* Join the service thread, if there is one, and forget callbacks that never came due. The connection is shut down
 * already, so the thread does not wait for it; a callback of the program's that is running is waited for. */
void vgs_callback_fini(void);

#endif
