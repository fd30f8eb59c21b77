/* The notice on stderr. */
#ifndef VGS_NOTICE_PRINT_H
#define VGS_NOTICE_PRINT_H

#include <stdbool.h>

/* Whether descriptor 2 can be the stderr that this process inherited. */
bool vgs_notice_stderr_usable(void);

/* Write `message` to stderr: framed on a terminal, else as lines that a log can hold. */
void vgs_notice_print(const char *message);

#endif
