/* The driver's log, as programs read it. */
#ifndef VGS_LOGS_H
#define VGS_LOGS_H

/* Add an error's text to the log; callbacks of the program run now, on this thread. */
void vgs_logs_add(const char *text);

void vgs_logs_fini(void);

#endif
