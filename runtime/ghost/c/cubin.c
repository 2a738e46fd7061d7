/* Reads the size of a kernel's code from the fat binary that a library registers. Nothing in it is run.

   A fat binary holds one cubin per architecture, usually compressed. A cubin is an ELF file with a section
   `.text.KERNEL` per kernel. Each cubin is unpacked once, and only the figures of its kernels are kept. */
#include "cubin.h"
#include "fatbin.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { LZ4 = 0x2000, ZSTD = 0x8000 };
enum { LARGEST = 1 << 30, SECTION = 64, SYMBOL = 24, MOST_SECTIONS = 1 << 20 };
enum { SIZED = 4, REGISTERS = 0x2f };

typedef struct {
    uint64_t hash;
    Cubin figures;
} Kernel;
typedef struct Read {
    const void *data;
    Kernel *kernels;
    size_t count, room;
    struct Read *next;
} Read;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Read *reads;

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 14695981039346656037ull;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211ull;
    return hash;
}

static Kernel *find(Read *read, uint64_t hash)
{
    for (size_t i = 0; i < read->count; i++)
        if (read->kernels[i].hash == hash)
            return &read->kernels[i];
    return 0;
}

static Kernel *made(Read *read, uint64_t hash)
{
    Kernel *found = find(read, hash);
    if (found)
        return found;
    if (read->count == read->room) {
        size_t room = read->room * 2 + 64;
        Kernel *more = realloc(read->kernels, room * sizeof *more);
        if (!more)
            return 0;
        read->kernels = more, read->room = room;
    }
    read->kernels[read->count] = (Kernel){.hash = hash};
    return &read->kernels[read->count++];
}

/* Each length is checked against what is left: a damaged library must not make us read past its end. */
static int unpack_lz4(const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    const uint8_t *end = from + size;
    uint8_t *out = to, *out_end = to + room;
    while (from < end) {
        size_t token = *from++, length = token >> 4;
        for (int more = length == 15; more;) {
            if (from == end)
                return 0;
            more = *from == 255;
            length += *from++;
        }
        if (length > (size_t)(end - from) || length > (size_t)(out_end - out))
            return 0;
        memcpy(out, from, length);
        out += length, from += length;
        if (from == end)
            return out == out_end;
        if (end - from < 2)
            return 0;
        size_t back = from[0] | from[1] << 8;
        from += 2;
        length = token & 15;
        for (int more = length == 15; more;) {
            if (from == end)
                return 0;
            more = *from == 255;
            length += *from++;
        }
        length += 4;
        if (!back || back > (size_t)(out - to) || length > (size_t)(out_end - out))
            return 0;
        for (; length; length--, out++)
            *out = out[-(ptrdiff_t)back];
    }
    return out == out_end;
}

static int unpack_zstd(const void *from, size_t size, void *to, size_t room)
{
    static size_t (*decompress)(void *, size_t, const void *, size_t);
    static int asked;
    if (!asked) {
        asked = 1;
        void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library)
            *(void **)&decompress = dlsym(library, "ZSTD_decompress");
    }
    return decompress && decompress(to, room, from, size) == room;
}

typedef struct {
    uint32_t name, type;
    uint64_t flags, address, at, size;
    uint32_t link, info;
    uint64_t align, each;
} Section;

static Section section_of(const uint8_t *elf, uint64_t table, uint64_t i)
{
    Section section;
    memcpy(&section, elf + table + i * SECTION, sizeof section);
    return section;
}

typedef struct {
    const uint8_t *bytes;
    size_t size;
    uint64_t table, count;
    Section names;
} Elf;

static int inside(const Elf *elf, const Section *section)
{
    return section->at <= elf->size && section->size <= elf->size - section->at;
}
/* A text that ends within its table, or 0. */
static const char *text_in(const Elf *elf, const Section *table, uint64_t at)
{
    if (at >= table->size || !inside(elf, table) || elf->bytes[table->at + table->size - 1])
        return 0;
    return (const char *)elf->bytes + table->at + at;
}

static int open_elf(Elf *elf)
{
    uint16_t count, names;
    if (elf->size < 64 || memcmp(elf->bytes, "\177ELF\2\1", 6))
        return 0;
    memcpy(&elf->table, elf->bytes + 0x28, 8);
    memcpy(&count, elf->bytes + 0x3c, 2);
    memcpy(&names, elf->bytes + 0x3e, 2);
    if (!elf->table || elf->table > elf->size || elf->size - elf->table < SECTION)
        return 0;
    Section first = section_of(elf->bytes, elf->table, 0);
    uint64_t at = names == 0xffff ? first.link : names;
    elf->count = count ? count : first.size;
    if (elf->count > MOST_SECTIONS || elf->count * SECTION > elf->size - elf->table || at >= elf->count)
        return 0;
    elf->names = section_of(elf->bytes, elf->table, at);
    return inside(elf, &elf->names);
}

static const char *symbol_name(const Elf *elf, const Section *symbols, uint32_t number)
{
    uint32_t at;
    if (!inside(elf, symbols) || (uint64_t)number * SYMBOL + SYMBOL > symbols->size || symbols->link >= elf->count)
        return 0;
    memcpy(&at, elf->bytes + symbols->at + (uint64_t)number * SYMBOL, 4);
    Section names = section_of(elf->bytes, elf->table, symbols->link);
    return text_in(elf, &names, at);
}

/* `.nv.info` is a list of attributes; one that has a size of its own holds a symbol's number and a value. */
static void read_registers(Read *read, const Elf *elf, const Section *info)
{
    if (!inside(elf, info) || info->link >= elf->count)
        return;
    Section symbols = section_of(elf->bytes, elf->table, info->link);
    const uint8_t *next = elf->bytes + info->at, *end = next + info->size;
    while (end - next >= 4) {
        uint8_t format = next[0], attribute = next[1];
        uint16_t size;
        uint32_t pair[2];
        memcpy(&size, next + 2, 2);
        next += 4;
        if (format != SIZED)
            continue;
        if (size > end - next)
            return;
        if (attribute == REGISTERS && size >= sizeof pair) {
            memcpy(pair, next, sizeof pair);
            const char *name = symbol_name(elf, &symbols, pair[0]);
            Kernel *kernel = name ? made(read, hash_of(name)) : 0;
            if (kernel)
                kernel->figures.registers = pair[1];
        }
        next += size;
    }
}

static void read_elf(Read *read, const uint8_t *bytes, size_t size)
{
    Elf elf = {.bytes = bytes, .size = size};
    if (!open_elf(&elf))
        return;
    for (uint64_t i = 0; i < elf.count; i++) {
        Section section = section_of(bytes, elf.table, i);
        const char *name = text_in(&elf, &elf.names, section.name);
        if (!name)
            continue;
        int is_code = !strncmp(name, ".text.", 6), is_shared = !strncmp(name, ".nv.shared.", 11);
        Kernel *kernel = is_code || is_shared ? made(read, hash_of(name + (is_code ? 6 : 11))) : 0;
        if (kernel && is_code)
            kernel->figures.code = (uint32_t)section.size;
        else if (kernel)
            kernel->figures.shared = (uint32_t)section.size;
        else if (!strcmp(name, ".nv.info"))
            read_registers(read, &elf, &section);
    }
}

static void read_entry(Read *read, const Entry *entry)
{
    const uint8_t *content = (const uint8_t *)entry + entry->header_size;
    if (!(entry->flags & (LZ4 | ZSTD))) {
        read_elf(read, content, entry->size);
        return;
    }
    if (entry->unpacked > LARGEST || entry->compressed > entry->size)
        return;
    uint8_t *elf = malloc(entry->unpacked + 1);
    if (elf && (entry->flags & ZSTD ? unpack_zstd(content, entry->compressed, elf, entry->unpacked)
                                    : unpack_lz4(content, entry->compressed, elf, entry->unpacked)))
        read_elf(read, elf, entry->unpacked);
    free(elf);
}

/* The driver takes code of the same major number with the highest minor number that is not above its own. */
static void read_all(Read *read, const char *data, uint32_t arch)
{
    const Header *header = (const Header *)data;
    if (header->magic != FATBIN_MAGIC)
        return;
    const char *begin = data + header->header_size, *end = begin + header->size;
    uint32_t best = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (const char *next = begin; next + sizeof(Entry) <= end;) {
            const Entry *entry = (const Entry *)next;
            uint64_t left = (uint64_t)(end - next);
            if (entry->header_size < sizeof(Entry) || entry->header_size > left || entry->size > left - entry->header_size)
                break;
            if (entry->kind == CUBIN && entry->arch / 10 == arch / 10 && entry->arch <= arch) {
                if (pass && entry->arch == best)
                    read_entry(read, entry);
                else if (!pass && entry->arch > best)
                    best = entry->arch;
            }
            next += entry->header_size + entry->size;
        }
    }
}

int cubin_kernel(const void *data, const char *name, int arch, Cubin *out)
{
    if (!data || !name)
        return 0;
    pthread_mutex_lock(&lock);
    Read *read = reads;
    while (read && read->data != data)
        read = read->next;
    if (!read && (read = calloc(1, sizeof *read))) {
        *read = (Read){.data = data, .next = reads};
        reads = read;
        read_all(read, data, (uint32_t)arch);
    }
    Kernel *kernel = read ? find(read, hash_of(name)) : 0;
    if (kernel)
        *out = kernel->figures;
    pthread_mutex_unlock(&lock);
    return kernel && kernel->figures.code;
}
