/* What the destructor has to undo, set up when the first session opens; and device output, which is the program's own.
 */
#include "vgs_hooks.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_claim.h"
#include "vgs_copiers.h"
#include "vgs_handle.h"
#include "vgs_launch.h"
#include "vgs_range.h"
#include "vgs_reason.h"
#include "vgs_session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_NBYTES = 1 << 16 };

static void end_threads(void) {
  vgs_callback_fini();
  vgs_copiers_fini();
}

static void free_all(void) {
  vgs_range_fini();
  vgs_claim_fini();
  vgs_object_fini();
}

/* What kernels printed goes to the program's own stdout, in its order with what the program printed before this call.
 */
static void take_output(void) {
  static _Thread_local bool taking; /* the call that fetches may be told of more */
  if (taking)
    return;
  char *text = malloc(OUTPUT_NBYTES);
  if (!text)
    return;
  taking = true;
  size_t nbytes;
  do {
    memset(text, 0, OUTPUT_NBYTES);
    nbytes = 0;
    if (!vgs_send_vgpuTakeOutput(OUTPUT_NBYTES, text)) {
      nbytes = OUTPUT_NBYTES;
      while (nbytes && !text[nbytes - 1])
        nbytes--;
      fwrite(text, 1, nbytes, stdout);
    }
  } while (nbytes + 8 > OUTPUT_NBYTES); /* it was full: there may be more */
  fflush(stdout);
  taking = false;
  free(text);
}

void vgs_hooks_set(void) {
  vgs_launch_configure();
  vgs_session_end_hook = end_threads;
  vgs_session_free_hook = free_all;
  vgs_session_output_hook = take_output;
  vgs_session_reason_hook = vgs_reasons_take;
}
