/* NVML: the figures that nvidia-smi shows. A device's handle is its number plus one. */
#include "ghost.h"

enum { NVML_INVALID = 2, NVML_NOT_FOUND = 6, NVML_TOO_SMALL = 7 };
#define DEVICE(handle) ((int)(uintptr_t)(handle)-1)

NOTHING(nvmlInit) NOTHING(nvmlInit_v2) NOTHING(nvmlInitWithFlags) NOTHING(nvmlShutdown)
EXPORT const char *nvmlErrorString(Status status) { return status ? "Not Supported" : "Success"; }

static Status text(char *out, unsigned size, const char *value)
{
    return (unsigned)snprintf(out, size, "%s", value) < size ? OK : NVML_TOO_SMALL;
}
EXPORT Status nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(out, size, DRIVER_VERSION); }
EXPORT Status nvmlSystemGetNVMLVersion(char *out, unsigned size) { return text(out, size, "13." DRIVER_VERSION); }
ANSWER(nvmlSystemGetCudaDriverVersion, (int *version), *version = CUDA_VERSION)
ALSO(nvmlSystemGetCudaDriverVersion_v2, nvmlSystemGetCudaDriverVersion);
ANSWER(nvmlDeviceGetCount_v2, (unsigned *count), *count = (unsigned)device_count())
ALSO(nvmlDeviceGetCount, nvmlDeviceGetCount_v2);

EXPORT Status nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (index >= (unsigned)device_count())
        return NVML_INVALID;
    *handle = (void *)(uintptr_t)(index + 1);
    return OK;
}
ALSO(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);
EXPORT Status nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle)
{
    unsigned domain = 0, bus = 0;
    if (sscanf(id, "%x:%x", &domain, &bus) != 2 || !bus)
        return NVML_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle);
}
ALSO(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);

EXPORT Status nvmlDeviceGetUUID(void *device, char *out, unsigned size)
{
    char id[16], made[48];
    int at = snprintf(made, sizeof made, "GPU-");
    device_uuid(id, DEVICE(device));
    for (int i = 0; i < 16; i++)
        at += snprintf(made + at, sizeof made - (size_t)at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                       (unsigned char)id[i]);
    return text(out, size, made);
}
EXPORT Status nvmlDeviceGetHandleByUUID(const char *id, void **handle)
{
    for (uintptr_t device = 1; device <= (uintptr_t)device_count(); device++) {
        char own[48];
        nvmlDeviceGetUUID((void *)device, own, sizeof own);
        if (!strcmp(own, id)) {
            *handle = (void *)device;
            return OK;
        }
    }
    return NVML_NOT_FOUND;
}
ANSWER(nvmlDeviceGetIndex, (void *device, unsigned *index), *index = (unsigned)DEVICE(device))
ALSO(nvmlDeviceGetMinorNumber, nvmlDeviceGetIndex);
EXPORT Status nvmlDeviceGetName(void *device, char *out, unsigned size) { return text(out, size, row_name()); }
EXPORT Status nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    *major = (int)row(ROW_major);
    *minor = (int)row(ROW_minor);
    return OK;
}

static unsigned long long used_on(void *device)
{
    LOCK();
    unsigned long long used = ghost_devices[DEVICE(device)].used;
    UNLOCK();
    return used;
}
typedef struct {
    unsigned long long total, free, used;
} Memory;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;
EXPORT Status nvmlDeviceGetMemoryInfo(void *device, Memory *out)
{
    unsigned long long total = (unsigned long long)row(ROW_nvml_total), reserved = total - device_total();
    unsigned long long used = used_on(device) + reserved;
    *out = (Memory){total, total - used, used};
    return OK;
}
EXPORT Status nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *out)
{
    unsigned long long total = (unsigned long long)row(ROW_nvml_total), used = used_on(device);
    *out = (MemoryV2){out->version, total, total - device_total(), device_total() - used, used};
    return OK;
}

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;
EXPORT Status nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *out)
{
    unsigned room = *count;
    *count = 1;
    if (!out || !room)
        return NVML_TOO_SMALL;
    *out = (Process){(unsigned)getpid(), used_on(device), 0xffffffff, 0xffffffff};
    return OK;
}
/* The first form, which torch asks when it runs out of memory: its text needs an answer. */
typedef struct {
    unsigned pid;
    unsigned long long used;
} ProcessV1;
EXPORT Status nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, ProcessV1 *out)
{
    unsigned room = *count;
    *count = 1;
    if (!out || !room)
        return NVML_TOO_SMALL;
    *out = (ProcessV1){(unsigned)getpid(), used_on(device)};
    return OK;
}
typedef struct {
    unsigned environment, feature, tools;
} ConfidentialCompute;
ANSWER(nvmlSystemGetConfComputeState, (ConfidentialCompute *out),
       *out = (ConfidentialCompute){0, 0, 0}) /* off, as on every GPU that was asked */
EXPORT Status nvmlSystemGetConfComputeSettings(unsigned out[5]) /* the caller's version stays in front */
{
    memset(out + 1, 0, 4 * sizeof *out);
    return OK;
}
ANSWER(nvmlDeviceGetP2PStatus, (void *device, void *peer, int which, int *status), *status = 0) /* it works */
EXPORT Status nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active)
{
    *active = link < (unsigned)row(ROW_nvlinks);
    return *active ? OK : NVML_INVALID;
}
/* Not part of a fabric that spans machines. The first four bytes of the second form are its version. */
ANSWER(nvmlDeviceGetGpuFabricInfo, (void *device, void *out), memset(out, 0, 24))
ANSWER(nvmlDeviceGetGpuFabricInfoV, (void *device, char *out), memset(out + 4, 0, 28))
ANSWER(nvmlDeviceGetNumaNodeId, (void *device, unsigned *node), *node = 0)
