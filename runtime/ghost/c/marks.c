/* Which bytes of device memory are real: they hold what a GPU would hold. Held bytes were real, and host code of
 * which nothing is known may have changed them since. All others are unreal.
 *
 * Each layer cuts a device's address range into chunks of 2 MiB: without, whole, or with a sorted list of ranges. */
#include "ghost.h"

#define CHUNK GRANULE

typedef struct {
    uint32_t from, to;
} Range;
typedef struct {
    uint32_t count, room;
    Range at[];
} Ranges;

static Ranges whole;
static Ranges **tables[2][MAX_DEVICES];

static Ranges **slot_of(enum Layer layer, uint64_t at, int make)
{
    int device = device_of((void *)at);
    if (device < 0)
        return 0;
    Ranges ***table_of = &tables[layer][device];
    if (!*table_of) {
        if (!make)
            return 0;
        size_t bytes = DEVICE_SPAN / CHUNK * sizeof(Ranges *);
        void *table = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (table == MAP_FAILED)
            return 0;
        *table_of = table;
    }
    return *table_of + (at - DEVICE_BASE - DEVICE_SPAN * (uint64_t)device) / CHUNK;
}

static void drop(Ranges **slot)
{
    if (*slot != &whole)
        free(*slot);
    *slot = 0;
}

static Ranges *with_room(Ranges *ranges, uint32_t count)
{
    if (ranges && ranges->room >= count)
        return ranges;
    uint32_t room = count * 2 + 2;
    Ranges *grown = realloc(ranges, sizeof *grown + room * sizeof(Range));
    if (!grown)
        abort();
    if (!ranges)
        grown->count = 0;
    grown->room = room;
    return grown;
}

/* The first range that ends after `at`, or at it too where `touching`. */
static uint32_t first_after(const Ranges *ranges, uint32_t at, int touching)
{
    uint32_t low = 0, high = ranges->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2, to = ranges->at[middle].to;
        if (to > at || (touching && to == at))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void set_in_chunk(Ranges **slot, uint32_t from, uint32_t to, int real)
{
    if (from == 0 && to == CHUNK) {
        drop(slot);
        *slot = real ? &whole : 0;
        return;
    }
    if (*slot == (real ? &whole : 0))
        return;
    if (*slot == &whole) {
        *slot = with_room(0, 2);
        (*slot)->count = 1;
        (*slot)->at[0] = (Range){0, CHUNK};
    }
    Ranges *ranges = with_room(*slot, *slot ? (*slot)->count + 1 : 1);
    *slot = ranges;
    uint32_t low = first_after(ranges, from, real), high = low;
    while (high < ranges->count && (ranges->at[high].from < to || (real && ranges->at[high].from == to)))
        high++;
    Range pieces[2];
    uint32_t made = 0;
    uint32_t begin = low < high && ranges->at[low].from < from ? ranges->at[low].from : from;
    uint32_t end = low < high && ranges->at[high - 1].to > to ? ranges->at[high - 1].to : to;
    if (real)
        pieces[made++] = (Range){begin, end};
    else {
        if (begin < from)
            pieces[made++] = (Range){begin, from};
        if (end > to)
            pieces[made++] = (Range){to, end};
    }
    memmove(ranges->at + low + made, ranges->at + high, (ranges->count - high) * sizeof(Range));
    memcpy(ranges->at + low, pieces, made * sizeof(Range));
    ranges->count = ranges->count - (high - low) + made;
    if (!ranges->count)
        drop(slot);
    else if (ranges->count == 1 && ranges->at[0].from == 0 && ranges->at[0].to == CHUNK) {
        drop(slot);
        *slot = &whole;
    }
}

static void mark_in(enum Layer layer, const void *start, size_t size, int real)
{
    uint64_t at = (uint64_t)start, end = at + size;
    while (at < end) {
        uint64_t stop = (at / CHUNK + 1) * CHUNK;
        Ranges **slot = slot_of(layer, at, real);
        if (slot && (real || *slot))
            set_in_chunk(slot, (uint32_t)(at % CHUNK), (uint32_t)((stop < end ? stop : end) - (stop - CHUNK)), real);
        at = stop;
    }
}

void mark_range(const void *start, size_t size, enum Mark mark)
{
    mark_in(REAL_BYTES, start, size, mark == REAL);
    if (mark != DOUBTED)
        mark_in(HELD_BYTES, start, size, mark != UNREAL);
}

int next_in(enum Layer layer, uint64_t *from, uint64_t end, uint64_t *to)
{
    uint64_t at = *from;
    while (at < end) {
        uint64_t base = at / CHUNK * CHUNK;
        Ranges **slot = slot_of(layer, at, 0), *ranges = slot ? *slot : 0;
        if (ranges == &whole) {
            *from = at;
            *to = base + CHUNK < end ? base + CHUNK : end;
            return 1;
        }
        uint32_t index = ranges ? first_after(ranges, (uint32_t)(at - base), 0) : 0;
        if (ranges && index < ranges->count) {
            uint64_t begin = base + ranges->at[index].from, stop = base + ranges->at[index].to;
            *from = begin > at ? begin : at;
            *to = stop < end ? stop : end;
            return *from < end;
        }
        at = base + CHUNK;
    }
    return 0;
}

int all_in(enum Layer layer, const void *start, size_t size)
{
    uint64_t at = (uint64_t)start, end = at + size, to;
    while (at < end) {
        uint64_t from = at;
        if (!next_in(layer, &from, end, &to) || from != at)
            return 0;
        at = to;
    }
    return 1;
}
