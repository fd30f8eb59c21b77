#ifndef VGT_FUZZ_DIRECTED_H
#define VGT_FUZZ_DIRECTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls in an order that a search rarely finds, after a session's opening and before its input. */
void vgt_directed(int fd);

/* Send a record and read its reply, of which at most `room` bytes of the body go to `answer`. False: the call has
 * failed, or the session is over. */
bool vgt_ask(int fd, uint16_t opcode, const void *request, uint32_t nbytes, void *answer, size_t room);
bool vgt_ask_with(int fd, uint16_t opcode, const void *request, uint32_t nbytes, int passed, void *answer, size_t room);

/* Ask with the fields of a request; the function has an array `answer`. */
#define VGT_ASK(fd, name, ...)                                                                                         \
  vgt_ask(fd, VGW_OP_##name, &(struct vgw_req_##name){__VA_ARGS__}, sizeof(struct vgw_req_##name), answer,             \
          sizeof answer)

#endif
