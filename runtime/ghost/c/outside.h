/* Memory outside torch, charged at the first use of what needs it; 0 until `ghost_outside` sets numbers. */
#ifndef OUTSIDE_H
#define OUTSIDE_H
#include <stddef.h>
#include <stdint.h>
/* With the lock held: a device's context is there. */
void outside_context(int device);
/* Without it. 1: it fits */
int outside_code(int device, size_t bytes);
int outside_unreadable(int device); /* a kernel runs whose code is not there */
int outside_cublas(int device);
int outside_communicator(int device, int ranks);
int outside_wants_code(void);
unsigned outside_generation(void);
typedef struct {
    uint64_t nodes, branches, messages;
} Size; /* of a graph */
int outside_graph(int device, Size size, int64_t *bytes);
#endif
