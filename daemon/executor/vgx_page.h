/* What the client has of the pages of its host memory's copies: a digest of each page (vgx_reserve.c). */
#ifndef VGX_PAGE_H
#define VGX_PAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { VGX_PAGE_NBYTES = 4096 };

/* A digest of a page's contents less that of zeros, which a new page and the client's copy of it have. */
struct vgx_page {
  uint64_t words[2];
};

void vgx_page_init(void); /* before all others; any number of times */

/* Whether the client has these contents of the page. */
bool vgx_page_is(const struct vgx_page *page, const void *contents);

/* The client is sent these contents. */
void vgx_page_set(struct vgx_page *page, const void *contents);

/* The client has written bytes [offset, offset + nbytes) of a mapping with these pages: what it has of the rest of a
 * page is known again when it is sent it. */
void vgx_pages_written(struct vgx_page *pages, uint64_t offset, uint64_t nbytes);

#endif
