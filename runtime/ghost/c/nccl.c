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
ANSWER(ncclGetVersion, (int *version), *version = NCCL_VERSION)
ANSWER(ncclGetUniqueId, (Id *id), memset(id, 7, sizeof *id))
EXPORT Status ncclCommInitRank(Communicator **out, int ranks, Id id, int rank) { return make(out, ranks, rank); }
EXPORT Status ncclCommInitRankConfig(Communicator **out, int ranks, Id id, int rank, void *config)
{
    return make(out, ranks, rank);
}
EXPORT Status ncclCommInitRankScalable(Communicator **out, int ranks, int rank, int ids, Id *id, void *config)
{
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
ANSWER(ncclCommCount, (const Communicator *communicator, int *count), *count = communicator->ranks)
ANSWER(ncclCommUserRank, (const Communicator *communicator, int *rank), *rank = communicator->rank)
ANSWER(ncclCommCuDevice, (const Communicator *communicator, int *device), *device = communicator->device)
ANSWER(ncclCommGetAsyncError, (Communicator *communicator, Status *error), *error = OK)
EXPORT const char *ncclGetErrorString(Status status) { return status ? "an error of NCCL" : "no error"; }
EXPORT const char *ncclGetLastError(Communicator *communicator) { return ""; }
EXPORT Status ncclMemAlloc(void **at, size_t size) { return device_malloc(at, size) ? 1 : OK; }
EXPORT Status ncclMemFree(void *at) { return device_free(at) ? 4 : OK; }
ANSWER(ncclCommRegister, (const Communicator *communicator, void *buffer, size_t size, void **handle),
       *handle = buffer)
ANSWER(ncclCommWindowRegister, (Communicator *communicator, void *buffer, size_t size, void **window, int flags),
       *window = calloc(1, 64))
ANSWER(ncclCommWindowDeregister, (Communicator *communicator, void *window), free(window))
ANSWER(ncclRedOpCreatePreMulSum, (int *operation),
       *operation = 5) /* the first number after the built-in operations */
NOTHING(ncclRedOpDestroy) NOTHING(ncclCommDeregister) NOTHING(ncclCommFinalize) NOTHING(ncclGroupStart)
NOTHING(ncclGroupEnd)

/* (const void *, void *, size_t, int type, [int], Communicator *, Stream *), in the order of each function. */
EXPORT Status ncclAllReduce(const void *a, void *b, size_t n, int type, int operation, void *communicator, Stream *s)
{
    return message_on(s);
}
ALSO(ncclReduceScatter, ncclAllReduce);
ALSO(ncclBroadcast, ncclAllReduce);
EXPORT Status ncclAllGather(const void *a, void *b, size_t n, int type, void *communicator, Stream *s)
{
    return message_on(s);
}
ALSO(ncclAlltoAll, ncclAllGather);
EXPORT Status ncclReduce(const void *a, void *b, size_t n, int type, int operation, int root, void *c, Stream *s)
{
    return message_on(s);
}
EXPORT Status ncclBcast(void *a, size_t n, int type, int peer, void *communicator, Stream *s)
{
    return message_on(s);
}
ALSO(ncclSend, ncclBcast);
ALSO(ncclRecv, ncclBcast);
