/* The figures in a kernel's machine code. */
#ifndef CUBIN_H
#define CUBIN_H
#include <stdint.h>
typedef struct {
    uint32_t code, registers, shared; /* bytes; of one thread; static bytes of a block */
} Cubin;
/* 1 if the fat binary at `data` has the kernel for this architecture (90: sm_90) and it can be read here. */
int cubin_kernel(const void *data, const char *name, int arch, Cubin *out);
#endif
