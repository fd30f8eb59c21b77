/* What is kept of a batch of sessions that ends by a signal: its inputs in order, which repeat it, and a report by the
 * process itself. */
#ifndef VGT_FUZZ_EVIDENCE_H
#define VGT_FUZZ_EVIDENCE_H

#include "vgt_fuzz.h"

enum { VGT_BATCH = 100, VGT_SESSIONS = VGT_BATCH + VGT_WALKS_MAX }; /* of one process: without, and with walks */

struct vgt_batch {
  uint64_t seed;
  uint32_t count;
  struct vgt_input inputs[VGT_SESSIONS]; /* the first `count` have begun; in memory that the process's parent shares */
};

/* In the child, before its first session: a signal that ends it first writes to the file at `path` what each thread is
 * doing. `batch` must stay valid. */
void vgt_evidence_init(const char *path, const struct vgt_batch *batch);
/* Crash on purpose, in a thread that is not the first, if VGT_CRASH is the number of the session that begins. */
void vgt_evidence_test(const struct vgt_batch *batch);

/* Append an input to the batch, which has room for it. */
void vgt_batch_add(struct vgt_batch *batch, const struct vgt_input *input);
/* Write a batch to a file, or read one; false: errno says why. */
bool vgt_batch_save(const struct vgt_batch *batch, const char *path);
bool vgt_batch_load(struct vgt_batch *batch, const char *path);

#endif
