/* Copies and fills. Small ones are made and keep marks of real bytes; large ones leave the target unreal. */
#include "ghost.h"

#define KEPT (32 * MIB)    /* a bigger write to the device is not kept */
#define CARRIED (1024 * MIB) /* a bigger read stops there, and says so */

static void to_device(void *to, const void *from, size_t size)
{
    if (size <= KEPT)
        memmove(to, from, size);
    LOCK();
    mark_range(to, size, size <= KEPT ? REAL : UNREAL);
    UNLOCK();
}

static void within_device(char *to, const char *from, size_t size)
{
    if (to == from)
        return;
    LOCK();
    uint64_t start = (uint64_t)from, end = start + (size > KEPT ? 0 : size), stop;
    mark_range(to, size, UNREAL);
    for (uint64_t at = start; next_in(HELD_BYTES, &at, end, &stop); at = stop) {
        memmove(to + (at - start), (void *)at, stop - at);
        mark_range(to + (at - start), stop - at, HELD);
    }
    for (uint64_t at = start; next_in(REAL_BYTES, &at, end, &stop); at = stop)
        mark_range(to + (at - start), stop - at, REAL);
    UNLOCK();
}

static void from_device(void *to, const void *from, size_t size)
{
    LOCK();
    int real = all_in(REAL_BYTES, from, size);
    UNLOCK();
    memmove(to, from, size < CARRIED ? size : CARRIED);
    if (!real)
        report(UNREAD, "copy to the host", from, size);
    if (size > CARRIED)
        report(CUT, "copy to the host", from, size);
}

static void copy(void *to, const void *from, size_t size)
{
    if (!size)
        return;
    COUNT(copies);
    if (device_of(to) < 0)
        device_of(from) < 0 ? (void)memmove(to, from, size) : from_device(to, from, size);
    else
        device_of(from) < 0 ? to_device(to, from, size) : within_device(to, from, size);
}

Status copy_on(Stream *stream, void *to, const void *from, size_t size)
{
    if (!captured(stream, to, size))
        copy(to, from, size);
    return OK;
}

static void write_values(char *to, uint32_t value, int width, size_t count)
{
    if (width == 1)
        memset(to, (int)value, count);
    else
        for (size_t i = 0; i < count; i++)
            memcpy(to + i * (size_t)width, &value, (size_t)width);
}

/* Zeros of any size are real: pages that were never touched read as zeros. */
static void clear(char *to, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)(((uint64_t)to + page - 1) / page * page), *last = (char *)((uint64_t)(to + size) / page * page);
    if (size < 2 * MIB || last <= first) {
        memset(to, 0, size);
        return;
    }
    memset(to, 0, (size_t)(first - to));
    madvise(first, (size_t)(last - first), MADV_DONTNEED);
    memset(last, 0, (size_t)(to + size - last));
}

Status fill_on(Stream *stream, void *to, uint32_t value, int width, size_t count)
{
    size_t size = count * (size_t)width;
    if (!size || captured(stream, to, size))
        return OK;
    if (device_of(to) < 0) {
        write_values(to, value, width, count);
        return OK;
    }
    if (!value)
        clear(to, size);
    else if (size <= KEPT)
        write_values(to, value, width, count);
    LOCK();
    mark_range(to, size, !value || size <= KEPT ? REAL : UNREAL);
    UNLOCK();
    return OK;
}

EXPORT Status cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, Stream *stream)
{
    return copy_on(stream, to, from, size);
}
ALSO(cudaMemcpyAsync_ptsz, cudaMemcpyAsync);
EXPORT Status cudaMemcpy(void *to, const void *from, size_t size, int kind) { return copy_on(0, to, from, size); }
ALSO(cudaMemcpy_ptds, cudaMemcpy);
EXPORT Status cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, Stream *stream)
{
    return copy_on(stream, to, from, size);
}
EXPORT Status cudaMemcpyPeer(void *to, int a, const void *from, int b, size_t size)
{
    return copy_on(0, to, from, size);
}
EXPORT Status cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width,
                                size_t height, int kind, Stream *stream)
{
    for (size_t line = 0; line < height; line++)
        copy_on(stream, to + line * to_pitch, from + line * from_pitch, width);
    return OK;
}
EXPORT Status cudaMemcpy2D(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width,
                           size_t height, int kind)
{
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, 0);
}
EXPORT Status cudaMemset(void *to, int value, size_t size) { return fill_on(0, to, (uint8_t)value, 1, size); }
EXPORT Status cudaMemsetAsync(void *to, int value, size_t size, Stream *stream)
{
    return fill_on(stream, to, (uint8_t)value, 1, size);
}
ALSO(cudaMemsetAsync_ptsz, cudaMemsetAsync);

/* The driver's: an address is a number there, and there is one function for each direction. */
EXPORT Status cuMemcpy(void *to, const void *from, size_t size) { return copy_on(0, to, from, size); }
ALSO(cuMemcpyHtoD_v2, cuMemcpy);
ALSO(cuMemcpyDtoH_v2, cuMemcpy);
ALSO(cuMemcpyDtoD_v2, cuMemcpy);
EXPORT Status cuMemcpyAsync(void *to, const void *from, size_t size, Stream *stream)
{
    return copy_on(stream, to, from, size);
}
ALSO(cuMemcpyHtoDAsync_v2, cuMemcpyAsync);
ALSO(cuMemcpyDtoHAsync_v2, cuMemcpyAsync);
ALSO(cuMemcpyDtoDAsync_v2, cuMemcpyAsync);
EXPORT Status cuMemsetD8Async(void *to, unsigned char value, size_t n, Stream *s) { return fill_on(s, to, value, 1, n); }
EXPORT Status cuMemsetD16Async(void *to, unsigned short value, size_t n, Stream *s) { return fill_on(s, to, value, 2, n); }
EXPORT Status cuMemsetD32Async(void *to, unsigned value, size_t n, Stream *s) { return fill_on(s, to, value, 4, n); }
EXPORT Status cuMemsetD8_v2(void *to, unsigned char value, size_t n) { return fill_on(0, to, value, 1, n); }
EXPORT Status cuMemsetD16_v2(void *to, unsigned short value, size_t n) { return fill_on(0, to, value, 2, n); }
EXPORT Status cuMemsetD32_v2(void *to, unsigned value, size_t n) { return fill_on(0, to, value, 4, n); }
