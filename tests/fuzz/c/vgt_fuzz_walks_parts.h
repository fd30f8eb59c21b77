/* The walks by their kind, and what they share. */
#ifndef VGT_FUZZ_WALKS_PARTS_H
#define VGT_FUZZ_WALKS_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VGT_WALK_FIRST_ID = 50000, VGT_WALK_IDS = 1000 };
enum { VGT_FILE_PAGES = 32, VGT_FREE_PAGE = 40 }; /* pages of the window that nobody has mapped */

extern uint32_t vgt_walk_first_id; /* of the objects that a walk makes */

/* A new file of the client's; negative on failure. */
int vgt_walk_file_of(size_t nbytes, bool sealed);

/* Images: vgpud's cache takes one, gives it back, and answers late (vgt_fuzz_desks.c). And the limits of a tenant. */
void vgt_walk_offers(int fd);
void vgt_walk_images(int fd);
void vgt_walk_no_cache(int fd);
void vgt_walk_bulk(int fd);
void vgt_walk_limits(int fd);

/* Graphs. */
void vgt_walk_halves(int fd);
void vgt_walk_moved(int fd);
void vgt_walk_captured(int fd);

enum { VGT_WALK_WRONGS = 13 };

/* Records that end a session, numbered from 0; and a form that is not known, and too many descriptors. */
void vgt_walk_wrong(int fd, uint32_t number);
/* Ask for a tensor map of one dimension; `form`: see vgx_tensor.c. */
void vgt_walk_tensor_map(int fd, uint32_t form);
void vgt_walk_wrong_form(int fd);
void vgt_walk_descriptors(int fd);

#endif
