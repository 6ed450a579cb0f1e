// What the core expects of a C++ runtime, where Debian's libc++ for WebAssembly leaves it out or would reach for the
// host: with these the module imports nothing, so it runs in any page, worker or process as it is.
#include <cstdarg>
#include <cstdlib>
#include <version>

extern "C" {

// Destructors of thread_local objects run when their thread ends. The module's one thread never does.
int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }

// There is no environment: an algorithm is chosen by the plan's options.
char* getenv(const char*) { return nullptr; }

// Nowhere to print to; a trap reaches JavaScript as a WebAssembly.RuntimeError.
void abort() { __builtin_trap(); }
[[noreturn]] void abort_message(const char*, ...) { __builtin_trap(); }

}  // extern "C"

_LIBCPP_BEGIN_NAMESPACE_STD
[[noreturn]] void __libcpp_verbose_abort(const char*, ...) { __builtin_trap(); }
_LIBCPP_END_NAMESPACE_STD
