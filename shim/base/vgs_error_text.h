#ifndef VGS_ERROR_TEXT_H
#define VGS_ERROR_TEXT_H

/* Description of a result code, as NVIDIA's driver and runtime word it: people and programs look for these texts. NULL
 * for a code that has none. */
const char *vgs_error_text(int error);

#endif
