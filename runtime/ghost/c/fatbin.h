/* The architecture of a module's kernels, from the module's registration. */
#ifndef FATBIN_H
#define FATBIN_H
#include <stdint.h>
#define FATBIN_MAGIC 0xba55ed50u
enum { PTX = 1, CUBIN = 2 }; /* kinds of entries */
typedef struct {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
} Header;
typedef struct {
    uint16_t kind, attributes;
    uint32_t header_size;
    uint64_t size;
    uint32_t compressed, options;
    uint16_t minor, major;
    uint32_t arch, name_at, name_size;
    uint64_t flags, zero, unpacked;
} Entry;
const void *fatbin_data(const void *wrapper);
int fatbin_arch(const void *wrapper); /* 90 for code of sm_90 that this GPU would run; 0: not readable */
#endif
