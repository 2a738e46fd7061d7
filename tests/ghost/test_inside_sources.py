"""A function of a missing module matters unless its source shows that it only launches kernels."""

import gc
import os
from pathlib import Path

import pytest

from runtime.ghost.inside.sources import verdict

HEADER = """
#pragma once
#include <tvm/ffi/container/tensor.h>
#include <cuda_runtime.h>
#include <vector>
#define INSIDE __forceinline__ __device__
#define CHECK(x) if (!(x)) throw std::runtime_error(#x)
#define DISPATCH(bits, type, ...) \\
  [&] { switch (bits) { case 16: { using type = short; return __VA_ARGS__(); } default: CHECK(false); } }()
namespace own {
INSIDE float twice(float x) { return __fmul_rn(x, 2.f); }
struct Launch {
  dim3 grid, block;
  cudaStream_t stream;
  Launch(dim3 grid, dim3 block, DLDevice device) : grid{grid}, block{block} {
    stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  }
  template <typename K, typename... Args>
  auto operator()(K&& kernel, Args&&... args) const -> void {
    auto config = ::cudaLaunchConfig_t{};
    config.gridDim = grid;
    cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
    CHECK(status == cudaSuccess);
  }
};
inline tvm::ffi::Tensor workspace(int64_t size, DLDevice device) {
  auto type = DLDataType{};
  return tvm::ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, tvm::ffi::ShapeView(&size, 1), type, device);
}
}  // namespace own
"""
KERNEL = """
template <typename T>
__global__ void kernel(T* out, float by) {
  extern __shared__ float buffer[];
  out[threadIdx.x] = own::twice(by) + __shfl_xor_sync(0xffffffff, buffer[0], 1);
}
"""
FILE = """#include "own.cuh"
%(before)s
template <typename T, int N>
struct Op {
  static constexpr int kSize = N;
  %(inside)s
  static %(returns)s run(const tvm::ffi::TensorView out, double by) {
    const auto rows = out.size(0), columns = out.stride(0);
    CHECK(rows > 0 && columns == 1);
    DISPATCH(out.dtype().bits, c_type, [&] {
      auto launch = own::Launch(dim3(rows), dim3(kSize), out.device());
      launch(kernel<c_type>, static_cast<c_type*>(out.data_ptr()), by);
      %(body)s
      return true;
    });
    %(end)s
  }
};
"""
NINJA = """ninja_required_version = 1.3
includes = -I%(include)s $
    -isystem /nowhere
cuda_cflags = -O3 $includes -DARCH=900
build cuda_0.o: compile_cuda %(source)s
build made.so: link cuda_0.o
default made.so
"""


def module(
    folder: Path,
    *,
    before: str = "",
    inside: str = "",
    returns: str = "void",
    body: str = "",
    end: str = "",
    header: str = HEADER,
    export: str = "(Op<bf16_t, 128>::run)",
) -> Path:
    """A module that was not built: its build file, its source and one header."""
    include, built = folder / "include", folder / "built"
    include.mkdir(parents=True, exist_ok=True)
    built.mkdir(exist_ok=True)
    (include / "own.cuh").write_text(header + KERNEL)
    written = {"before": before, "inside": inside, "returns": returns, "body": body, "end": end}
    (include / "op.cuh").write_text(FILE % written)
    source = built / "cuda.cu"
    source.write_text(
        f'#include "{include}/op.cuh"\nusing bf16_t = __nv_bfloat16;\n'
        f"TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_op, {export});\n"
    )
    (built / "build.ninja").write_text(NINJA % {"include": include, "source": source})
    return built / "made.so"


def test_a_function_that_checks_and_launches_is_harmless(tmp_path: Path) -> None:
    assert verdict.doubt(module(tmp_path), "run_op") == ""


ALLOCATES, NAMES = "its source allocates: ", "its source names "
TAKES_MEMORY: dict[str, tuple[str, str, str, str]] = {  # why, then what is written before, in and behind it
    "a call": (ALLOCATES + "op.cuh:13", "", "cudaMalloc(&p, 64);", ""),
    "a call of the header": (ALLOCATES + "own.cuh:28", "", "auto w = own::workspace(64, out.device());", ""),
    "another file's function": (
        ALLOCATES + "op.cuh:2",
        "inline void* more(int size) { void* p; cuMemAlloc(&p, size); return p; }", "", "more(8);",
    ),
    "a macro": (
        ALLOCATES + "op.cuh:2", "#define SPACE cudaMallocAsync", "void* p; SPACE(&p, 64, nullptr);", "",
    ),
    "a constructor": (
        ALLOCATES + "op.cuh:2",
        "struct Space { void* p; Space() { cudaMalloc(&p, 1); } };", "Space space;", "",
    ),
    "a member's method": (
        ALLOCATES + "op.cuh:2",
        "struct Space { void* p; void grow() { cudaMalloc(&p, 1); } }; Space& space();", "",
        "space().grow();",
    ),
    "an operator": (
        ALLOCATES + "op.cuh:2",
        "struct A {}; void operator+(A, A) { cudaMalloc(0, 1); }", "A a, b; a + b;", "",
    ),
    "a template's argument": (
        ALLOCATES + "op.cuh:2",
        "struct Big { static void go() { cudaMalloc(0, 1); } };template <class P> void use() { P::go(); }",
        "use<Big>();", "",
    ),
    "a pointer to a function": (ALLOCATES + "op.cuh:13", "", "auto how = &cudaMalloc; how(&p, 1);", ""),
    "a module that is loaded": (ALLOCATES + "op.cuh:2", "static int size = cudaMalloc(0, 1);", "", ""),
    "torch": (NAMES + "torch, of which nothing is known: op.cuh:13", "", "auto t = torch::empty({8});", ""),
    "torch unseen": (NAMES + "empty", "using namespace torch;", "auto t = empty({8});", ""),
    "a type that nobody knows": (NAMES + "HostTensor", "", "HostTensor held(8);", ""),
    "a library": (NAMES + "cub", "", "auto s = cub::DeviceReduce::Sum(a, b, c);", ""),
    "a runtime's function": (
        NAMES + "cudaIpcOpenMemHandle", "", "cudaIpcOpenMemHandle(&p, h, 0);", "",
    ),
    "a driver's function by its name": (
        "its source asks for cuMemCreate", "", 'cudaGetDriverEntryPoint("cuMemCreate", &f, 0);', "",
    ),
    "a Python function": (NAMES + "tvm::ffi::Function", "", 'tvm::ffi::Function::GetGlobal("f");', ""),
    "a declared function": ("its source calls elsewhere", "void elsewhere(int);", "", "elsewhere(8);"),
    "a pasted name": (
        "its source pastes names together", "#define DO(x) cuda##x", "DO(max)(1);", "",
    ),
    "a function behind branches that close a namespace": (
        ALLOCATES + "op.cuh:6",
        "namespace n {\n#ifdef OLD\n}\n#else\nvoid more() { cudaMalloc(0, 1); }\n}\n#endif", "n::more();", "",
    ),
    "a name that a macro makes": (
        ALLOCATES + "op.cuh:2",
        "#define MAKE(x) void run_##x##_all() { cudaMalloc(0, 1); }\nMAKE(max)", "run_max_all();", "",
    ),
    "a macro without a semicolon": (
        ALLOCATES + "op.cuh:4",
        "#define NOTE(x)\nNOTE(max)\nvoid more() { cudaMalloc(0, 1); }", "more();", "",
    ),
    "half a name": (
        ALLOCATES + "op.cuh:3",
        "#define DO(x) go_##x\nvoid go_max() { cudaMalloc(0, 1); }", "DO(max)();", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("why", "before", "body", "end"), TAKES_MEMORY.values(), ids=TAKES_MEMORY)
def test_what_may_take_memory_matters(tmp_path: Path, why: str, before: str, body: str, end: str) -> None:
    made = module(tmp_path, before=before, body=body, end=end)
    assert verdict.doubt(made, "run_op").startswith(why)


HARMLESS = {  # written before it and in it
    "memory that another function takes": ("void other() { cudaMalloc(0, 1); }", ""),
    "memory that another class takes": ("struct Other { void go() { cudaMalloc(0, 1); } };", ""),
    "a comment": (
        "",
        '// cudaMalloc(&p, 1);\n/* torch::empty */ const char* s = "cudaMalloc is not called";',
    ),
    "code of the GPU": ("__device__ void* more() { return malloc(8); }", "auto f = more;"),
    "another maker's GPU": ("", "\n#ifdef USE_ROCM\nhipMalloc(&p, 1);\n#else\nint n = 0;\n#endif\n"),
    "a list of the host": (
        "",
        "std::vector<int> list(8); list.reserve(9); if (list.empty()) list.push_back(1);",
    ),
    "a field's name": ("struct Sizes { int alloc_rows = 0; };", "Sizes sizes; sizes.alloc_rows = 1;"),
    "a name for a namespace": ("namespace v = std::views;", "for (auto i : v::iota(0, 3)) (void)i;"),
    "a header of a branch that cannot be compiled": ('#ifdef WIDE\n#include "gone.cuh"\n#endif', ""),
    "names that a macro makes": (
        "#define HAS(m) template <class T> constexpr bool has_##m##_v = sizeof(&T::m) > 0;\n"
        "HAS(scale)\nstruct Scaled { float scale; };",
        "if (has_scale_v<Scaled>) return false;",
    ),
    "a kernel behind branches that close a namespace": (
        "namespace n {\n#ifdef OLD\n}\n#else\n__global__ void k() { unknown(); }\n}\n#endif",
        "auto f = n::k;",
    ),
    "branches with their own braces": (
        "#ifdef WIDE\nstatic void f(int a) {\n#else\nstatic void f() {\n#endif\n}",
        "f();",
    ),
}


@pytest.mark.parametrize(("before", "body"), HARMLESS.values(), ids=HARMLESS)
def test_what_takes_no_memory_does_not_matter(tmp_path: Path, before: str, body: str) -> None:
    assert verdict.doubt(module(tmp_path, before=before, body=body), "run_op") == ""


@pytest.mark.parametrize("returns", ["int64_t", "void*", "auto", "tvm::ffi::Tensor", "std::vector<void>"])
def test_a_function_that_answers_something_matters(tmp_path: Path, returns: str) -> None:
    why = verdict.doubt(module(tmp_path, returns=returns, end="return {};"), "run_op")
    assert why == "run may answer something: op.cuh:7"


def test_a_function_that_says_void_behind_its_parameters_answers_nothing(tmp_path: Path) -> None:
    before = "auto plain(tvm::ffi::TensorView out) -> void { CHECK(out.ndim() == 2); }"
    assert verdict.doubt(module(tmp_path, before=before, export="plain"), "run_op") == ""


@pytest.mark.parametrize("export", ["missing", "[] { return 8; }", "make<8>()", "(Op<bf16_t, 128>::walk)"])
def test_a_function_that_is_not_found_or_not_exported_matters(tmp_path: Path, export: str) -> None:
    assert "does not define" in verdict.doubt(module(tmp_path, export=export), "run_op")
    assert "which function is exported" in verdict.doubt(module(tmp_path), "run_other")


def test_a_class_or_a_header_that_allocates_matters_where_the_function_comes_to_it(tmp_path: Path) -> None:
    made = module(tmp_path / "class", inside="static void more() { cudaMalloc(0, 1); }", end="more();")
    assert verdict.doubt(made, "run_op") == ALLOCATES + "op.cuh:6"
    header = HEADER.replace("stream = static", "void* p; cudaMallocAsync(&p, 8, 0); stream = static")
    assert verdict.doubt(module(tmp_path, header=header), "run_op") == ALLOCATES + "own.cuh:16"


def test_a_source_that_is_missing_matters(tmp_path: Path) -> None:
    made = module(tmp_path)
    (made.parent / "cuda.cu").unlink()
    assert verdict.doubt(made, "run_op") == "its source cannot be read: cuda.cu"


def test_a_header_that_is_missing_matters_also_behind_its_own_guard(tmp_path: Path) -> None:
    header = '#ifndef OWN_CUH\n#define OWN_CUH\n#include "gone.cuh"\n#endif\n' + HEADER
    for place, line in ({"before": '#include "gone.cuh"'}, "op.cuh:2"), ({"header": header}, "own.cuh:3"):
        why = verdict.doubt(module(tmp_path / line, **place), "run_op")
        assert why == f"its source includes gone.cuh, which is not there: {line}"


def test_a_module_without_a_build_file_matters(tmp_path: Path) -> None:
    made = module(tmp_path)
    (made.parent / "build.ninja").unlink()
    assert verdict.doubt(made, "run_op") == "no build file says what its source is"
    (made.parent / "build.ninja").write_text("build made.so: link cuda_0.o\n")
    assert verdict.doubt(tmp_path / "built" / "other.so", "run_op") == "no build file says what its source is"


def test_a_second_source_is_read_too(tmp_path: Path) -> None:
    made = module(tmp_path, before="void elsewhere(int);", end="elsewhere(8);")
    build = made.parent / "build.ninja"
    (made.parent / "more.cu").write_text("void elsewhere(int n) { cudaMalloc(0, n); }\n")
    build.write_text(build.read_text() + "build cuda_1.o: compile_cuda more.cu\n")
    assert verdict.doubt(made, "run_op") == ALLOCATES + "more.cu:1"


def test_reading_a_source_leaves_the_garbage_collector_alone(tmp_path: Path) -> None:
    made = module(tmp_path)
    verdict.doubt(module(tmp_path / "warm"), "run_op")
    gc.collect()
    collected, before = [one["collections"] for one in gc.get_stats()], len(gc.get_objects())
    assert verdict.doubt(made, "run_op") == ""
    assert gc.isenabled() and len(gc.get_objects()) - before < 50
    assert [one["collections"] for one in gc.get_stats()] == collected


def test_what_a_start_judged_later_ones_do_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, nothing in (("_by_path", {}), ("_known", {}), ("_shared", None), ("_learned", 0)):
        monkeypatch.setattr(verdict, name, nothing)
    made = module(tmp_path, body="cudaMalloc(&p, 64);")
    verdict.share()
    start = os.fork()
    if start == 0:
        verdict.doubt(made, "run_op")
        os._exit(0)
    os.waitpid(start, 0)
    verdict.learn()
    with monkeypatch.context() as unread:
        unread.setattr(verdict, "_judge", lambda module: pytest.fail(f"{module} is read again"))
        assert verdict.doubt(made, "run_op") == ALLOCATES + "op.cuh:13"
    monkeypatch.setattr(verdict, "_by_path", {})
    (tmp_path / "built/cuda.cu").write_text("nothing is exported")
    assert verdict.doubt(made, "run_op") != ALLOCATES + "op.cuh:13"
