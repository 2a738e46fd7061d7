/* Versions of libraries that the ghost has only as stubs: those that torch's metadata pins. */
#include "ghost.h"

EXPORT size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
ANSWER(cudnnGetProperty, (int which, int *value),
       *value = which == 0 ? CUDNN_VERSION / 10000 : which == 1 ? CUDNN_VERSION / 100 % 100 : CUDNN_VERSION % 100)
EXPORT size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }
EXPORT Status nvrtcVersion(int *major, int *minor)
{
    *major = CUDA_VERSION / 1000;
    *minor = CUDA_VERSION % 1000 / 10;
    return OK;
}
