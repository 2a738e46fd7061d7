/* Answers about a device: attributes by number, all properties as one structure, and its names. */
#include "ghost.h"
#include "layouts.h"

static void report_guess(int number)
{
    static unsigned seen[256];
    char name[32];
    if (number < 0 || number > 255 || seen[number] == ghost_generation)
        return;
    seen[number] = ghost_generation;
    snprintf(name, sizeof name, "device attribute %d", number);
    report(GUESS, name, 0, 0);
}

int attribute(int number, int device)
{
    switch (number) {
#define SAME(number, value)                                                                                  \
    case number:                                                                                             \
        return value;
#define OF_ROW(number, key)                                                                                  \
    case number:                                                                                             \
        return (int)row(ROW_##key);
#define HOPPER(number, value)                                                                                \
    case number:                                                                                             \
        if (row_quietly(ROW_major) != 9)                                                                     \
            report_guess(number);                                                                            \
        return value;
#include "attributes.h"
    case 33: /* the PCI bus; domain and slot are 0 */
        return device + 1;
    case 34:
    case 50:
    case 139: /* which board: nobody's memory depends on it */
    case 140:
        return 0;
    }
    report_guess(number);
    return 0;
}

EXPORT Status cudaDeviceGetAttribute(int *value, int number, int device)
{
    if (device < 0 || device >= device_count())
        return fail(INVALID_DEVICE);
    *value = attribute(number, device);
    return OK;
}
ALSO(cuDeviceGetAttribute, cudaDeviceGetAttribute);

void device_uuid(char bytes[16], int device)
{
    memcpy(bytes, "ghost-of-a-gpu-", 15);
    bytes[15] = (char)device;
}

/* Filling in every field is not reading it: only a guess among those that decide sizes is reported. */
static int64_t field(int number, int device)
{
    switch (number) {
#undef SAME
#undef OF_ROW
#undef HOPPER
#define SAME(number, value)                                                                                  \
    case number:                                                                                             \
        return value;
#define OF_ROW(number, key)                                                                                  \
    case number:                                                                                             \
        return row_quietly(ROW_##key);
#define HOPPER SAME
#include "attributes.h"
    }
    return number == 33 ? device + 1 : 0;
}

static Status properties(char *out, int device, size_t size)
{
    if (device < 0 || device >= device_count())
        return fail(INVALID_DEVICE);
    memset(out, 0, size);
    snprintf(out, 256, "%s", row_name());
    device_uuid(out + 256, device);
    row(ROW_total), row(ROW_sms), row(ROW_l2), row(ROW_shared_sm), row(ROW_shared_block);
    int64_t value;
    int offset;
#define VALUE(number) field(number, device)
#define PROPERTY(name, bytes, offset12, offset13, number)                                                    \
    value = number;                                                                                          \
    offset = CUDA_MAJOR >= 13 ? offset13 : offset12;                                                         \
    if (offset >= 0 && (size_t)(offset + bytes) <= size)                                                     \
        memcpy(out + offset, &value, bytes);
    PROPERTIES(PROPERTY)
    return OK;
}

EXPORT Status cudaGetDeviceProperties(char *out, int device)
{
    return properties(out, device, CUDA_MAJOR >= 13 ? PROPERTIES_SIZE : OLD_PROPERTIES_SIZE);
}
EXPORT Status cudaGetDeviceProperties_v2(char *out, int device) { return properties(out, device, PROPERTIES_SIZE); }

EXPORT Status cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return *count ? OK : fail(NO_DEVICE);
}
ANSWER(cuDeviceGetCount, (int *count), *count = device_count())
ANSWER(cudaGetDevice, (int *device), *device = current_device)
EXPORT Status cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count())
        return fail(INVALID_DEVICE);
    current_device = device;
    activate();
    return OK;
}
ANSWER(cudaDeviceCanAccessPeer, (int *can, int device, int peer), *can = device != peer)
ALSO(cuDeviceCanAccessPeer, cudaDeviceCanAccessPeer);
ANSWER(cudaDeviceGetPCIBusId, (char *out, int size, int device),
       snprintf(out, (size_t)size, "0000:%02X:00.0", device + 1))
ALSO(cuDeviceGetPCIBusId, cudaDeviceGetPCIBusId);
EXPORT Status cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    unsigned domain = 0, bus = 0;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2 || bus < 1 || bus > (unsigned)device_count())
        return fail(INVALID_VALUE);
    *device = (int)bus - 1;
    return OK;
}
ALSO(cuDeviceGetByPCIBusId, cudaDeviceGetByPCIBusId);
EXPORT Status cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return OK;
}
ALSO(cuCtxGetStreamPriorityRange, cudaDeviceGetStreamPriorityRange);
ANSWER(cuDeviceGetName, (char *out, int size, int device), snprintf(out, (size_t)size, "%s", row_name()))
EXPORT Status cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    row(ROW_total);
    *bytes = device_total();
    return OK;
}
ANSWER(cuDeviceGetUuid, (char *out, int device), device_uuid(out, device))
ALSO(cuDeviceGetUuid_v2, cuDeviceGetUuid);
EXPORT Status cuDeviceComputeCapability(int *major, int *minor, int device)
{
    *major = (int)row(ROW_major);
    *minor = (int)row(ROW_minor);
    return OK;
}
ANSWER(cudaDriverGetVersion, (int *version), *version = CUDA_VERSION)
ALSO(cudaRuntimeGetVersion, cudaDriverGetVersion);
ALSO(cuDriverGetVersion, cudaDriverGetVersion);

NOTHING(cuInit) NOTHING(cudaDeviceEnablePeerAccess) NOTHING(cudaDeviceDisablePeerAccess)
NOTHING(cuCtxEnablePeerAccess) NOTHING(cudaProfilerStart) NOTHING(cudaProfilerStop) NOTHING(cuProfilerStart)
NOTHING(cuProfilerStop)

static const struct {
    Status code;
    const char *runtime, *driver, *text;
} ERRORS[] = {
    {OK, "cudaSuccess", "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {13, "cudaErrorInvalidSymbol", "CUDA_ERROR_UNKNOWN", "invalid device symbol"},
    {NO_DEVICE, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {ILLEGAL_STATE, "cudaErrorIllegalState", "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {NOT_FOUND, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "cudaErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
};
static size_t error_index(Status code)
{
    size_t index = sizeof ERRORS / sizeof *ERRORS;
    while (index-- > 0)
        if (ERRORS[index].code == code)
            return index;
    return 1;
}
EXPORT const char *cudaGetErrorName(Status code) { return ERRORS[error_index(code)].runtime; }
EXPORT const char *cudaGetErrorString(Status code) { return ERRORS[error_index(code)].text; }
ANSWER(cuGetErrorName, (Status code, const char **out), *out = ERRORS[error_index(code)].driver)
ANSWER(cuGetErrorString, (Status code, const char **out), *out = ERRORS[error_index(code)].text)
