/* Reads the architectures in a fat binary, to find the one that the driver would use. */
#include "fatbin.h"
#include "ghost.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
enum { PTX = 1, CUBIN = 2 };

typedef struct {
    uint32_t magic, version;
    const char *data;
} Wrapper;
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
    uint32_t arch;
} Entry;

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
    while (next + sizeof(Entry) <= end) {
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
