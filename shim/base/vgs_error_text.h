#ifndef VGS_ERROR_TEXT_H
#define VGS_ERROR_TEXT_H

/* Description of a result code in our own words; NULL for a code that has none. */
const char *vgs_error_text(int error);

#endif
