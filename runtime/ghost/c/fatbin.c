/* Reads the architectures in a fat binary, to find the one that the driver would use. */
#include "fatbin.h"
#include "ghost.h"
#include <stddef.h>

#define WRAPPER_MAGIC 0x466243b1u

typedef struct {
    uint32_t magic, version;
    const char *data;
} Wrapper;

const void *fatbin_data(const void *wrapper) { return ((const Wrapper *)wrapper)->data; }

/* Code for the same major number and at most this minor number runs; else PTX of at most this architecture does. */
int fatbin_arch(const void *at)
{
    const Wrapper *wrapper = at;
    if (!wrapper || wrapper->magic != WRAPPER_MAGIC || !wrapper->data)
        return 0;
    const Header *header = (const Header *)wrapper->data;
    if (header->magic != FATBIN_MAGIC)
        return 0;
    uint32_t own = (uint32_t)(row_quietly(ROW_major) * 10 + row_quietly(ROW_minor)), binary = 0, ptx = 0;
    const char *next = wrapper->data + header->header_size, *end = next + header->size;
    while (next + offsetof(Entry, name_at) <= end) {
        const Entry *entry = (const Entry *)next;
        if (entry->kind == CUBIN && entry->arch / 10 == own / 10 && entry->arch <= own && entry->arch > binary)
            binary = entry->arch;
        if (entry->kind == PTX && entry->arch <= own && entry->arch > ptx)
            ptx = entry->arch;
        if (!entry->header_size)
            break;
        next += entry->header_size + entry->size;
    }
    return (int)(binary ? binary : ptx);
}
