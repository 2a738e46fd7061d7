/* Device memory: address space without physical pages, counted in the driver's granules. */
#include "ghost.h"
#include "outside.h"

pthread_mutex_t ghost_lock = PTHREAD_MUTEX_INITIALIZER;
Device ghost_devices[MAX_DEVICES];
__thread int current_device;
static __thread Status last_error;

typedef struct {
    uint64_t at;
    size_t size;
    int device, counted;
} Block;
static Block *blocks; /* sorted by address */
static size_t block_count, block_room;

static void lock(void) { LOCK(); }
static void unlock(void) { UNLOCK(); }
__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(lock, unlock, unlock); }

Status fail(Status error)
{
    last_error = error;
    return error;
}

Device *device_at(int number)
{
    Device *device = &ghost_devices[number];
    if (!device->base) {
        void *want = (void *)(DEVICE_BASE + DEVICE_SPAN * (uint64_t)number);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void *base = mmap(want, DEVICE_SPAN, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (base != want) {
            fprintf(stderr, "ghost: this kernel gives no 4 TiB of addresses at %p (vm.overcommit_memory=2, a limit "
                            "on address space, or fewer than 47 bits of addresses)\n", want);
            exit(70);
        }
        madvise(base, DEVICE_SPAN, MADV_NOHUGEPAGE);
        madvise(base, DEVICE_SPAN, MADV_DONTDUMP);
        device->base = base;
    }
    int is_new = !device->active;
    device->active = 1;
    if (is_new)
        outside_context(number);
    return device;
}

void activate(void)
{
    if (ghost_devices[current_device].active)
        return;
    LOCK();
    device_at(current_device);
    UNLOCK();
}

int device_of(const void *at)
{
    uint64_t address = (uint64_t)at;
    if (address < DEVICE_BASE || address >= DEVICE_BASE + DEVICE_SPAN * MAX_DEVICES)
        return -1;
    int number = (int)((address - DEVICE_BASE) / DEVICE_SPAN);
    return ghost_devices[number].base ? number : -1;
}

uint64_t reserve_addresses(int number, size_t size, size_t align)
{
    Device *device = device_at(number);
    if (align < GRANULE)
        align = GRANULE;
    size_t at = (device->next + align - 1) / align * align;
    size = (size + GRANULE - 1) / GRANULE * GRANULE;
    if (at + size > DEVICE_SPAN)
        return 0;
    device->next = at + size;
    return (uint64_t)device->base + at;
}

int charge(int number, size_t size)
{
    Device *device = device_at(number);
    if (device->used + size > device_total())
        return 0;
    device->used += size;
    if (device->used > device->peak)
        device->peak = device->used;
    return 1;
}

void discharge(int number, size_t size)
{
    Device *device = device_at(number);
    device->used -= size < device->used ? size : device->used;
}

/* The index of the block that holds `at`, or of the one after it. */
static size_t block_index(uint64_t at)
{
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].at + blocks[middle].size > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void add_block(Block block)
{
    if (block_count == block_room) {
        block_room = block_room * 2 + 256;
        blocks = realloc(blocks, block_room * sizeof *blocks);
        if (!blocks)
            abort();
    }
    size_t index = block_index(block.at);
    memmove(blocks + index + 1, blocks + index, (block_count - index) * sizeof *blocks);
    blocks[index] = block;
    block_count++;
}

int block_of(const void *at, uint64_t *start, size_t *size)
{
    LOCK();
    size_t index = block_index((uint64_t)at);
    int found = index < block_count && blocks[index].at <= (uint64_t)at;
    if (found) {
        if (start)
            *start = blocks[index].at;
        if (size)
            *size = blocks[index].size;
    }
    UNLOCK();
    return found;
}

Status device_malloc(void **at, size_t size)
{
    if (!at)
        return fail(INVALID_VALUE);
    *at = 0;
    if (!device_count())
        return fail(NO_DEVICE);
    if (!size)
        return OK;
    size_t rounded = size > SIZE_MAX - GRANULE ? SIZE_MAX - GRANULE + 1 : (size + GRANULE - 1) / GRANULE * GRANULE;
    COUNT(mallocs);
    LOCK();
    uint64_t start = 0;
    if (rounded <= DEVICE_SPAN && charge(current_device, rounded)) {
        start = reserve_addresses(current_device, rounded, GRANULE);
        if (start)
            add_block((Block){start, rounded, current_device, 1});
        else
            discharge(current_device, rounded);
    }
    UNLOCK();
    *at = (void *)start;
    return start ? OK : fail(OUT_OF_MEMORY);
}

Status device_free(void *at)
{
    if (!at) {
        activate();
        return OK;
    }
    COUNT(frees);
    LOCK();
    size_t index = block_index((uint64_t)at);
    int found = index < block_count && blocks[index].at == (uint64_t)at;
    if (found) {
        Block block = blocks[index];
        if (block.counted)
            discharge(block.device, block.size);
        mark_range(at, block.size, UNREAL);
        madvise(at, block.size, MADV_DONTNEED);
        memmove(blocks + index, blocks + index + 1, (block_count - index - 1) * sizeof *blocks);
        block_count--;
    }
    UNLOCK();
    return found ? OK : fail(INVALID_VALUE);
}

EXPORT Status cudaMalloc(void **at, size_t size) { return device_malloc(at, size); }
EXPORT Status cudaMallocManaged(void **at, size_t size, unsigned flags) { return device_malloc(at, size); }
EXPORT Status cudaMallocAsync(void **at, size_t size, Stream *s) { return device_malloc(at, size); }
ALSO(cudaMallocAsync_ptsz, cudaMallocAsync);
ALSO(cuMemAlloc_v2, cudaMalloc);
ALSO(cuMemAllocManaged, cudaMallocManaged);
ALSO(cuMemAllocAsync, cudaMallocAsync);
EXPORT Status cudaMallocFromPoolAsync(void **at, size_t size, void *pool, Stream *s)
{
    return device_malloc(at, size);
}
ALSO(cuMemAllocFromPoolAsync, cudaMallocFromPoolAsync);
EXPORT Status cudaFree(void *at) { return device_free(at); }
EXPORT Status cudaFreeAsync(void *at, Stream *s) { return device_free(at); }
ALSO(cudaFreeAsync_ptsz, cudaFreeAsync);
ALSO(cuMemFree_v2, cudaFree);
ALSO(cuMemFreeAsync, cudaFreeAsync);

EXPORT Status cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    if (!device_count())
        return fail(NO_DEVICE);
    row(ROW_total);
    LOCK();
    size_t used = device_at(current_device)->used, all = device_total();
    UNLOCK();
    *free_bytes = all > used ? all - used : 0;
    *total = all;
    return OK;
}
ALSO(cuMemGetInfo_v2, cudaMemGetInfo);

EXPORT Status cudaGetLastError(void)
{
    Status error = last_error;
    last_error = OK;
    return error;
}
EXPORT Status cudaPeekAtLastError(void) { return last_error; }
