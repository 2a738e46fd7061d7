/* Structures whose layouts differ between CUDA 12 and 13. The build sets CUDA_MAJOR.
 * tests/ghost/test_c_layouts.py compares each structure with real headers. */
#ifndef LAYOUTS_H
#define LAYOUTS_H
#include <stdint.h>

typedef struct {
    int type, device;
    void *device_pointer, *host_pointer;
#if CUDA_MAJOR >= 13
    long reserved[8];
#endif
} PointerAttributes;

typedef struct {
    size_t shared, constant, local;
    int max_threads, registers, ptx, binary, cache_mode, max_dynamic_shared, carveout;
    int cluster_must_be_set, cluster[3], cluster_policy, non_portable_clusters, reserved[16];
} FunctionAttributes;

/* cudaDeviceProp: PROPERTY(name in the headers, bytes, offset in CUDA 12, offset in 13, value); -1: not there. */
#if CUDA_MAJOR >= 13
#define PROPERTIES_SIZE 1008
#else
#define PROPERTIES_SIZE 1032
#endif
#define OLD_PROPERTIES_SIZE 712 /* what CUDA 12's unversioned cudaGetDeviceProperties fills */

#define PROPERTIES(PROPERTY)                                                                                 \
    PROPERTY(totalGlobalMem, 8, 288, 288, (int64_t)device_total())                                           \
    PROPERTY(sharedMemPerBlock, 8, 296, 296, VALUE(8))                                                       \
    PROPERTY(regsPerBlock, 4, 304, 304, VALUE(12))                                                           \
    PROPERTY(warpSize, 4, 308, 308, VALUE(10))                                                               \
    PROPERTY(memPitch, 8, 312, 312, VALUE(11))                                                               \
    PROPERTY(maxThreadsPerBlock, 4, 320, 320, VALUE(1))                                                      \
    PROPERTY(maxThreadsDim[0], 4, 324, 324, VALUE(2))                                                        \
    PROPERTY(maxThreadsDim[1], 4, 328, 328, VALUE(3))                                                        \
    PROPERTY(maxThreadsDim[2], 4, 332, 332, VALUE(4))                                                        \
    PROPERTY(maxGridSize[0], 4, 336, 336, VALUE(5))                                                          \
    PROPERTY(maxGridSize[1], 4, 340, 340, VALUE(6))                                                          \
    PROPERTY(maxGridSize[2], 4, 344, 344, VALUE(7))                                                          \
    PROPERTY(clockRate, 4, 348, -1, VALUE(13))                                                               \
    PROPERTY(totalConstMem, 8, 352, 352, VALUE(9))                                                           \
    PROPERTY(major, 4, 360, 360, VALUE(75))                                                                  \
    PROPERTY(minor, 4, 364, 364, VALUE(76))                                                                  \
    PROPERTY(textureAlignment, 8, 368, 368, VALUE(14))                                                       \
    PROPERTY(texturePitchAlignment, 8, 376, 376, VALUE(51))                                                  \
    PROPERTY(deviceOverlap, 4, 384, -1, VALUE(15))                                                           \
    PROPERTY(multiProcessorCount, 4, 388, 384, VALUE(16))                                                    \
    PROPERTY(kernelExecTimeoutEnabled, 4, 392, -1, VALUE(17))                                                \
    PROPERTY(integrated, 4, 396, 388, VALUE(18))                                                             \
    PROPERTY(canMapHostMemory, 4, 400, 392, VALUE(19))                                                       \
    PROPERTY(computeMode, 4, 404, -1, VALUE(20))                                                             \
    PROPERTY(surfaceAlignment, 8, 568, 552, VALUE(30))                                                       \
    PROPERTY(concurrentKernels, 4, 576, 560, VALUE(31))                                                      \
    PROPERTY(ECCEnabled, 4, 580, 564, VALUE(32))                                                             \
    PROPERTY(pciBusID, 4, 584, 568, VALUE(33))                                                               \
    PROPERTY(pciDeviceID, 4, 588, 572, VALUE(34))                                                            \
    PROPERTY(pciDomainID, 4, 592, 576, VALUE(50))                                                            \
    PROPERTY(tccDriver, 4, 596, 580, VALUE(35))                                                              \
    PROPERTY(asyncEngineCount, 4, 600, 584, VALUE(40))                                                       \
    PROPERTY(unifiedAddressing, 4, 604, 588, VALUE(41))                                                      \
    PROPERTY(memoryClockRate, 4, 608, -1, VALUE(36))                                                         \
    PROPERTY(memoryBusWidth, 4, 612, 592, VALUE(37))                                                         \
    PROPERTY(l2CacheSize, 4, 616, 596, VALUE(38))                                                            \
    PROPERTY(persistingL2CacheMaxSize, 4, 620, 600, VALUE(108))                                              \
    PROPERTY(maxThreadsPerMultiProcessor, 4, 624, 604, VALUE(39))                                            \
    PROPERTY(streamPrioritiesSupported, 4, 628, 608, VALUE(78))                                              \
    PROPERTY(globalL1CacheSupported, 4, 632, 612, VALUE(79))                                                 \
    PROPERTY(localL1CacheSupported, 4, 636, 616, VALUE(80))                                                  \
    PROPERTY(sharedMemPerMultiprocessor, 8, 640, 624, VALUE(81))                                             \
    PROPERTY(regsPerMultiprocessor, 4, 648, 632, VALUE(82))                                                  \
    PROPERTY(managedMemory, 4, 652, 636, VALUE(83))                                                          \
    PROPERTY(isMultiGpuBoard, 4, 656, 640, VALUE(84))                                                        \
    PROPERTY(multiGpuBoardGroupID, 4, 660, 644, VALUE(85))                                                   \
    PROPERTY(hostNativeAtomicSupported, 4, 664, 648, VALUE(86))                                              \
    PROPERTY(singleToDoublePrecisionPerfRatio, 4, 668, -1, VALUE(87))                                        \
    PROPERTY(pageableMemoryAccess, 4, 672, 652, VALUE(88))                                                   \
    PROPERTY(concurrentManagedAccess, 4, 676, 656, VALUE(89))                                                \
    PROPERTY(computePreemptionSupported, 4, 680, 660, VALUE(90))                                             \
    PROPERTY(canUseHostPointerForRegisteredMem, 4, 684, 664, VALUE(91))                                      \
    PROPERTY(cooperativeLaunch, 4, 688, 668, VALUE(95))                                                      \
    PROPERTY(cooperativeMultiDeviceLaunch, 4, 692, -1, VALUE(96))                                            \
    PROPERTY(sharedMemPerBlockOptin, 8, 696, 672, VALUE(97))                                                 \
    PROPERTY(pageableMemoryAccessUsesHostPageTables, 4, 704, 680, VALUE(100))                                \
    PROPERTY(directManagedMemAccessFromHost, 4, 708, 684, VALUE(101))                                        \
    PROPERTY(maxBlocksPerMultiProcessor, 4, 712, 688, VALUE(106))                                            \
    PROPERTY(accessPolicyMaxWindowSize, 4, 716, 692, VALUE(109))                                             \
    PROPERTY(reservedSharedMemPerBlock, 8, 720, 696, VALUE(111))                                             \
    PROPERTY(hostRegisterSupported, 4, 728, 704, VALUE(99))                                                  \
    PROPERTY(sparseCudaArraySupported, 4, 732, 708, VALUE(112))                                              \
    PROPERTY(hostRegisterReadOnlySupported, 4, 736, 712, VALUE(113))                                         \
    PROPERTY(timelineSemaphoreInteropSupported, 4, 740, 716, VALUE(114))                                     \
    PROPERTY(memoryPoolsSupported, 4, 744, 720, VALUE(115))                                                  \
    PROPERTY(gpuDirectRDMASupported, 4, 748, 724, VALUE(116))                                                \
    PROPERTY(gpuDirectRDMAFlushWritesOptions, 4, 752, 728, VALUE(117))                                       \
    PROPERTY(gpuDirectRDMAWritesOrdering, 4, 756, 732, VALUE(118))                                           \
    PROPERTY(memoryPoolSupportedHandleTypes, 4, 760, 736, VALUE(119))                                        \
    PROPERTY(deferredMappingCudaArraySupported, 4, 764, 740, VALUE(121))                                     \
    PROPERTY(ipcEventSupported, 4, 768, 744, VALUE(125))                                                     \
    PROPERTY(clusterLaunch, 4, 772, 748, VALUE(120))                                                         \
    PROPERTY(unifiedFunctionPointers, 4, 776, 752, VALUE(129))                                               \
    PROPERTY(deviceNumaConfig, 4, -1, 756, VALUE(130))                                                       \
    PROPERTY(deviceNumaId, 4, -1, 760, VALUE(131))                                                           \
    PROPERTY(mpsEnabled, 4, -1, 764, VALUE(133))                                                             \
    PROPERTY(hostNumaId, 4, -1, 768, VALUE(134))                                                             \
    PROPERTY(gpuPciDeviceID, 4, -1, 772, VALUE(139))                                                         \
    PROPERTY(gpuPciSubsystemID, 4, -1, 776, VALUE(140))                                                      \
    PROPERTY(hostNumaMultinodeIpcSupported, 4, -1, 780, VALUE(143))

#endif
