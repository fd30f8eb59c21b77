#ifndef VGS_HOOKS_H
#define VGS_HOOKS_H

/* Register what happens when the device has printed and when the library ends. Called before the first session opens.
 */
void vgs_hooks_set(void);

#endif
