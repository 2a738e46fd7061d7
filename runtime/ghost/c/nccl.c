/* NCCL: a communicator knows its size and rank; a collective counts as one kernel. */
#include "ghost.h"
#include "outside.h"

typedef struct {
    int ranks, rank, device;
} Communicator;
typedef struct {
    char bytes[128];
} Id;

static Status make(Communicator **out, int ranks, int rank)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return 2; /* ncclSystemError */
    activate();
    if (!outside_communicator(current_device, ranks))
        return 1; /* ncclUnhandledCudaError */
    **out = (Communicator){ranks, rank, current_device};
    return OK;
}
EXPORT Status ncclGetVersion(int *version)
{
    *version = NCCL_VERSION;
    return OK;
}
EXPORT Status ncclGetUniqueId(Id *id)
{
    memset(id, 7, sizeof *id);
    return OK;
}
EXPORT Status ncclCommInitRank(Communicator **out, int ranks, Id id, int rank) { (void)id; return make(out, ranks, rank); }
EXPORT Status ncclCommInitRankConfig(Communicator **out, int ranks, Id id, int rank, void *config)
{
    (void)id, (void)config;
    return make(out, ranks, rank);
}
EXPORT Status ncclCommInitRankScalable(Communicator **out, int ranks, int rank, int ids, Id *id, void *config)
{
    (void)ids, (void)id, (void)config;
    return make(out, ranks, rank);
}
EXPORT Status ncclCommInitAll(Communicator **out, int count, const int *devices)
{
    for (int rank = 0; rank < count; rank++) {
        make(&out[rank], count, rank);
        out[rank]->device = devices ? devices[rank] : rank;
    }
    return OK;
}
/* Who else takes this colour is not known here: the whole group is assumed, and said. */
EXPORT Status ncclCommSplit(Communicator *parent, int color, int key, Communicator **out, void *config)
{
    (void)color, (void)key, (void)config;
    REPORT_ONCE(GUESS, "ncclCommSplit");
    return make(out, parent->ranks, parent->rank);
}
static Status drop(Communicator *communicator)
{
    free(communicator);
    return OK;
}
EXPORT Status ncclCommDestroy(Communicator *communicator) { return drop(communicator); }
EXPORT Status ncclCommAbort(Communicator *communicator) { return drop(communicator); }
EXPORT Status ncclCommCount(const Communicator *communicator, int *count)
{
    *count = communicator->ranks;
    return OK;
}
EXPORT Status ncclCommUserRank(const Communicator *communicator, int *rank)
{
    *rank = communicator->rank;
    return OK;
}
EXPORT Status ncclCommCuDevice(const Communicator *communicator, int *device)
{
    *device = communicator->device;
    return OK;
}
EXPORT Status ncclCommGetAsyncError(Communicator *communicator, Status *error)
{
    (void)communicator;
    *error = OK;
    return OK;
}
EXPORT const char *ncclGetErrorString(Status status) { return status ? "an error of NCCL" : "no error"; }
EXPORT const char *ncclGetLastError(Communicator *communicator) { (void)communicator; return ""; }
EXPORT Status ncclMemAlloc(void **at, size_t size) { return device_malloc(at, size) ? 1 : OK; }
EXPORT Status ncclMemFree(void *at) { return device_free(at) ? 4 : OK; }
EXPORT Status ncclCommRegister(const Communicator *communicator, void *buffer, size_t size, void **handle)
{
    (void)communicator, (void)size;
    *handle = buffer;
    return OK;
}
EXPORT Status ncclCommWindowRegister(Communicator *communicator, void *buffer, size_t size, void **window, int flags)
{
    (void)communicator, (void)buffer, (void)size, (void)flags;
    *window = calloc(1, 64);
    return OK;
}
EXPORT Status ncclCommWindowDeregister(Communicator *communicator, void *window)
{
    (void)communicator;
    free(window);
    return OK;
}
EXPORT Status ncclRedOpCreatePreMulSum(int *operation)
{
    *operation = 5; /* the first number after the built-in operations */
    return OK;
}
NOTHING(ncclRedOpDestroy)
NOTHING(ncclCommDeregister)
NOTHING(ncclCommFinalize)
NOTHING(ncclGroupStart)
NOTHING(ncclGroupEnd)

/* (const void *, void *, size_t, int type, [int], Communicator *, Stream *), in the order of each function. */
EXPORT Status ncclAllReduce(const void *a, void *b, size_t n, int type, int operation, void *communicator, Stream *s)
{
    (void)a, (void)b, (void)n, (void)type, (void)operation, (void)communicator;
    return message_on(s);
}
ALSO(ncclReduceScatter, ncclAllReduce);
ALSO(ncclBroadcast, ncclAllReduce);
EXPORT Status ncclAllGather(const void *a, void *b, size_t n, int type, void *communicator, Stream *s)
{
    (void)a, (void)b, (void)n, (void)type, (void)communicator;
    return message_on(s);
}
ALSO(ncclAlltoAll, ncclAllGather);
EXPORT Status ncclReduce(const void *a, void *b, size_t n, int type, int operation, int root, void *c, Stream *s)
{
    (void)a, (void)b, (void)n, (void)type, (void)operation, (void)root, (void)c;
    return message_on(s);
}
EXPORT Status ncclBcast(void *a, size_t n, int type, int peer, void *communicator, Stream *s)
{
    (void)a, (void)n, (void)type, (void)peer, (void)communicator;
    return message_on(s);
}
ALSO(ncclSend, ncclBcast);
ALSO(ncclRecv, ncclBcast);
