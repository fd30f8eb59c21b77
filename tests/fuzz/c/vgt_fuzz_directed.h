#ifndef VGT_FUZZ_DIRECTED_H
#define VGT_FUZZ_DIRECTED_H

/* Calls in an order that a search rarely finds, after a session's opening and before its input. */
void vgt_directed(int fd);

#endif
