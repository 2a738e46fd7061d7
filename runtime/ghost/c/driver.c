/* The driver API's contexts, modules and addresses. */
#include "ghost.h"

static char contexts[MAX_DEVICES]; /* a context is the address of its device's byte */
static __thread int pushed[16], push_depth;

static int device_of_context(const char *context)
{
    return context >= contexts && context < contexts + MAX_DEVICES ? (int)(context - contexts) : -1;
}

EXPORT Status cuDeviceGet(int *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= device_count())
        return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}
EXPORT Status cuDevicePrimaryCtxRetain(char **context, int device)
{
    if (device < 0 || device >= device_count())
        return INVALID_DEVICE;
    LOCK();
    device_at(device);
    UNLOCK();
    *context = &contexts[device];
    return OK;
}
NOTHING(cuDevicePrimaryCtxRelease_v2) NOTHING(cuDevicePrimaryCtxSetFlags_v2)
EXPORT Status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    if (device < 0 || device >= device_count())
        return INVALID_DEVICE;
    if (flags)
        *flags = 0;
    if (active)
        *active = ghost_devices[device].active;
    return OK;
}
ANSWER(cuCtxGetCurrent, (char **context),
       *context = ghost_devices[current_device].active ? &contexts[current_device] : 0)
EXPORT Status cuCtxSetCurrent(char *context)
{
    int device = device_of_context(context);
    if (context && device < 0)
        return INVALID_CONTEXT;
    if (context)
        current_device = device;
    return OK;
}
EXPORT Status cuCtxPushCurrent_v2(char *context)
{
    if (push_depth < 16)
        pushed[push_depth] = current_device;
    push_depth++;
    return cuCtxSetCurrent(context);
}
EXPORT Status cuCtxPopCurrent_v2(char **context)
{
    if (context)
        *context = &contexts[current_device];
    if (push_depth > 0 && --push_depth < 16)
        current_device = pushed[push_depth];
    return OK;
}
EXPORT Status cuCtxGetDevice(int *device)
{
    *device = current_device;
    return ghost_devices[current_device].active ? OK : INVALID_CONTEXT;
}
ANSWER(cuCtxGetApiVersion, (char *context, unsigned *version), *version = 3020)
ANSWER(cuStreamGetCtx, (Stream *stream, char **context),
       *context = &contexts[(uintptr_t)stream <= 2 ? current_device : stream->device])
EXPORT Status cuStreamGetCtx_v2(Stream *stream, char **context, void **green)
{
    if (green)
        *green = 0;
    return cuStreamGetCtx(stream, context);
}

/* Modules, libraries and functions are handles that name nothing: no kernel of theirs ever runs. */
static Status handle(void **out)
{
    *out = calloc(1, 64);
    return *out ? OK : OUT_OF_MEMORY;
}
EXPORT Status cuModuleLoadData(void **module) { return handle(module); }
ALSO(cuModuleLoad, cuModuleLoadData);
ALSO(cuModuleLoadDataEx, cuModuleLoadData);
ALSO(cuModuleLoadFatBinary, cuModuleLoadData);
ALSO(cuModuleGetFunction, cuModuleLoadData);
ALSO(cuLibraryLoadData, cuModuleLoadData);
ALSO(cuLibraryLoadFromFile, cuModuleLoadData);
ALSO(cuLibraryGetKernel, cuModuleLoadData);
ALSO(cuLibraryGetModule, cuModuleLoadData);
ALSO(cudaLibraryLoadData, cuModuleLoadData);
ALSO(cudaLibraryLoadFromFile, cuModuleLoadData);
ALSO(cudaLibraryGetKernel, cuModuleLoadData);
NOTHING(cuModuleUnload) NOTHING(cuLibraryUnload) NOTHING(cudaLibraryUnload)
ANSWER(cuModuleGetLoadingMode, (int *mode), *mode = 2) /* lazy */
ANSWER(cuKernelGetFunction, (void **function, void *kernel), *function = kernel)
/* A caller that counts a library's kernels loads one kernel (DeepGEMM). */
ANSWER(cuLibraryGetKernelCount, (unsigned *count, void *library), *count = 1)
ALSO(cudaLibraryGetKernelCount, cuLibraryGetKernelCount);
EXPORT Status cuLibraryEnumerateKernels(void **kernels, unsigned count, void *library)
{
    for (unsigned i = 0; i < count; i++)
        handle(&kernels[i]);
    return OK;
}
ALSO(cudaLibraryEnumerateKernels, cuLibraryEnumerateKernels);

/* A tensor map describes memory to a kernel: 128 bytes that only the GPU reads. */
ANSWER(cuTensorMapEncodeTiled, (void *map), memset(map, 0, 128))
ALSO(cuTensorMapEncodeIm2col, cuTensorMapEncodeTiled);
ALSO(cuTensorMapReplaceAddress, cuTensorMapEncodeTiled);

EXPORT Status cuPointerGetAttribute(void *out, int which, uint64_t at)
{
    enum { CONTEXT = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, BUFFER_ID = 7, MANAGED, ORDINAL, START = 11, SIZE, MAPPED };
    int device = device_of((void *)at), pinned = device < 0 && is_pinned((void *)at);
    uint64_t start = 0;
    size_t size = 0;
    if (device < 0 && !pinned)
        return INVALID_VALUE;
    switch (which) {
    case CONTEXT:
        *(char **)out = &contexts[device < 0 ? current_device : device];
        return OK;
    case MEMORY_TYPE:
        *(unsigned *)out = pinned ? 1 : 2;
        return OK;
    case DEVICE_POINTER:
        *(uint64_t *)out = at;
        return OK;
    case HOST_POINTER:
        *(uint64_t *)out = at;
        return pinned ? OK : INVALID_VALUE;
    case MANAGED:
        *(unsigned *)out = 0;
        return OK;
    case ORDINAL:
        *(int *)out = device < 0 ? current_device : device;
        return OK;
    case BUFFER_ID:
    case START:
    case SIZE:
        if (!block_of((void *)at, &start, &size))
            return INVALID_VALUE;
        *(uint64_t *)out = which == SIZE ? size : start;
        return OK;
    case MAPPED:
        *(unsigned *)out = 1;
        return OK;
    }
    REPORT_ONCE(GUESS, "cuPointerGetAttribute");
    *(int *)out = 0;
    return OK;
}
EXPORT Status cuPointerGetAttributes(unsigned count, const int *which, void **out, uint64_t at)
{
    for (unsigned i = 0; i < count; i++)
        cuPointerGetAttribute(out[i], which[i], at);
    return OK;
}
NOTHING(cuPointerSetAttribute)
EXPORT Status cuMemGetAddressRange_v2(uint64_t *start, size_t *size, uint64_t at)
{
    return block_of((void *)at, start, size) ? OK : NOT_FOUND;
}

/* A pool's numbers are those of the whole device here. */
static char pool[64];
ANSWER(cudaDeviceGetDefaultMemPool, (void **out, int device), *out = pool)
ALSO(cudaDeviceGetMemPool, cudaDeviceGetDefaultMemPool);
ALSO(cuDeviceGetDefaultMemPool, cudaDeviceGetDefaultMemPool);
ALSO(cuDeviceGetMemPool, cudaDeviceGetDefaultMemPool);
NOTHING(cudaMemPoolSetAttribute) NOTHING(cudaMemPoolSetAccess) NOTHING(cudaMemPoolTrimTo)
EXPORT Status cudaMemPoolGetAttribute(void *which_pool, int which, uint64_t *value)
{
    REPORT_ONCE(GUESS, "cudaMemPoolGetAttribute");
    *value = 0;
    return OK;
}

/* The driver's own log of errors: the ghost writes none. */
EXPORT Status cuLogsRegisterCallback(void (*callback)(void), void *data, void **handle_of_it)
{
    static char log;
    if (handle_of_it)
        *handle_of_it = &log;
    return OK;
}
NOTHING(cuLogsUnregisterCallback)

/* Another process's memory: addresses of the same size that hold nothing real. */
typedef struct {
    uint64_t at, size;
    char rest[48];
} MemoryHandle;
EXPORT Status cudaIpcGetMemHandle(MemoryHandle *out, void *at)
{
    memset(out, 0, sizeof *out);
    out->at = (uint64_t)at;
    uint64_t start;
    return block_of(at, &start, &out->size) ? OK : fail(INVALID_VALUE);
}
ALSO(cuIpcGetMemHandle, cudaIpcGetMemHandle);
EXPORT Status cudaIpcOpenMemHandle(void **at, MemoryHandle handle_of_peer, unsigned flags)
{
    LOCK();
    *at = (void *)reserve_addresses(current_device, handle_of_peer.size ? handle_of_peer.size : GRANULE, GRANULE);
    UNLOCK();
    return *at ? OK : fail(OUT_OF_MEMORY);
}
ALSO(cuIpcOpenMemHandle_v2, cudaIpcOpenMemHandle);
NOTHING(cudaIpcCloseMemHandle) NOTHING(cuIpcCloseMemHandle)
