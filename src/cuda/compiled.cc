#include "cuda/compiled.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/common/runtime.h"
#include "cuda/common/tuning.h"
#include "cuda/compiled_sources.h"

namespace poolgrad::cuda {
namespace {

constexpr char kKernel[] = "poolgrad_kernel";

// ---- NVRTC, found while the program runs ----

struct Nvrtc {
  using Program = void*;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names) = nullptr;
  int (*compile)(Program, int options, const char* const* option) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*code_size)(Program, size_t*) = nullptr;
  int (*code)(Program, char*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*version)(int* major, int* minor) = nullptr;
  int major = 0, minor = 0;

  bool Load(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      all = all && function;
    };
    find(create, "nvrtcCreateProgram"), find(compile, "nvrtcCompileProgram"), find(destroy, "nvrtcDestroyProgram");
    find(code_size, "nvrtcGetCUBINSize"), find(code, "nvrtcGetCUBIN");
    find(log_size, "nvrtcGetProgramLogSize"), find(log, "nvrtcGetProgramLog"), find(version, "nvrtcVersion");
    if (all && version(&major, &minor) == 0 && major >= 12) return true;
    dlclose(library);
    return false;
  }
};

const Nvrtc* FindNvrtc() {
  static const Nvrtc* const found = []() -> const Nvrtc* {
    auto* nvrtc = new Nvrtc;  // kept for as long as the process lives
    if (const char* path = std::getenv("POOLGRAD_NVRTC"); path && *path && nvrtc->Load(path)) return nvrtc;
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      if (nvrtc->Load(name)) return nvrtc;
    }
    return nullptr;
  }();
  return found;
}

// ---- what was compiled before, on disk ----

std::string Hash(const std::string& text) {
  uint64_t a = 0xCBF29CE484222325u, b = 0x9E3779B97F4A7C15u;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b = (b ^ (a >> 29)) * 0xD6E8FEB86659FD93u;
  }
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return digits;
}

// A folder of this user's that nobody else can write to; empty: there is none.
std::string CacheFolder() {
  std::string folder;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && *cache == '/') {
    folder = cache;
  } else if (home && *home == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  mkdir(folder.c_str(), 0700);
  folder += "/poolgrad-cuda";
  mkdir(folder.c_str(), 0700);
  struct stat about;
  const bool ours = lstat(folder.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
                    (about.st_mode & 022) == 0;
  return ours ? folder : std::string();
}

// A file is the hash of its code, then the code.
std::string ReadCache(const std::string& path) {
  std::string text;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return {};
  char piece[1 << 16];
  for (ssize_t n; (n = read(file, piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(n));
  close(file);
  if (text.size() <= 32 || Hash(text.substr(32)) != text.substr(0, 32)) return {};
  return text.substr(32);
}

void WriteCache(const std::string& path, const std::string& code) {
  std::string draft = path + ".XXXXXX";
  const int file = mkstemp(draft.data());
  if (file < 0) return;
  const std::string text = Hash(code) + code;
  const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  if (!whole || std::rename(draft.c_str(), path.c_str()) != 0) unlink(draft.c_str());
}

// ---- compiling ----

const char* NameOf(poolgrad_dtype dtype) {
  return dtype == POOLGRAD_F32 ? "float" : dtype == POOLGRAD_F16 ? "__half" : "__nv_bfloat16";
}

std::string Numbers(const int (&n)[3]) {
  return "{" + std::to_string(n[0]) + ", " + std::to_string(n[1]) + ", " + std::to_string(n[2]) + "}";
}

std::string Truth(bool b) { return b ? "true" : "false"; }

struct Kernel {
  const char *file, *params, *body;
  int threads, blocks;
};

std::string TextOf(const Kernel& kernel, poolgrad_dtype dtype, const std::string& form) {
  return std::string("#include \"cuda/common/prelude.cuh\"\n#include \"cuda/") + kernel.file +
         "\"\nusing namespace poolgrad::cuda;\nextern \"C\" __global__ void __launch_bounds__(" +
         std::to_string(kernel.threads) + ", " + std::to_string(std::max(1, kernel.blocks)) + ") " + kKernel +
         "(const __grid_constant__ " + kernel.params + " p) {\n  " + kernel.body + "<" + NameOf(dtype) + ", " + form +
         ">(p);\n}\n";
}

Compiled LoadCode(const std::string& code) {
  Compiled compiled;
  cudaLibrary_t library;
  cudaKernel_t kernel;
  cudaError_t error = cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error == cudaSuccess) error = cudaLibraryGetKernel(&kernel, library, kKernel);
  if (error == cudaSuccess) {
    compiled.kernel = reinterpret_cast<const void*>(kernel);
  } else {
    compiled.note = ErrorStatus(error, "to load what was compiled").sentence();
  }
  return compiled;
}

}  // namespace

const char* RefuseCompiling() {
  const char* wanted = std::getenv("POOLGRAD_JIT");
  if (wanted && std::strcmp(wanted, "0") == 0) return "compiling was turned off by POOLGRAD_JIT=0";
  return FindNvrtc() ? nullptr : "NVRTC 12 or newer was not found (POOLGRAD_NVRTC may name its file)";
}

std::string SourceOf(poolgrad_dtype dtype, poolgrad_op op, const Form& f) {
  const bool backward = op == POOLGRAD_OP_BACKWARD;
  const std::string form = "Form{" + Numbers(f.kernel) + ", " + Numbers(f.stride) + ", " + Numbers(f.dilation) + ", " +
                           std::to_string(f.bits) + ", " + std::to_string(f.codes) + ", Mode(" +
                           std::to_string(static_cast<int>(f.mode)) + "), " + std::to_string(f.pad) + ", " +
                           std::to_string(f.size) + ", " + std::to_string(f.vector) + ", " + std::to_string(f.run) +
                           ", " + std::to_string(f.deep) + ", " + Truth(f.routes) + ", " + Truth(f.relu) + ", " +
                           Truth(f.inside) + ", " + Truth(f.cut) + ", " + Truth(f.ragged) + ", " + Truth(f.even) + "}";
  const SmallWindowTuning tuning = backward ? BackwardTuning(f) : ForwardTuning(f);
  const Kernel kernel =
      f.marches() ? Kernel{"small/march.cuh", "MarchParams", backward ? "RunMarchBackward" : "RunMarchForward",
                           kMarchThreads, kMarchBlocks}
      : backward  ? Kernel{"small/cell_blocks.cuh", "CellParams", "RunCellsForm", kCellThreads, tuning.blocks}
                  : Kernel{"small/strip_blocks.cuh", "StripParams", "RunStripForm", kStripThreads, tuning.blocks};
  return TextOf(kernel, dtype, form);
}

std::string SourceOf(poolgrad_dtype dtype, const SumsForm& f) {
  std::string form = "SumsForm{" + Numbers(f.kernel) + ", " + Numbers(f.stride) + ", " + Numbers(f.dilation) + ", " +
                     std::to_string(f.bits) + ", " + Truth(f.last) + ", " + Truth(f.flat);
  for (const int n : {f.planes, f.rows, f.columns, f.channels, f.vector, f.each, f.groups})
    form += ", " + std::to_string(n);
  form += ", " + Truth(f.once);
  for (const int n : {f.ring, f.line, f.pitch, f.blocks}) form += ", " + std::to_string(n);
  return TextOf({"any/sums.cuh", "SumsParams", "RunSumsForm", kSumsThreads, f.blocks}, dtype, form + "}");
}

std::string SourceOf(poolgrad_dtype dtype, const TableForm& f) {
  std::string form = "TableForm{";
  for (const auto* numbers :
       {&f.in, &f.out, &f.kernel, &f.stride, &f.pad_lo, &f.pad_hi, &f.dilation, &f.form, &f.least, &f.over}) {
    form += Numbers(*numbers) + ", ";
  }
  form += "TableOp(" + std::to_string(static_cast<int>(f.what)) + "), ";
  for (const int n : {f.bits, f.divisor}) form += std::to_string(n) + ", ";
  for (const bool b : {f.count_padding, f.backward, f.last, f.whole}) form += Truth(b) + ", ";
  for (const int n : {f.vector, f.log_sharers, f.abreast}) form += std::to_string(n) + ", ";
  form += Truth(f.signal) + ", " + Truth(f.looks_up) + ", ";
  const std::string params = std::string("TableParams<") + NameOf(dtype) + ">";
  const int kept = KeptOver(f, SizeOf(dtype));
  const int blocks = !f.backward             ? (f.unrolled ? 3 : 4)
                     : !f.last && kept <= 18 ? 4
                     : kept <= 20            ? 3
                     : kept <= 45            ? 2
                                             : 1;
  const char* file = f.backward ? "tables/tables_known_backward.cuh" : "tables/tables_known_forward.cuh";
  const char* body = f.backward ? "RunTableBackward" : "RunTableForward";
  return TextOf({file, params.c_str(), body, kTableThreads, blocks}, dtype, form + Truth(f.unrolled) + "}");
}

std::string CodeOf(const std::string& source, const std::string& architecture, std::string* why) {
  if (const char* reason = RefuseCompiling()) {
    *why = reason;
    return {};
  }
  const Nvrtc& nvrtc = *FindNvrtc();
  Nvrtc::Program program = nullptr;
  if (nvrtc.create(&program, source.c_str(), "poolgrad.cu", kSourceCount, kSourceTexts, kSourceNames) != 0) {
    *why = "NVRTC made no program";
    return {};
  }
  const std::string target = "--gpu-architecture=" + architecture;
  const char* options[] = {target.c_str(), "--std=c++20", "--fmad=false", "--device-as-default-execution-space",
                           "--disable-warnings"};
  std::string text;
  size_t size = 0;
  if (nvrtc.compile(program, 5, options) == 0 && nvrtc.code_size(program, &size) == 0 && size > 0) {
    text.resize(size);
    if (nvrtc.code(program, text.data()) != 0) text.clear();
  }
  if (text.empty()) {
    *why = "NVRTC could not compile it";
    if (nvrtc.log_size(program, &size) == 0 && size > 1) {
      std::string log(size, ' ');
      if (nvrtc.log(program, log.data()) == 0) *why += std::string(": ") + log.c_str();
    }
  }
  nvrtc.destroy(&program);
  return text;
}

Compiled Compile(const std::string& source, int device) {
  const Nvrtc* nvrtc = FindNvrtc();
  int major = 0, minor = 0;
  if (!nvrtc || cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return {nullptr, "there is no NVRTC or no device"};
  }
  const std::string architecture = "sm_" + std::to_string(10 * major + minor);
  const std::string version = "NVRTC " + std::to_string(nvrtc->major) + "." + std::to_string(nvrtc->minor);
  const std::string key = architecture + version + source;
  static std::mutex* const mutex = new std::mutex;
  static auto* const known = new std::map<std::string, Compiled>;  // kernels stay loaded as long as the process lives
  {
    const std::lock_guard lock(*mutex);
    if (const auto found = known->find(key); found != known->end()) return found->second;
  }
  std::string everything = key;
  for (int i = 0; i < kSourceCount; ++i) everything += kSourceTexts[i];
  const std::string folder = CacheFolder(), path = folder + "/" + Hash(everything);
  Compiled compiled;
  if (const std::string code = folder.empty() ? "" : ReadCache(path); !code.empty()) {
    compiled = LoadCode(code);
    compiled.note = "compiled before for this window by " + version;
  }
  if (!compiled.kernel) {
    const auto begin = std::chrono::steady_clock::now();
    std::string why;
    const std::string code = CodeOf(source, architecture, &why);
    if (code.empty()) {
      compiled.note = why;
    } else {
      compiled = LoadCode(code);
      const auto took = std::chrono::steady_clock::now() - begin;
      if (compiled.kernel) {
        compiled.note = "compiled for this window by " + version + " in " +
                        std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) + " ms";
        if (!folder.empty()) WriteCache(path, code);
      }
    }
  }
  // Two threads may have compiled the same; one kernel is kept.
  const std::lock_guard lock(*mutex);
  return known->emplace(key, compiled).first->second;
}

}  // namespace poolgrad::cuda
