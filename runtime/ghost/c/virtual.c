/* The driver's virtual memory: physical memory is charged when it is created; addresses cost nothing. */
#include "ghost.h"

typedef struct {
    size_t size;
    int device, references;
} Physical;
typedef struct Mapping {
    uint64_t at;
    size_t size;
    Physical *physical;
    struct Mapping *next;
} Mapping;
static Mapping *mappings;

/* CUmemAllocationProp begins with the type, the handle types, then the location's type and number. */
typedef struct {
    int type, handle_types, location_type, location;
} Properties;
enum { PROPERTIES_BYTES = 32 }; /* the rest: what Windows wants, and flags */

static int device_of_properties(const Properties *properties)
{
    return properties && properties->location_type == 1 ? properties->location : current_device;
}

ANSWER(cuMemGetAllocationGranularity, (size_t *size, const Properties *properties, int which), *size = GRANULE)
/* None, as attribute 132 says; a host whose switches have it takes another way. */
EXPORT Status cuMulticastGetGranularity(size_t *size, const void *properties, int which)
{
    *size = 0;
    REPORT_ONCE(GUESS, "NVLink multicast");
    return NOT_SUPPORTED;
}
EXPORT Status cuMemAddressReserve(uint64_t *at, size_t size, size_t align, uint64_t wanted, unsigned long long flags)
{
    LOCK();
    *at = reserve_addresses(current_device, size, align);
    UNLOCK();
    return *at ? OK : OUT_OF_MEMORY;
}
NOTHING(cuMemAddressFree) NOTHING(cuMemSetAccess)

EXPORT Status cuMemCreate(Physical **out, size_t size, const Properties *properties, unsigned long long flags)
{
    int device = device_of_properties(properties);
    if (device < 0 || device >= device_count())
        return INVALID_DEVICE;
    Physical *made = malloc(sizeof *made);
    if (!made)
        return OUT_OF_MEMORY;
    COUNT(mallocs);
    LOCK();
    int fits = charge(device, size);
    UNLOCK();
    if (!fits) {
        free(made);
        return OUT_OF_MEMORY;
    }
    *made = (Physical){size, device, 1};
    *out = made;
    return OK;
}

static void release(Physical *physical) /* with the lock held */
{
    if (--physical->references)
        return;
    discharge(physical->device, physical->size);
    free(physical);
}
EXPORT Status cuMemRelease(Physical *physical)
{
    if (!physical)
        return INVALID_VALUE;
    COUNT(frees);
    LOCK();
    release(physical);
    UNLOCK();
    return OK;
}

/* A peer's memory is counted where the peer is. */
EXPORT Status cuMemImportFromShareableHandle(Physical **out, const void *handle, int type)
{
    *out = malloc(sizeof **out);
    if (!*out)
        return OUT_OF_MEMORY;
    **out = (Physical){0, current_device, 1};
    return OK;
}
/* The memory that is mapped at an address; what cudaMalloc gave is somebody else's, and is counted there. */
EXPORT Status cuMemRetainAllocationHandle(Physical **out, void *at)
{
    LOCK();
    Mapping *mapping = mappings;
    while (mapping && ((uint64_t)at < mapping->at || (uint64_t)at >= mapping->at + mapping->size))
        mapping = mapping->next;
    *out = mapping ? mapping->physical : 0;
    if (mapping)
        mapping->physical->references++;
    UNLOCK();
    return mapping ? OK : cuMemImportFromShareableHandle(out, 0, 0);
}
EXPORT Status cuMemGetAllocationPropertiesFromHandle(Properties *out, const Physical *physical)
{
    if (!physical)
        return INVALID_VALUE;
    memset(out, 0, PROPERTIES_BYTES);
    *out = (Properties){1, 1, 1, physical->device};
    return OK;
}

EXPORT Status cuMemMap(uint64_t at, size_t size, size_t offset, Physical *physical, unsigned long long flags)
{
    if (!physical)
        return INVALID_VALUE;
    Mapping *made = malloc(sizeof *made);
    if (!made)
        return OUT_OF_MEMORY;
    LOCK();
    physical->references++;
    *made = (Mapping){at, size, physical, mappings};
    mappings = made;
    UNLOCK();
    return OK;
}
EXPORT Status cuMemUnmap(uint64_t at, size_t size)
{
    LOCK();
    Mapping **place = &mappings;
    while (*place) {
        Mapping *mapping = *place;
        if (mapping->at < at || mapping->at >= at + size) {
            place = &mapping->next;
            continue;
        }
        *place = mapping->next;
        release(mapping->physical);
        free(mapping);
    }
    mark_range((void *)at, size, UNREAL);
    if (device_of((void *)at) >= 0)
        madvise((void *)at, size, MADV_DONTNEED);
    UNLOCK();
    return OK;
}
