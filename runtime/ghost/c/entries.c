/* How code without our libcudart finds driver functions: by name and version, or in a private table. */
#include "ghost.h"
#include <dlfcn.h>

/* Functions whose arguments changed: from this CUDA version on, this name is meant. Otherwise the highest suffix. */
static const struct {
    const char *name;
    int version;
    const char *meant;
} VERSIONED[] = {
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"},
    {"cuStreamGetCtx", 0, "cuStreamGetCtx"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 0, "cuGetProcAddress"},
};

/* Any function of the driver that is asked for and not here is one of these: it answers OK and reports its name. */
#define SPARE 1024
static char *spare_names[SPARE];
static int spare_count;
static unsigned spare_seen[SPARE];
static Status spare(int index)
{
    ghost_stub(spare_names[index], &spare_seen[index]);
    return OK;
}
#define ONE(n) static Status spare_##n(void) { return spare(0x##n); }
#define SIXTEEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) \
                   ONE(n##8) ONE(n##9) ONE(n##a) ONE(n##b) ONE(n##c) ONE(n##d) ONE(n##e) ONE(n##f)
#define PAGE(n) SIXTEEN(n##0) SIXTEEN(n##1) SIXTEEN(n##2) SIXTEEN(n##3) SIXTEEN(n##4) SIXTEEN(n##5) SIXTEEN(n##6) \
    SIXTEEN(n##7) SIXTEEN(n##8) SIXTEEN(n##9) SIXTEEN(n##a) SIXTEEN(n##b) SIXTEEN(n##c) SIXTEEN(n##d) SIXTEEN(n##e) \
    SIXTEEN(n##f)
PAGE(0) PAGE(1) PAGE(2) PAGE(3)
#undef ONE
#define ONE(n) spare_##n,
static Status (*const spares[SPARE])(void) = {PAGE(0) PAGE(1) PAGE(2) PAGE(3)};

static void *spare_for(const char *name)
{
    LOCK();
    int index = 0;
    while (index < spare_count && strcmp(spare_names[index], name))
        index++;
    if (index == spare_count && spare_count < SPARE)
        spare_names[spare_count++] = strdup(name);
    UNLOCK();
    return index < SPARE ? (void *)spares[index] : 0;
}

static void *here(const char *name)
{
    static void *self;
    if (!self)
        self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = self ? dlsym(self, name) : 0;
    return found ? found : dlsym(RTLD_DEFAULT, name);
}

void *entry_point(const char *name, int version)
{
    for (size_t i = 0; i < sizeof VERSIONED / sizeof *VERSIONED; i++)
        if (!strcmp(name, VERSIONED[i].name) && version >= VERSIONED[i].version)
            return here(VERSIONED[i].meant);
    static const char *const SUFFIXES[] = {"_v4", "_v3", "_v2", ""};
    for (size_t i = 0; i < 4; i++) {
        char full[192];
        snprintf(full, sizeof full, "%s%s", name, SUFFIXES[i]);
        void *found = here(full);
        if (found)
            return found;
    }
    if (version > CUDA_VERSION || !*name) /* a driver of this version has it as little; "" only tries the driver */
        return 0;
    void *spare = strncmp(name, "cu", 2) == 0 ? spare_for(name) : 0;
    if (!spare)
        report(NO_ENTRY, name, 0, 0);
    return spare;
}

static Status look_up(const char *name, void **function, int version, int *found)
{
    *function = entry_point(name, version);
    if (found)
        *found = *function ? 0 : 1; /* 1: there is no such symbol */
    return *function ? OK : NOT_FOUND;
}
EXPORT Status cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found)
{
    return look_up(name, function, version, found);
}
EXPORT Status cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return look_up(name, function, version, 0);
}
ANSWER(cudaGetDriverEntryPoint, (const char *name, void **function, unsigned long long flags, int *found),
       look_up(name, function, CUDA_VERSION, found))
ALSO(cudaGetDriverEntryPoint_ptsz, cudaGetDriverEntryPoint);
ANSWER(cudaGetDriverEntryPointByVersion,
       (const char *name, void **function, unsigned version, unsigned long long flags, int *found),
       look_up(name, function, (int)version, found))
ALSO(cudaGetDriverEntryPointByVersion_ptsz, cudaGetDriverEntryPointByVersion);

/* A runtime that is linked into a library asks for tables that nobody documents when it is first called. Without them
   it fails every call, and the library may go on: it is named once. */
EXPORT Status cuGetExportTable(const void **table, const unsigned char id[16])
{
    static unsigned seen[64];
    static const void *users[64];
    *table = 0;
    Dl_info user;
    if (!dladdr(__builtin_return_address(0), &user))
        user = (Dl_info){"/an unnamed library"};
    size_t i = 0;
    while (i < 63 && users[i] && users[i] != user.dli_fbase)
        i++;
    users[i] = user.dli_fbase;
    if (seen[i] != ghost_generation) {
        seen[i] = ghost_generation;
        char name[256];
        const char *file = strrchr(user.dli_fname, '/');
        snprintf(name, sizeof name, "CUDA runtime of %s", file ? file + 1 : user.dli_fname);
        report(NO_ENTRY, name, 0, 0);
    }
    return NOT_SUPPORTED;
}
