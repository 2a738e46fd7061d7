/* Charges memory outside torch at the first use of what needs it. The numbers come from a measured table. */
#include "outside.h"
#include "ghost.h"

/* libraries     the first work beyond a fill: what the driver loads whole
   room          bytes of code that fit before the driver takes another granule
   cublas        the first handle, and the code that comes with it
   module        a compiled module with many large kernels
   kernel        bytes of code of a kernel that was compiled for the start
   graph         a graph, and again each further stream that works on it; node: each of its nodes
   first         what the first communicator takes beyond a later one
   message_graph a graph with messages of NCCL; message: each of them */
#define NUMBERS(KEY)                                                                                         \
    KEY(context) KEY(libraries) KEY(room) KEY(cublas) KEY(cublas_code) KEY(module) KEY(kernel) KEY(graph)    \
    KEY(node) KEY(first) KEY(message_graph) KEY(message)
enum Number {
#define KEY(name) name##_bytes,
    NUMBERS(KEY)
#undef KEY
    NUMBER_COUNT
};
static const char *const names[] = {
#define KEY(name) #name,
    NUMBERS(KEY)
#undef KEY
};
#define MOST_RANKS 1024
static int64_t numbers[NUMBER_COUNT], by_ranks[MOST_RANKS + 1];
static unsigned generation;
static struct {
    int context, libraries, cublas, communicators, half;
    uint64_t code, granules;
} seen[MAX_DEVICES];

/* What came so far on each device: what a table is fitted to. */
enum { CHARGED, CODE, GRAPHS, NODES, BRANCHES, MESSAGES, MESSAGE_GRAPHS, MODULES, COMMUNICATORS, COUNTED = 16 };
static uint64_t counted[MAX_DEVICES][COUNTED]; /* COMMUNICATORS + n: of n + 1 ranks */

/* With the lock held. */
static int appear(int device, int64_t bytes)
{
    if (bytes <= 0)
        return 1;
    if (!charge(device, (size_t)bytes))
        return 0;
    counted[device][CHARGED] += (uint64_t)bytes;
    return 1;
}

void outside_context(int device)
{
    if (!numbers[context_bytes] || seen[device].context)
        return;
    seen[device].context = 1;
    appear(device, numbers[context_bytes]);
}

static int code(int device, uint64_t bytes)
{
    seen[device].code += bytes;
    if (!numbers[room_bytes] || seen[device].code < (uint64_t)numbers[room_bytes])
        return 1;
    uint64_t granules = (seen[device].code - (uint64_t)numbers[room_bytes]) / GRANULE + 1;
    uint64_t more = granules - seen[device].granules;
    seen[device].granules = granules;
    return appear(device, (int64_t)(more * GRANULE));
}

int outside_code(int device, size_t bytes)
{
    LOCK();
    counted[device][CODE] += bytes;
    int fits = code(device, bytes);
    UNLOCK();
    return fits;
}

/* Whether a kernel that was seen before may be new: its code is loaded again for each new table. */
int outside_wants_code(void) { return numbers[room_bytes] != 0; }
unsigned outside_generation(void) { return generation; }

static int libraries(int device)
{
    if (seen[device].libraries)
        return 1;
    seen[device].libraries = 1;
    return appear(device, numbers[libraries_bytes]);
}

static int charge_module(int device)
{
    seen[device].half = 0;
    counted[device][MODULES]++;
    return seen[device].communicators || appear(device, numbers[module_bytes]);
}
/* A module takes its memory when its first kernel runs. Which kernels are a half's cannot be told from their code,
   as it has none; a real one is charged when it is loaded. */
static int module(int device, int is_half)
{
    LOCK();
    seen[device].half = is_half;
    int fits = is_half || charge_module(device);
    UNLOCK();
    return fits;
}
int outside_unreadable(int device)
{
    LOCK();
    int fits = !seen[device].half || charge_module(device);
    UNLOCK();
    return fits;
}

int outside_cublas(int device)
{
    int fits = 1;
    LOCK();
    if (!seen[device].cublas) {
        seen[device].cublas = 1;
        fits = appear(device, numbers[cublas_bytes]) & code(device, (uint64_t)numbers[cublas_code_bytes]);
    }
    UNLOCK();
    return fits;
}

/* NCCL's own code leaves room for all that comes after it. */
int outside_communicator(int device, int ranks)
{
    if (ranks < 2 || ranks > MOST_RANKS)
        return 1;
    LOCK();
    counted[device][COMMUNICATORS + (ranks < 8 ? ranks : 8) - 1]++;
    int fits = appear(device, by_ranks[ranks]);
    if (!seen[device].communicators++) {
        fits &= appear(device, numbers[first_bytes]) & libraries(device);
        numbers[room_bytes] = 0;
    }
    UNLOCK();
    return fits;
}

int outside_graph(int device, Size size, int64_t *bytes)
{
    int64_t all = numbers[graph_bytes] * (int64_t)(1 + size.branches) + numbers[node_bytes] * (int64_t)size.nodes;
    if (size.messages)
        all += numbers[message_graph_bytes] + numbers[message_bytes] * (int64_t)size.messages;
    LOCK();
    counted[device][GRAPHS]++;
    counted[device][NODES] += size.nodes;
    counted[device][BRANCHES] += size.branches;
    counted[device][MESSAGES] += size.messages;
    counted[device][MESSAGE_GRAPHS] += size.messages != 0;
    int fits = appear(device, all);
    UNLOCK();
    *bytes = fits ? all : 0;
    return fits;
}

static void set(const char *key, size_t length, int64_t value)
{
    for (int i = 0; i < NUMBER_COUNT; i++)
        if (strlen(names[i]) == length && !strncmp(names[i], key, length))
            numbers[i] = value;
    int ranks = atoi(key); /* a communicator of so many ranks */
    if (ranks > 1 && ranks <= MOST_RANKS)
        by_ranks[ranks] = value;
}

/* "context=648871936;libraries=73400320;2=570425344": what is not named is 0. */
EXPORT void ghost_outside(const char *text)
{
    LOCK();
    memset(numbers, 0, sizeof numbers);
    memset(by_ranks, 0, sizeof by_ranks);
    memset(seen, 0, sizeof seen);
    memset(counted, 0, sizeof counted);
    generation++;
    for (const char *at = text; at && *at;) {
        const char *equals = strchr(at, '=');
        if (!equals)
            break;
        set(at, (size_t)(equals - at), strtoll(equals + 1, 0, 10));
        at = strchr(equals, ';');
        at = at ? at + 1 : 0;
    }
    for (int device = 0; device < MAX_DEVICES; device++)
        if (ghost_devices[device].active)
            outside_context(device);
    UNLOCK();
}

/* Of the current device. */
EXPORT void ghost_counted(uint64_t out[COUNTED])
{
    LOCK();
    memcpy(out, counted[current_device], sizeof counted[0]);
    UNLOCK();
}

/* What only the inside half sees: "libraries", "cublas", a "communicator" of n ranks, a "message" of one, a large
   "module" of kernels (n: it is a half), a "kernel" that was compiled for the start. 0 if it fits, else 2. */
EXPORT int ghost_appears(int device, const char *what, int n)
{
    int fits = 1;
    if (!strcmp(what, "libraries")) {
        LOCK();
        fits = libraries(device);
        UNLOCK();
    } else if (!strcmp(what, "cublas"))
        fits = outside_cublas(device);
    else if (!strcmp(what, "kernel"))
        fits = outside_code(device, (size_t)numbers[kernel_bytes]);
    else if (!strcmp(what, "message"))
        message_launched();
    else if (!strcmp(what, "module"))
        fits = module(device, n);
    else if (!strcmp(what, "communicator"))
        fits = outside_communicator(device, n);
    return fits ? OK : OUT_OF_MEMORY;
}
