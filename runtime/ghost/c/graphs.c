/* Graphs: how many nodes they have, and which bytes they write: a launch marks those bytes unreal. */
#include "ghost.h"
#include "outside.h"

typedef struct {
    void *at;
    size_t size;
} Write;
struct Graph {
    uint64_t nodes, messages, branches;
    int64_t outside; /* what an instantiated one holds of device memory */
    int device;
    Write *writes;
    size_t count, room;
};

Graph *graph_new(void)
{
    Graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        abort();
    return graph;
}

void graph_add(Graph *graph, void *written, size_t size)
{
    COUNT(nodes);
    LOCK();
    graph->nodes++;
    if (size && device_of(written) >= 0) {
        if (graph->count == graph->room) {
            graph->room = graph->room * 2 + 8;
            graph->writes = realloc(graph->writes, graph->room * sizeof(Write));
            if (!graph->writes)
                abort();
        }
        graph->writes[graph->count++] = (Write){written, size};
    }
    UNLOCK();
}

void graph_add_message(Graph *graph)
{
    LOCK();
    graph->messages++;
    UNLOCK();
}

void graph_add_branch(Graph *graph)
{
    LOCK();
    graph->branches++;
    UNLOCK();
}

void graph_size(const Graph *graph, uint64_t out[3])
{
    out[0] = graph->nodes, out[1] = graph->messages, out[2] = graph->branches;
}

void graph_grow(Graph *graph, uint64_t nodes, uint64_t messages, uint64_t branches)
{
    LOCK();
    graph->nodes += nodes, graph->messages += messages, graph->branches += branches;
    UNLOCK();
}

static Graph *copy_of(const Graph *graph)
{
    Graph *made = graph_new();
    *made = *graph;
    made->outside = 0;
    made->room = made->count;
    made->writes = 0;
    if (made->count) {
        made->writes = malloc(made->count * sizeof(Write));
        if (!made->writes)
            abort();
        memcpy(made->writes, graph->writes, made->count * sizeof(Write));
    }
    return made;
}

ANSWER(cudaGraphCreate, (Graph **out, unsigned flags), *out = graph_new())
ALSO(cuGraphCreate, cudaGraphCreate);
ANSWER(cudaGraphClone, (Graph **out, Graph *graph), *out = copy_of(graph))
ALSO(cuGraphClone, cudaGraphClone);
EXPORT Status cudaGraphDestroy(Graph *graph)
{
    if (!graph)
        return OK;
    LOCK();
    discharge(graph->device, (size_t)graph->outside);
    UNLOCK();
    free(graph->writes);
    free(graph);
    return OK;
}
ALSO(cuGraphDestroy, cudaGraphDestroy);
ALSO(cudaGraphExecDestroy, cudaGraphDestroy);
ALSO(cuGraphExecDestroy, cudaGraphDestroy);

EXPORT Status cudaGraphGetNodes(Graph *graph, void **nodes, size_t *count)
{
    if (!nodes) {
        *count = graph->nodes;
        return OK;
    }
    for (size_t i = 0; i < *count; i++)
        nodes[i] = i < graph->nodes ? (void *)(uintptr_t)(i + 1) : 0;
    if (*count > graph->nodes)
        *count = graph->nodes;
    return OK;
}
ALSO(cuGraphGetNodes, cudaGraphGetNodes);

static Status instantiate(Graph **out, const Graph *graph)
{
    Graph *made = copy_of(graph);
    made->device = current_device;
    Size size = {made->nodes, made->branches, made->messages};
    if (!outside_graph(made->device, size, &made->outside)) {
        cudaGraphDestroy(made);
        return fail(OUT_OF_MEMORY);
    }
    *out = made;
    return OK;
}
EXPORT Status cudaGraphInstantiateWithFlags(Graph **out, Graph *graph, unsigned long long flags)
{
    return instantiate(out, graph);
}
ALSO(cuGraphInstantiateWithFlags, cudaGraphInstantiateWithFlags);
ALSO(cudaGraphInstantiate, cudaGraphInstantiateWithFlags);

/* The parameters: flags, the stream to upload on, then the two results. */
typedef struct {
    unsigned long long flags;
    Stream *upload;
    void *failed_node;
    int result;
} InstantiateParams;
EXPORT Status cudaGraphInstantiateWithParams(Graph **out, Graph *graph, InstantiateParams *params)
{
    params->failed_node = 0;
    params->result = 0;
    return instantiate(out, graph);
}
ALSO(cuGraphInstantiateWithParams, cudaGraphInstantiateWithParams);

EXPORT Status cudaGraphLaunch(Graph *graph, Stream *stream)
{
    COUNT(launches);
    if (captured(stream, 0, 0))
        return OK;
    LOCK();
    for (size_t i = 0; i < graph->count; i++)
        mark_range(graph->writes[i].at, graph->writes[i].size, UNREAL);
    UNLOCK();
    return OK;
}
ALSO(cudaGraphLaunch_ptsz, cudaGraphLaunch);
ALSO(cuGraphLaunch, cudaGraphLaunch);
NOTHING(cudaGraphUpload) NOTHING(cuGraphUpload)
