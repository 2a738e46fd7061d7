/* Streams, events and captures. Nothing ever runs, so waiting returns at once. */
#include "ghost.h"

typedef struct {
    uint64_t capture;
    Graph *graph;
} Event;

enum { STREAMS = 12 }; /* of a capture, that are told */

static Stream legacy, *streams;
static __thread Stream per_thread;
static uint64_t captures, capturing; /* begun so far, and open now */

Stream *stream_of(Stream *handle)
{
    uintptr_t number = (uintptr_t)handle;
    return number <= 1 ? &legacy : number == 2 ? &per_thread : handle;
}

int captured(Stream *handle, void *written, size_t size)
{
    Stream *stream = stream_of(handle);
    if (!stream->capture)
        return 0;
    graph_add(stream->graph, written, size);
    return 1;
}

int message_on(Stream *stream)
{
    if (stream_of(stream)->capture)
        graph_add_message(stream_of(stream)->graph);
    return launch_on(stream);
}

int launch_on(Stream *stream)
{
    COUNT(launches);
    captured(stream, 0, 0);
    return OK;
}

/* A stream that is captured now, or 0. */
static Stream *captured_stream(void)
{
    if (!capturing)
        return 0;
    LOCK();
    Stream *stream = streams;
    while (stream && !stream->capture)
        stream = stream->next;
    UNLOCK();
    stream = stream ? stream : legacy.capture ? &legacy : &per_thread;
    return stream->capture ? stream : 0;
}

/* A launch of a kernel that does not come here: Triton's, or one of a module that is stubbed. */
EXPORT void ghost_launched(void)
{
    Stream *stream = captured_stream();
    COUNT(launches);
    if (stream)
        captured(stream, 0, 0);
}

/* What is captured now: which capture it is, 0 if none, its nodes, messages and branches, and the streams in it,
   as many as there is room for. */
EXPORT void ghost_captured(uint64_t out[4 + STREAMS])
{
    Stream *stream = captured_stream();
    memset(out, 0, (4 + STREAMS) * sizeof *out);
    if (!stream)
        return;
    out[0] = stream->capture;
    graph_size(stream->graph, out + 1);
    LOCK();
    size_t found = 0;
    for (Stream *one = streams; one && found < STREAMS; one = one->next)
        if (one->capture == stream->capture)
            out[4 + found++] = (uintptr_t)one;
    UNLOCK();
}

/* Work that is not done again comes into the graph that is captured now: nodes, messages and branches, and the
   streams that the work took into it. */
EXPORT void ghost_grow(const uint64_t more[3 + STREAMS])
{
    Stream *stream = captured_stream();
    if (!stream)
        return;
    graph_grow(stream->graph, more[0], more[1], more[2]);
    for (size_t i = 0; i < STREAMS && more[3 + i]; i++) {
        Stream *one = (Stream *)(uintptr_t)more[3 + i];
        one->capture = stream->capture;
        one->graph = stream->graph;
    }
}

void message_launched(void)
{
    Stream *stream = captured_stream();
    if (stream)
        graph_add_message(stream->graph);
    ghost_launched();
}

static Status create(Stream **out, unsigned flags, int priority)
{
    Stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return fail(OUT_OF_MEMORY);
    activate();
    *stream = (Stream){.flags = flags, .priority = priority, .device = current_device};
    LOCK();
    stream->next = streams;
    streams = stream;
    UNLOCK();
    *out = stream;
    return OK;
}

EXPORT Status cudaStreamCreate(Stream **out) { return create(out, 0, 0); }
EXPORT Status cudaStreamCreateWithFlags(Stream **out, unsigned flags) { return create(out, flags, 0); }
EXPORT Status cudaStreamCreateWithPriority(Stream **out, unsigned flags, int p) { return create(out, flags, p); }
ALSO(cuStreamCreate, cudaStreamCreateWithFlags);
ALSO(cuStreamCreateWithPriority, cudaStreamCreateWithPriority);

EXPORT Status cudaStreamDestroy(Stream *stream)
{
    LOCK();
    for (Stream **place = &streams; *place; place = &(*place)->next)
        if (*place == stream) {
            *place = stream->next; /* not freed: an event or a late call may still name it */
            break;
        }
    UNLOCK();
    return OK;
}
ALSO(cuStreamDestroy_v2, cudaStreamDestroy);

ANSWER(cudaStreamGetPriority, (Stream *s, int *priority), *priority = stream_of(s)->priority)
ALSO(cuStreamGetPriority, cudaStreamGetPriority);
ANSWER(cudaStreamGetFlags, (Stream *s, unsigned *flags), *flags = stream_of(s)->flags)
ALSO(cuStreamGetFlags, cudaStreamGetFlags);
ANSWER(cudaStreamGetDevice, (Stream *s, int *device), *device = (uintptr_t)s <= 2 ? current_device : s->device)
ALSO(cuStreamGetDevice, cudaStreamGetDevice);
ANSWER(cudaStreamGetId, (Stream *s, unsigned long long *id), *id = (uintptr_t)s)
ALSO(cuStreamGetId, cudaStreamGetId);

/* A stream that is being captured cannot be waited for, on a GPU either. */
EXPORT Status cudaStreamSynchronize(Stream *s) { return stream_of(s)->capture ? fail(CAPTURE_UNSUPPORTED) : OK; }
ALSO(cudaStreamSynchronize_ptsz, cudaStreamSynchronize);
ALSO(cudaStreamQuery, cudaStreamSynchronize);
ALSO(cuStreamSynchronize, cudaStreamSynchronize);
ALSO(cuStreamQuery, cudaStreamSynchronize);

EXPORT Status cudaStreamWaitEvent(Stream *s, Event *event, unsigned flags)
{
    Stream *stream = stream_of(s);
    if (event && event->capture && !stream->capture) {
        stream->capture = event->capture;
        stream->graph = event->graph;
        graph_add_branch(stream->graph);
    }
    return OK;
}
ALSO(cudaStreamWaitEvent_ptsz, cudaStreamWaitEvent);
ALSO(cuStreamWaitEvent, cudaStreamWaitEvent);

ANSWER(cudaStreamIsCapturing, (Stream *s, int *out), *out = stream_of(s)->capture != 0)
ALSO(cuStreamIsCapturing, cudaStreamIsCapturing);

EXPORT Status cudaStreamGetCaptureInfo_v3(Stream *s, int *status, unsigned long long *id, Graph **graph,
                                          const void ***dependencies, const void **edges, size_t *count)
{
    static const void *none[1];
    Stream *stream = stream_of(s);
    *status = stream->capture != 0;
    if (id)
        *id = stream->capture;
    if (graph)
        *graph = stream->graph;
    if (dependencies)
        *dependencies = none;
    if (edges)
        *edges = 0;
    if (count)
        *count = 0;
    return OK;
}
ALSO(cuStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_v3);
EXPORT Status cudaStreamGetCaptureInfo_v2(Stream *s, int *status, unsigned long long *id, Graph **graph,
                                          const void ***dependencies, size_t *count)
{
    return cudaStreamGetCaptureInfo_v3(s, status, id, graph, dependencies, 0, count);
}
ALSO(cuStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2);
#if CUDA_MAJOR >= 13
ALSO(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_v3);
#else
EXPORT Status cudaStreamGetCaptureInfo(Stream *s, int *status, unsigned long long *id)
{
    return cudaStreamGetCaptureInfo_v3(s, status, id, 0, 0, 0, 0);
}
#endif

static Status begin(Stream *s, Graph *graph)
{
    Stream *stream = stream_of(s);
    if (stream->capture)
        return fail(ILLEGAL_STATE);
    stream->capture = __atomic_add_fetch(&captures, 1, __ATOMIC_RELAXED);
    stream->graph = graph ? graph : graph_new();
    __atomic_add_fetch(&capturing, 1, __ATOMIC_RELAXED);
    return OK;
}
EXPORT Status cudaStreamBeginCapture(Stream *s, int mode) { return begin(s, 0); }
ALSO(cuStreamBeginCapture_v2, cudaStreamBeginCapture);
EXPORT Status cudaStreamBeginCaptureToGraph(Stream *s, Graph *graph, const void *a, const void *b, size_t n, int mode)
{
    return begin(s, graph);
}
ALSO(cuStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph);

static void leave(Stream *stream, uint64_t capture)
{
    if (stream->capture == capture) {
        stream->capture = 0;
        stream->graph = 0;
    }
}

EXPORT Status cudaStreamEndCapture(Stream *s, Graph **graph)
{
    uint64_t capture = stream_of(s)->capture;
    if (!capture)
        return fail(ILLEGAL_STATE);
    if (graph)
        *graph = stream_of(s)->graph;
    LOCK();
    for (Stream *stream = streams; stream; stream = stream->next)
        leave(stream, capture);
    leave(&legacy, capture);
    leave(&per_thread, capture);
    UNLOCK();
    __atomic_sub_fetch(&capturing, 1, __ATOMIC_RELAXED);
    COUNT(graphs);
    return OK;
}
ALSO(cuStreamEndCapture, cudaStreamEndCapture);

EXPORT Status cudaThreadExchangeStreamCaptureMode(int *mode)
{
    static __thread int current;
    int before = current;
    current = *mode;
    *mode = before;
    return OK;
}
ALSO(cuThreadExchangeStreamCaptureMode, cudaThreadExchangeStreamCaptureMode);

EXPORT Status cudaLaunchHostFunc(Stream *s, void (*function)(void *), void *data)
{
    if (!captured(s, 0, 0))
        function(data);
    return OK;
}
ALSO(cuLaunchHostFunc, cudaLaunchHostFunc);
ANSWER(cudaStreamAddCallback, (Stream *s, void (*function)(Stream *, Status, void *), void *data, unsigned flags),
       function(s, OK, data))
ALSO(cuStreamAddCallback, cudaStreamAddCallback);

EXPORT Status cudaEventCreateWithFlags(Event **out, unsigned flags)
{
    *out = calloc(1, sizeof **out);
    return *out ? OK : fail(OUT_OF_MEMORY);
}
ALSO(cuEventCreate, cudaEventCreateWithFlags);
EXPORT Status cudaEventCreate(Event **out) { return cudaEventCreateWithFlags(out, 0); }
ANSWER(cudaEventDestroy, (Event *event), free(event))
ALSO(cuEventDestroy_v2, cudaEventDestroy);
ANSWER(cudaEventRecordWithFlags, (Event *event, Stream *s, unsigned flags),
       *event = (Event){stream_of(s)->capture, stream_of(s)->graph})
ALSO(cuEventRecordWithFlags, cudaEventRecordWithFlags);
EXPORT Status cudaEventRecord(Event *event, Stream *s) { return cudaEventRecordWithFlags(event, s, 0); }
ALSO(cudaEventRecord_ptsz, cudaEventRecord);
ALSO(cuEventRecord, cudaEventRecord);

/* No kernel takes time. A caller that compares two times sees a draw; the inside half decides what a tuner sees. */
ANSWER(cudaEventElapsedTime, (float *milliseconds, Event *from, Event *to), *milliseconds = 5)
ALSO(cudaEventElapsedTime_v2, cudaEventElapsedTime);
ALSO(cuEventElapsedTime, cudaEventElapsedTime);
ALSO(cuEventElapsedTime_v2, cudaEventElapsedTime);
NOTHING(cudaEventQuery) NOTHING(cudaEventSynchronize) NOTHING(cuEventQuery) NOTHING(cuEventSynchronize)
NOTHING(cudaDeviceSynchronize) NOTHING(cuCtxSynchronize)
