/* Checks of the cursor (vgw_wire.h). Exits with 0 when all pass. */
#include <stdio.h>
#include <stdlib.h>

#include "vgw_wire.h"

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%d: %s\n", __LINE__, #condition);                                                               \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static uint8_t bytes[64], more[64];

static struct vgw_cursor over(size_t nbytes) { return (struct vgw_cursor){.cur = bytes, .end = bytes + nbytes}; }

int main(void) {
  struct vgw_cursor c = over(24);
  CHECK(vgw_take(&c, 8) == bytes && vgw_take(&c, 5) == bytes + 8 && vgw_take(&c, 8) == bytes + 16);
  CHECK(vgw_take(&c, 0) == bytes + 24 && !c.fatal && c.cur == c.end);
  CHECK(!vgw_take(&c, 1) && c.fatal);

  /* A take that does not fit returns NULL, and so does every later take. */
  const uint64_t wrong[] = {25, 32, 1ull << 31, 1ull << 32, UINT64_MAX - 7, UINT64_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    c = over(24);
    CHECK(!vgw_take(&c, wrong[i]) && c.fatal && c.cur == bytes);
    CHECK(!vgw_take(&c, 0) && !vgw_take(&c, 8));
  }

  /* A record's last part may lack its padding. */
  c = over(21);
  CHECK(vgw_take(&c, 16) == bytes && vgw_take(&c, 5) == bytes + 16 && c.cur == c.end);

  /* Takes move to the second piece only when the first one is used up exactly. */
  c = over(16);
  c.more = more;
  c.more_end = more + 8;
  CHECK(!vgw_take(&c, 17));
  c = over(16);
  c.more = more;
  c.more_end = more + 8;
  CHECK(vgw_take(&c, 16) == bytes && vgw_take(&c, 8) == more && !vgw_take(&c, 1));
  c = over(16);
  c.more = more;
  c.more_end = more + 8;
  CHECK(vgw_take(&c, 8) == bytes && vgw_take(&c, 8) == bytes + 8 && !vgw_take(&c, 9));
  return 0;
}
