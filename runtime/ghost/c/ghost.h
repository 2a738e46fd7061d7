/* Declarations shared by the ghost's files. No header of NVIDIA is used: types are defined here. */
#ifndef GHOST_H
#define GHOST_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* A second name of a function of the same file: the driver and the runtime share handles and error numbers. */
#define ALSO(name, function) EXPORT __typeof__(function) name __attribute__((alias(#function)))
/* A function whose success changes nothing that the server could see. */
#define NOTHING(name) EXPORT Status name(void) { return OK; }
/* A function that only answers: ANSWER(name, (parameters), *out = value). What it does not need, it does not read. */
#define ANSWER(name, parameters, ...) EXPORT Status name parameters { __VA_ARGS__; return OK; }

#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB) /* what the driver hands out memory in */
#define MAX_DEVICES 16
#define DEVICE_BASE 0x200000000000ull
#define DEVICE_SPAN ((size_t)1 << 42) /* address space of one device: 4 TiB, without pages */

typedef int Status; /* cudaError_t, CUresult: the same numbers where both have one */
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
};

/* honesty.c */
enum { STUB = 1, UNREAD = 2, GUESS = 3, CUT = 4, NO_ENTRY = 5 };
extern EXPORT unsigned ghost_generation;
EXPORT void ghost_stub(const char *name, unsigned *seen);
void report(int kind, const char *name, const void *at, size_t bytes);
#define REPORT_ONCE(kind, name)                                                                              \
    do {                                                                                                     \
        static unsigned seen_;                                                                               \
        if (seen_ != ghost_generation) {                                                                     \
            seen_ = ghost_generation;                                                                        \
            report(kind, name, 0, 0);                                                                        \
        }                                                                                                    \
    } while (0)

/* row.c: the GPU that is stood for */
#define ROW_KEYS(KEY)                                                                                        \
    KEY(major) KEY(minor) KEY(sms) KEY(l2) KEY(shared_sm) KEY(shared_block) KEY(total) KEY(nvml_total)       \
    KEY(clock) KEY(memory_clock) KEY(bus) KEY(threads_sm) KEY(blocks_sm) KEY(persisting_l2) KEY(window)      \
    KEY(ecc) KEY(nvlinks)
enum RowKey {
#define KEY(name) ROW_##name,
    ROW_KEYS(KEY)
#undef KEY
    ROW_COUNT
};
int64_t row(enum RowKey key); /* reports a number that the table marks as a guess */
int64_t row_quietly(enum RowKey key);
const char *row_name(void);
int device_count(void);
size_t device_total(void);

/* memory.c */
typedef struct {
    char *base;
    size_t next, used, peak;
    int active; /* the primary context is there */
} Device;
extern pthread_mutex_t ghost_lock;
extern Device ghost_devices[MAX_DEVICES];
extern __thread int current_device;
#define LOCK() pthread_mutex_lock(&ghost_lock)
#define UNLOCK() pthread_mutex_unlock(&ghost_lock)
Device *device_at(int device); /* with the lock held */
void activate(void);
int device_of(const void *at); /* -1: not device memory */
int is_pinned(const void *at);
uint64_t reserve_addresses(int device, size_t size, size_t align); /* with the lock held; 0: none left */
int charge(int device, size_t size);                              /* with the lock held; 1: it fits */
void discharge(int device, size_t size);
Status device_malloc(void **at, size_t size);
Status device_free(void *at);
int block_of(const void *at, uint64_t *start, size_t *size);
Status fail(Status error);

/* marks.c: which bytes of device memory hold what they would hold on a GPU. With the lock held */
enum Layer { REAL_BYTES, HELD_BYTES };             /* real bytes are held, too */
enum Mark { UNREAL, REAL, DOUBTED, HELD };         /* DOUBTED: real bytes are only held from now on */
void mark_range(const void *at, size_t size, enum Mark mark);
int all_in(enum Layer layer, const void *at, size_t size);
int next_in(enum Layer layer, uint64_t *from, uint64_t end, uint64_t *to); /* the next piece at or after *from */

/* copies.c */
typedef struct Stream Stream;
Status copy_on(Stream *stream, void *to, const void *from, size_t size);
Status fill_on(Stream *stream, void *to, uint32_t value, int width, size_t count);

/* streams.c, graphs.c */
typedef struct Graph Graph;
struct Stream {
    uint64_t capture; /* 0: not capturing */
    Graph *graph;
    unsigned flags;
    int priority, device;
    Stream *next;
};
Stream *stream_of(Stream *handle); /* resolves the two default streams */
int message_on(Stream *stream); /* the same for one message of NCCL */
void message_launched(void); /* the same for one that Python knows of */
int launch_on(Stream *stream);     /* one kernel: counted, and a node where the stream is captured */
int captured(Stream *stream, void *written, size_t size); /* 1: it became a node and must not happen now */
Graph *graph_new(void);
void graph_add(Graph *graph, void *written, size_t size);
void graph_add_message(Graph *graph);
void graph_add_branch(Graph *graph); /* one more stream works on it */
void graph_size(const Graph *graph, uint64_t out[3]); /* nodes, messages, branches */
void graph_grow(Graph *graph, uint64_t nodes, uint64_t messages, uint64_t branches);

/* attributes.c, entries.c, blas.c */
int attribute(int number, int device);
void device_uuid(char bytes[16], int device);
void *entry_point(const char *name, int version);

extern struct Counts {
    uint64_t launches, mallocs, frees, copies, graphs, nodes;
} counts;
#define COUNT(what) __atomic_add_fetch(&counts.what, 1, __ATOMIC_RELAXED)

#endif
