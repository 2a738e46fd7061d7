/* Pinned host memory: real memory; a server may ask what kind of memory an address is in. */
#include "ghost.h"
#include "layouts.h"

typedef struct Pin {
    char *at;
    size_t size;
    int ours;
    struct Pin *next;
} Pin;
static Pin *pins;

static Status pin(void *at, size_t size, int ours)
{
    Pin *made = malloc(sizeof *made);
    if (!made)
        return fail(OUT_OF_MEMORY);
    LOCK();
    *made = (Pin){at, size, ours, pins};
    pins = made;
    UNLOCK();
    return OK;
}

static Status unpin(void *at)
{
    LOCK();
    Pin **place = &pins;
    while (*place && (*place)->at != at)
        place = &(*place)->next;
    Pin *found = *place;
    if (found)
        *place = found->next;
    UNLOCK();
    if (found && found->ours)
        munmap(found->at, found->size);
    free(found);
    return found || !at ? OK : fail(INVALID_VALUE);
}

int is_pinned(const void *at)
{
    LOCK();
    Pin *pin = pins;
    while (pin && ((const char *)at < pin->at || (const char *)at >= pin->at + pin->size))
        pin = pin->next;
    UNLOCK();
    return pin != 0;
}

EXPORT Status cudaHostAlloc(void **at, size_t size, unsigned flags)
{
    activate();
    size = size ? (size + 4095) / 4096 * 4096 : 4096;
    *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*at == MAP_FAILED) {
        *at = 0;
        return fail(OUT_OF_MEMORY);
    }
    return pin(*at, size, 1);
}
ALSO(cuMemHostAlloc, cudaHostAlloc);
EXPORT Status cudaMallocHost(void **at, size_t size) { return cudaHostAlloc(at, size, 0); }
ALSO(cuMemAllocHost_v2, cudaMallocHost);
EXPORT Status cudaFreeHost(void *at) { return unpin(at); }
ALSO(cuMemFreeHost, cudaFreeHost);
ALSO(cudaHostUnregister, cudaFreeHost);
ALSO(cuMemHostUnregister, cudaFreeHost);
EXPORT Status cudaHostRegister(void *at, size_t size, unsigned flags) { return pin(at, size, 0); }
ALSO(cuMemHostRegister_v2, cudaHostRegister);
ANSWER(cudaHostGetDevicePointer, (void **device, void *host, unsigned flags), *device = host)
ALSO(cuMemHostGetDevicePointer_v2, cudaHostGetDevicePointer);

EXPORT Status cudaPointerGetAttributes(PointerAttributes *out, const void *at)
{
    enum { UNREGISTERED, HOST, DEVICE };
    int device = device_of(at);
    memset(out, 0, sizeof *out);
    out->type = device >= 0 ? DEVICE : is_pinned(at) ? HOST : UNREGISTERED;
    out->device = device >= 0 ? device : out->type == HOST ? current_device : -2;
    out->device_pointer = out->type == UNREGISTERED ? 0 : (void *)at;
    out->host_pointer = device >= 0 ? 0 : (void *)at;
    return OK;
}
