/* One call, encoded for the wire: what the parts of the channel pass to each other. */
#ifndef VGS_CALL_H
#define VGS_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* A thread-local variable that several files use. Hidden visibility lets the compiler compute the address of the
 * thread's TLS block once for all of them. */
#define VGS_THREAD_LOCAL _Thread_local __attribute__((visibility("hidden")))

/* An object that orders calls: see vgs_order.h. */
struct vgs_touched {
  uint16_t kind;
  uint32_t id;
};

struct vgs_call {
  const void *fixed; /* fixed fields as laid out in vgw_records.h */
  uint32_t fixed_nbytes;
  struct iovec parts[4]; /* variable parts, in order; padding is added here */
  uint32_t part_count;
  uint16_t opcode;
  int fd;         /* passed along, or -1 */
  bool on_socket; /* never in a ring */
  uint32_t touched_count;
  struct vgs_touched touched[2];
  bool creates; /* what it touches: there is no work in that yet */
  bool settled; /* a waiting call that leaves no work in the streams it touches */
  bool wait;    /* wait for the reply; only then are the members below used */
  void *reply_fixed;
  uint32_t reply_fixed_nbytes; /* exact */
  void *reply_part;
  uint64_t reply_part_capacity;
  uint64_t reply_part_nbytes; /* out: bytes written, at most the capacity */
};

/* How many calls of a long transfer are sent before the first reply is waited for (vgs_session_call_all). */
enum { VGS_AHEAD = 32 };

/* The calling thread's current context, by its id on the wire; 0 for none. Kept by shim/cuda. */
extern VGS_THREAD_LOCAL uint32_t vgs_thread_context_id;

/* The thread runs host functions, for which streams wait in the worker: its queued calls never wait for their replies.
 */
extern VGS_THREAD_LOCAL bool vgs_thread_serves;

/* The number that a profiler gave the exported call this thread is inside: its records carry it (VGW_CORRELATED). 0:
 * none. Kept by shim/cuda. */
extern VGS_THREAD_LOCAL uint64_t vgs_thread_correlation;

#endif
