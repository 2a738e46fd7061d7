/* cuBLAS and cuBLASLt: each product counts as one kernel on the handle's stream. */
#include "ghost.h"
#include "outside.h"

typedef struct {
    Stream *stream;
    int math_mode, pointer_mode, atomics_mode, sm_target;
} Handle;

enum { ALLOC_FAILED = 3 }; /* of CUBLAS_STATUS */
static Status make(void **out, size_t size)
{
    *out = calloc(1, size);
    return *out ? OK : ALLOC_FAILED;
}
static Status drop(void *handle)
{
    free(handle);
    return OK;
}

EXPORT Status cublasCreate_v2(void **handle)
{
    activate();
    return outside_cublas(current_device) ? make(handle, sizeof(Handle)) : ALLOC_FAILED;
}
EXPORT Status cublasDestroy_v2(void *handle) { return drop(handle); }
ANSWER(cublasSetStream_v2, (Handle *handle, Stream *stream), handle->stream = stream)
ANSWER(cublasGetStream_v2, (Handle *handle, Stream **stream), *stream = handle->stream)
#define SETTING(set, get, field)                                                                             \
    EXPORT Status set(Handle *handle, int value) { handle->field = value; return OK; }                       \
    EXPORT Status get(Handle *handle, int *value) { *value = handle->field; return OK; }
SETTING(cublasSetMathMode, cublasGetMathMode, math_mode)
SETTING(cublasSetPointerMode_v2, cublasGetPointerMode_v2, pointer_mode)
SETTING(cublasSetAtomicsMode, cublasGetAtomicsMode, atomics_mode)
SETTING(cublasSetSmCountTarget, cublasGetSmCountTarget, sm_target)
NOTHING(cublasSetWorkspace_v2)

/* torch pins CUDA's toolkit as a whole since 2.11, and cuBLAS is a little newer than it: a guess then. */
static int version(void)
{
    if (!CUBLAS_VERSION)
        REPORT_ONCE(GUESS, "version of cuBLAS");
    return CUBLAS_VERSION ? CUBLAS_VERSION : CUDA_VERSION / 1000 * 10000 + CUDA_VERSION % 1000 / 10 * 100;
}
ANSWER(cublasGetVersion_v2, (Handle *handle, int *out), *out = version())
ANSWER(cublasGetProperty, (int which, int *value),
       *value = which == 0 ? version() / 10000 : which == 1 ? version() / 100 % 100 : version() % 100)
EXPORT const char *cublasGetStatusString(Status status) { return status ? "an error of cuBLAS" : "success"; }
EXPORT const char *cublasGetStatusName(Status status)
{
    return status ? "CUBLAS_STATUS_INTERNAL_ERROR" : "CUBLAS_STATUS_SUCCESS";
}
ALSO(cublasLtGetStatusString, cublasGetStatusString);
ALSO(cublasLtGetStatusName, cublasGetStatusName);

/* Functions whose result is a device's memory that no kernel wrote; all begin with the handle. */
#define PRODUCT(name) EXPORT Status name(Handle *handle) { return launch_on(handle->stream); }
#define FOUR(end) PRODUCT(cublasS##end) PRODUCT(cublasD##end) PRODUCT(cublasC##end) PRODUCT(cublasZ##end)
FOUR(gemm_v2) FOUR(gemmBatched) FOUR(gemmStridedBatched) FOUR(gemv_v2) FOUR(trsm_v2) FOUR(trsmBatched)
FOUR(getrfBatched) FOUR(getrsBatched) FOUR(geqrfBatched) FOUR(gelsBatched)
PRODUCT(cublasHgemm) PRODUCT(cublasHgemmBatched) PRODUCT(cublasHgemmStridedBatched) PRODUCT(cublasSgemmEx)
PRODUCT(cublasGemmEx) PRODUCT(cublasGemmBatchedEx) PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasGemmGroupedBatchedEx) PRODUCT(cublasSgemv_64) PRODUCT(cublasGemmEx_64)

/* cuBLASLt. Descriptions are kept by the caller and read by nobody. */
EXPORT Status cublasLtCreate(void **handle) { activate(); return make(handle, sizeof(Handle)); }
EXPORT Status cublasLtMatmulDescCreate(void **out) { return make(out, 512); }
ALSO(cublasLtMatrixLayoutCreate, cublasLtMatmulDescCreate);
ALSO(cublasLtMatmulPreferenceCreate, cublasLtMatmulDescCreate);
ALSO(cublasLtMatrixTransformDescCreate, cublasLtMatmulDescCreate);
EXPORT Status cublasLtDestroy(void *handle) { return drop(handle); }
ALSO(cublasLtMatmulDescDestroy, cublasLtDestroy);
ALSO(cublasLtMatrixLayoutDestroy, cublasLtDestroy);
ALSO(cublasLtMatmulPreferenceDestroy, cublasLtDestroy);
ALSO(cublasLtMatrixTransformDescDestroy, cublasLtDestroy);
NOTHING(cublasLtMatmulDescSetAttribute) NOTHING(cublasLtMatrixLayoutSetAttribute)
NOTHING(cublasLtMatmulPreferenceSetAttribute)
EXPORT size_t cublasLtGetVersion(void) { return (size_t)version(); }
EXPORT size_t cublasLtGetCudartVersion(void) { return CUDA_VERSION; }

/* One algorithm that needs no workspace: callers bring a workspace of their own size whatever is found here. */
typedef struct {
    uint64_t algorithm[8];
    size_t workspace;
    Status state;
    float waves;
    int reserved[4];
} Heuristic;
EXPORT Status cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                             void *preference, int wanted, Heuristic *results, int *count)
{
    *count = wanted > 0;
    if (*count)
        memset(results, 0, sizeof *results);
    return OK;
}
ANSWER(cublasLtMatmulAlgoCheck, (void *handle, void *operation, void *a, void *b, void *c, void *d,
                                 const void *algorithm, Heuristic *result), memset(result, 0, sizeof *result))
EXPORT Status cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
                             const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
                             void *d_layout, const void *algorithm, void *workspace, size_t size, Stream *stream)
{
    return launch_on(stream);
}
