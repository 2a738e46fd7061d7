/* Kernels can be registered, queried and launched. None runs. */
#include "cubin.h"
#include "fatbin.h"
#include "ghost.h"
#include "layouts.h"
#include "outside.h"

typedef struct {
    unsigned x, y, z;
} Dim3;
typedef struct {
    int arch;
    const void *data; /* the fat binary; 0: not readable */
} Module;
typedef struct Symbol {
    const void *host;
    const char *name;
    Module *module;
    uint64_t device; /* of a variable */
    size_t size;
    unsigned reported;
    unsigned loaded; /* for which table of what lies outside torch its code was counted */
    struct Symbol *next;
} Symbol;
#define BUCKETS 65536
static Symbol *functions[BUCKETS], *variables[1024];

static Symbol **bucket(Symbol **table, size_t count, const void *host)
{
    return &table[((uintptr_t)host >> 4) * 2654435761u % count];
}
static void add(Symbol **place, Symbol symbol)
{
    Symbol *made = malloc(sizeof *made);
    if (!made)
        abort();
    LOCK();
    symbol.next = *place;
    *made = symbol;
    *place = made;
    UNLOCK();
}
static Symbol *find(Symbol *symbol, const void *host)
{
    while (symbol && symbol->host != host)
        symbol = symbol->next;
    return symbol;
}

EXPORT void **__cudaRegisterFatBinary(void *wrapper)
{
    Module *module = malloc(sizeof *module);
    if (!module)
        abort();
    module->arch = fatbin_arch(wrapper);
    module->data = module->arch ? fatbin_data(wrapper) : 0;
    return (void **)module;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **module) { }
EXPORT void __cudaUnregisterFatBinary(void **module) { }
EXPORT char __cudaInitModule(void **module) { return 1; }
EXPORT void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name)
{
    add(bucket(functions, BUCKETS, host), (Symbol){.host = host, .name = name, .module = (Module *)module});
}
EXPORT void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int external, size_t size)
{
    add(bucket(variables, 1024, host), (Symbol){.host = host, .name = name, .module = (Module *)module, .size = size});
}
EXPORT const char *ghost_kernel_name(const void *host)
{
    Symbol *symbol = find(*bucket(functions, BUCKETS, host), host);
    return symbol ? symbol->name : 0;
}

/* A variable of a module lies in memory that the module brings: it is counted outside torch, not here. */
static Status variable(const void *host, Symbol **out)
{
    Symbol *symbol = find(*bucket(variables, 1024, host), host);
    *out = symbol;
    if (!symbol)
        return fail(13); /* cudaErrorInvalidSymbol */
    LOCK();
    if (!symbol->device)
        symbol->device = reserve_addresses(current_device, symbol->size, GRANULE);
    UNLOCK();
    return OK;
}
EXPORT Status cudaGetSymbolAddress(void **at, const void *host)
{
    Symbol *symbol;
    Status status = variable(host, &symbol);
    *at = symbol ? (void *)symbol->device : 0;
    return status;
}
EXPORT Status cudaGetSymbolSize(size_t *size, const void *host)
{
    Symbol *symbol;
    Status status = variable(host, &symbol);
    *size = symbol ? symbol->size : 0;
    return status;
}
EXPORT Status cudaMemcpyToSymbolAsync(const void *host, const void *from, size_t size, size_t offset, int kind, Stream *s)
{
    Symbol *symbol;
    Status status = variable(host, &symbol);
    return status ? status : copy_on(s, (char *)symbol->device + offset, from, size);
}
EXPORT Status cudaMemcpyToSymbol(const void *host, const void *from, size_t size, size_t offset, int kind)
{
    return cudaMemcpyToSymbolAsync(host, from, size, offset, kind, 0);
}
EXPORT Status cudaMemcpyFromSymbolAsync(void *to, const void *host, size_t size, size_t offset, int kind, Stream *s)
{
    Symbol *symbol;
    Status status = variable(host, &symbol);
    return status ? status : copy_on(s, to, (char *)symbol->device + offset, size);
}
EXPORT Status cudaMemcpyFromSymbol(void *to, const void *host, size_t size, size_t offset, int kind)
{
    return cudaMemcpyFromSymbolAsync(to, host, size, offset, kind, 0);
}

/* <<<...>>> is written as a push, then a stub function that pops and launches. */
typedef struct {
    Dim3 grid, block;
    size_t shared;
    Stream *stream;
} Configuration;
static __thread Configuration configurations[16];
static __thread int depth;
EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, Stream *stream)
{
    if (depth < 16)
        configurations[depth] = (Configuration){grid, block, shared, stream};
    depth++;
    return 0;
}
EXPORT Status __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, Stream **stream)
{
    if (depth > 0 && --depth < 16) {
        Configuration *top = &configurations[depth];
        *grid = top->grid, *block = top->block, *shared = top->shared, *stream = top->stream;
    }
    return OK;
}

typedef struct {
    Dim3 grid, block;
    size_t shared;
    Stream *stream;
} LaunchConfig; /* the driver's has its stream at the same offset */

/* The driver loads a kernel's code when it is first launched. */
static int load(const void *f)
{
    if (!outside_wants_code())
        return 1;
    Symbol *symbol = find(*bucket(functions, BUCKETS, f), f);
    if (!symbol || symbol->loaded == outside_generation())
        return 1;
    symbol->loaded = outside_generation();
    Cubin cubin;
    if (!cubin_kernel(symbol->module->data, symbol->name, symbol->module->arch, &cubin))
        return outside_unreadable(current_device);
    return outside_code(current_device, cubin.code);
}
static Status start(const void *f, Stream *stream)
{
    activate();
    return load(f) ? launch_on(stream) : fail(OUT_OF_MEMORY);
}
EXPORT Status cudaLaunchKernel(const void *f, Dim3 grid, Dim3 block, void **arguments, size_t shared, Stream *stream)
{
    return start(f, stream);
}
ALSO(cudaLaunchKernel_ptsz, cudaLaunchKernel);
ALSO(__cudaLaunchKernel, cudaLaunchKernel);
ALSO(__cudaLaunchKernel_ptsz, cudaLaunchKernel);
ALSO(cudaLaunchCooperativeKernel, cudaLaunchKernel);
EXPORT Status cudaLaunchKernelExC(const LaunchConfig *config, const void *f, void **arguments)
{
    return start(f, config->stream);
}
ALSO(cudaLaunchKernelExC_ptsz, cudaLaunchKernelExC);
ALSO(cuLaunchKernelEx, cudaLaunchKernelExC);
EXPORT Status cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, Stream *stream)
{
    return start(f, stream);
}
ALSO(cuLaunchCooperativeKernel, cuLaunchKernel);

ANSWER(__cudaGetKernel, (const void **kernel, const void *f), *kernel = f)
ALSO(cudaGetFuncBySymbol, __cudaGetKernel);
ALSO(cudaGetKernel, __cudaGetKernel);
NOTHING(cudaFuncSetAttribute) NOTHING(cudaFuncSetCacheConfig) NOTHING(cuFuncSetAttribute)
NOTHING(cuFuncSetCacheConfig)

/* A kernel's registers and static shared memory stand in its machine code; where that is not readable, they are a
   guess, and so is what follows from them. */
enum { REGISTERS = 64, THREADS = 1024, WARP = 32, REGISTER_UNIT = 256 };
static void guess_about(const char *what, const void *f)
{
    static Symbol unknown = {.name = "an unnamed kernel"};
    Symbol *symbol = find(*bucket(functions, BUCKETS, f), f);
    if (!symbol)
        symbol = &unknown;
    if (symbol->reported == ghost_generation)
        return;
    symbol->reported = ghost_generation;
    char name[1024];
    snprintf(name, sizeof name, "%s of %s", what, symbol->name);
    report(GUESS, name, 0, 0);
}
static Cubin figures(const void *f, const char *what, int *arch)
{
    Symbol *symbol = find(*bucket(functions, BUCKETS, f), f);
    Cubin cubin;
    *arch = symbol ? symbol->module->arch : 0;
    if (symbol && cubin_kernel(symbol->module->data, symbol->name, *arch, &cubin))
        return cubin;
    guess_about(what, f);
    return (Cubin){0, REGISTERS, 0};
}
static int warps_by_registers(const Cubin *cubin)
{
    int64_t per_warp = (cubin->registers * WARP + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
    return per_warp ? (int)(attribute(82, current_device) / per_warp) : THREADS / WARP;
}
EXPORT Status cudaFuncGetAttributes(FunctionAttributes *out, const void *f)
{
    int arch;
    Cubin cubin = figures(f, "attributes", &arch);
    if (!arch)
        arch = (int)(row(ROW_major) * 10 + row(ROW_minor));
    int threads = warps_by_registers(&cubin) * WARP;
    memset(out, 0, sizeof *out);
    out->shared = cubin.shared;
    out->max_threads = threads < THREADS ? threads : THREADS;
    out->registers = (int)cubin.registers;
    out->ptx = out->binary = arch;
    out->max_dynamic_shared = (int)attribute(8, current_device) - (int)cubin.shared;
    return OK;
}
EXPORT Status cuFuncGetAttribute(int *value, int which, void *f)
{
    FunctionAttributes all;
    cudaFuncGetAttributes(&all, f);
    *value = which == 0 ? all.max_threads : which == 1 ? (int)all.shared : which == 4 ? all.registers : 0;
    return OK;
}

static int blocks_per_sm(const void *f, int threads, size_t shared)
{
    int arch;
    Cubin cubin = figures(f, "occupancy", &arch);
    int64_t warps = threads > 0 ? (threads + WARP - 1) / WARP : 1;
    int64_t blocks = row(ROW_blocks_sm), by_threads = row(ROW_threads_sm) / (warps * WARP);
    int64_t by_registers = warps_by_registers(&cubin) / warps;
    int64_t by_shared = row(ROW_shared_sm) / ((int64_t)(shared + cubin.shared) + attribute(111, current_device));
    if (by_threads < blocks)
        blocks = by_threads;
    if (by_registers < blocks)
        blocks = by_registers;
    return (int)(by_shared < blocks ? by_shared : blocks);
}
ANSWER(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *count, const void *f, int threads, size_t shared),
       *count = blocks_per_sm(f, threads, shared))
ALSO(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cudaOccupancyMaxActiveBlocksPerMultiprocessor);
ALSO(cuOccupancyMaxActiveBlocksPerMultiprocessor, cudaOccupancyMaxActiveBlocksPerMultiprocessor);
ALSO(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cudaOccupancyMaxActiveBlocksPerMultiprocessor);
EXPORT Status cudaOccupancyMaxActiveClusters(int *count, const void *f, const LaunchConfig *config)
{
    guess_about("clusters", f);
    *count = (int)row(ROW_sms) / 2;
    return OK;
}
EXPORT Status cuOccupancyMaxActiveClusters(int *count, void *f, const LaunchConfig *config)
{
    return cudaOccupancyMaxActiveClusters(count, f, config);
}
