"""Names from other libraries that are known to take no GPU memory. No other foreign name is trusted."""

import re


def _words(text: str) -> set[str]:
    return set(text.split())


KEYWORDS = _words(
    """
    alignas alignof auto bool break case catch char char8_t char16_t char32_t class const consteval
    constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double
    dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept nullptr operator override final private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void
    volatile wchar_t while __restrict__ __restrict __host__ __device__ __global__ __shared__ __constant__
    __forceinline__ __inline__ __noinline__ __launch_bounds__ __grid_constant__ __attribute__ __align__
    __cluster_dims__ __extension__ __builtin_expect __PRETTY_FUNCTION__ __FILE__ __LINE__ __func__
    __FUNCTION__ __VA_ARGS__ __VA_OPT__ _Pragma asm __asm__ concept not and or defined likely unlikely
    nodiscard maybe_unused noreturn fallthrough no_unique_address deprecated assume
    """
)
PLAIN = _words(
    """
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t ssize_t ptrdiff_t intptr_t
    uintptr_t uint ushort uchar ulong int8 NULL nullptr_t printf fprintf snprintf sprintf puts stderr
    stdout fflush abort exit assert getenv atoi strtol strtoul strtoll memcpy memset memcmp memmove
    strcmp strncmp strlen strcasecmp free min max abs swap isnan isinf isfinite signbit RuntimeError
    ValueError TypeError InternalError NotImplementedError IndexError INT_MAX INT_MIN UINT_MAX INT32_MAX
    INT64_MAX UINT32_MAX SIZE_MAX FLT_MAX INFINITY dim3 uint2 uint3 uint4 int2 int3 int4 float2 float3
    float4 double2 short2 char4 uchar4 longlong2 ulonglong2 make_int2 make_int4 make_uint4 make_float2
    make_float4 half half2 nv_half nv_half2 nv_bfloat16 nv_bfloat162 __half __half2 __nv_bfloat16
    __nv_bfloat162 nv_bool __nv_fp8_e4m3 __nv_fp8_e5m2 __nv_fp8x2_e4m3 __nv_fp8x2_e5m2 __nv_fp8x4_e4m3
    __nv_fp8x4_e5m2 __nv_fp8_e8m0 __nv_fp4_e2m1 __nv_fp4x2_e2m1 __nv_fp4x4_e2m1 __nv_fp8_storage_t
    __nv_fp8x2_storage_t __CUDACC__ __CUDA_ARCH__ NDEBUG __cplusplus CUDART_VERSION CUDA_VERSION
    CUDART_INF_F DLDevice DLDeviceType DLDataType DLDataTypeCode DLTensor cudaGetLastError
    cudaPeekAtLastError cudaGetErrorString cudaGetErrorName cudaGetDevice cudaSetDevice
    cudaGetDeviceProperties cudaDeviceGetAttribute cudaDeviceProp cudaGetDeviceCount
    cudaRuntimeGetVersion cudaDriverGetVersion cudaFuncSetAttribute cudaFuncGetAttributes
    cudaFuncAttributes cudaFuncSetCacheConfig cudaOccupancyMaxActiveBlocksPerMultiprocessor
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaOccupancyAvailableDynamicSMemPerBlock
    cudaOccupancyMaxActiveClusters cudaOccupancyMaxPotentialClusterSize
    cudaOccupancyMaxPotentialBlockSize cudaLaunchKernel cudaLaunchKernelEx cudaLaunchKernelExC
    cudaLaunchCooperativeKernel cudaLaunchAttribute cudaLaunchAttributeID cudaLaunchAttributeValue
    cudaMemsetAsync cudaMemset cudaMemcpyAsync cudaMemcpy cudaMemcpyKind cudaStreamSynchronize
    cudaStreamIsCapturing cudaStreamCaptureStatus cudaDeviceSynchronize cudaGetSymbolAddress
    cudaHostGetDevicePointer cudaMemcpyAttributes cudaMemcpyBatchAsync
    cuTensorMapEncodeTiled cuGetErrorString cuGetErrorName cuDeviceGetAttribute cuLaunchKernelEx
    cuLaunchKernel cuDriverGetVersion cudaDriverEntryPointQueryResult cudaGetDriverEntryPoint
    cudaGetDriverEntryPointByVersion cuFuncSetAttribute cuuint32_t cuuint64_t TVMFFIEnvGetStream
    DeviceGuard CUDADeviceGuard va_list va_start va_end va_copy vsnprintf vfprintf
    """
)
PATTERNS = re.compile(
    r"""(?:a?(?:sin|cos|tan)h?|atan2|r?sqrt|cbrt|rcbrt|exp(?:2|10|m1)?|log(?:2|10|1p|b)?|pow|fabs|ceil|floor
          |l?l?round|l?l?rint|nearbyint|trunc|fmod|remainder|fmin|fmax|fdim|fma|erfc?|[lt]gamma|copysign
          |frexp|ldexp|hypot)f?$
      | cuda(?:Error|DevAttr|FuncAttribute|FuncCache|LaunchAttribute|Success)\w*$
      | cuda(?:SharedmemCarveout|StreamCapture)\w*$
      | cuda(?:MemcpyHostTo|MemcpyDeviceTo|EnableDefault|DriverEntryPoint|OccupancyD)\w*$
      | cuda[A-Z]\w*_t$ | cudaStream(?:Legacy|PerThread)$ | CU[A-Za-z_]\w+$ | PFN_cuTensorMapEncode\w*$
      | kDL[A-Z]\w*$ | TVM_FFI_(?:I?CHECK|THROW|LOG_AND_THROW|UNSAFE_ASSUME|INLINE|UNREACHABLE)\w*$
      | U?INT(?:\d+_C|\d*_MAX|\d*_MIN)$ | cudaMemcpySrcAccessOrder\w*$
      | u?int_(?:fast|least)\d+_t$ | atomic[A-Z]\w*$ | make_\w+[1-4]$
      | __[a-z]\w*$  # names with two underscores are the compiler's: intrinsics of a GPU and of a CPU
      | (?:thread|block)Idx$ | (?:block|grid)Dim$ | warpSize$""",
    re.VERBOSE,
)
# Names of these namespaces that code may use if it only looks at tensors.
VIEWS = _words(
    """
    TensorView Tensor Optional Array String Shape ShapeView Tuple Variant dtype_equal DataType Error Any
    AnyView CUDADeviceGuard IsContiguous GetDataSize details TypeTraits EnvErrorAlreadySet StringObj
    Bytes Map
    """
)
SPACES = {"ffi": VIEWS, "tvm": {"ffi"}}
# Types of these libraries are numbers and layouts; their other names may take a workspace.
NUMBERS = _words(
    """
    half_t bfloat16_t float_e4m3_t float_e5m2_t float_e2m1_t float_ue8m0_t float_ue4m3_t uint4b_t int4b_t
    uint1b_t tfloat32_t numeric_limits half bfloat16 std type_identity float_ue8m0
    """
)
SPACES |= {"cutlass": NUMBERS, "cuda": {"std", "ptx", "memory_order", "fast_mod_div"}}
ALLOCATES = re.compile(r"alloc|Alloc|ALLOC|memPool|MemPool|DeviceMemory|device_vector|cudaArray")
FOREIGN = re.compile(
    r"(?:cuda|cu|nccl|cublas|cudnn|cusparse|cusolver|nvrtc|nvml|TVMFFI)[A-Z]\w*$|nvshmem\w*$"
)
COULD_BE = re.compile(r"cu|nccl|nv|TVM|torch|at_|aten|c10")  # how a foreign function may begin
# Folders of headers whose names are listed above.
OUTSIDE = _words("tvm dlpack cuda nv cute cutlass cub thrust cooperative_groups spdlog fmt")
SYSTEM = re.compile(
    r"""[a-z_0-9]+$ | (?:sys|crt)/\w+\.h$
      | (?:cu|cuda|cublas|nv|mma|sm_|vector_|driver_|device_|math_|cooperative_)\w*(?:\.h|\.hpp|\.cuh)?$""",
    re.VERBOSE,
)
# A header of C or of the system that is missing: a use of its names is noticed, because they are unknown.
SYSTEM_C = re.compile(r"\w+\.h$")


def is_known(name: str) -> bool:
    return name in KEYWORDS or name in PLAIN or PATTERNS.match(name) is not None
