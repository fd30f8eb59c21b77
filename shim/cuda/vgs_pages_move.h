/* Moving pages of the program into a file, so that another process may have them, too. */
#ifndef VGS_PAGES_MOVE_H
#define VGS_PAGES_MOVE_H

#include <stdint.h>

/* Move private pages into a sealed file of their size, in place: no write of another thread is lost, and no other
 * thread sees them half moved. Returns the file, which the caller closes; -EBUSY: other threads run, and the kernel
 * does not let this process hold them back; -EDEADLK: the calling thread runs on these pages; else -errno. */
int vgs_pages_move(uint64_t begin, uint64_t end);

/* Make moved pages private again, so that a child has its own copy. The caller has checked that they are still mapped
 * from the file, and makes sure that nothing else writes to them. */
void vgs_pages_move_back(uint64_t begin, uint64_t end);

#endif
