/* Reports what differs from a real GPU, and the counts. runtime/ghost/inside receives the reports. */
#include "ghost.h"

typedef void (*Listener)(int kind, const char *name, const void *at, size_t bytes);

unsigned ghost_generation = 1; /* a new listener hears of each name again */
struct Counts counts;
static Listener listener;

/* The lock must not be held: the listener takes Python's own, and a thread that has that may want ours. */
void report(int kind, const char *name, const void *at, size_t bytes)
{
    if (listener)
        listener(kind, name, at, bytes);
    else if (getenv("GHOST_TRACE"))
        fprintf(stderr, "[ghost] %d %s %p %zu\n", kind, name, at, bytes);
}

void ghost_stub(const char *name, unsigned *seen)
{
    if (*seen == ghost_generation)
        return;
    *seen = ghost_generation;
    report(STUB, name, 0, 0);
}

EXPORT void ghost_listen(Listener say)
{
    listener = say;
    ghost_generation++;
}

EXPORT void ghost_stats(uint64_t out[8])
{
    LOCK();
    const Device *device = &ghost_devices[current_device];
    uint64_t all[8] = {counts.launches, counts.mallocs, counts.frees,  counts.copies,
                       counts.graphs,   counts.nodes,   device->used, device->peak};
    UNLOCK();
    memcpy(out, all, sizeof all);
}

EXPORT void ghost_reset_peak(int device)
{
    if (device < 0 || device >= MAX_DEVICES)
        return;
    LOCK();
    ghost_devices[device].peak = ghost_devices[device].used;
    UNLOCK();
}

EXPORT int ghost_charge(int device, int64_t bytes)
{
    if (device < 0 || device >= device_count())
        return INVALID_DEVICE;
    int fits = 1;
    LOCK();
    if (bytes < 0)
        discharge(device, (size_t)-bytes);
    else
        fits = charge(device, (size_t)bytes);
    UNLOCK();
    return fits ? OK : OUT_OF_MEMORY;
}

EXPORT void ghost_mark(const void *at, size_t size, int mark)
{
    LOCK();
    mark_range(at, size, (enum Mark)mark);
    UNLOCK();
}

static int in_layer(enum Layer layer, const void *at, size_t size)
{
    LOCK();
    int all = all_in(layer, at, size);
    UNLOCK();
    return all;
}

EXPORT int ghost_marked(const void *at, size_t size) { return in_layer(REAL_BYTES, at, size); }

EXPORT int ghost_held(const void *at, size_t size) { return in_layer(HELD_BYTES, at, size); }
