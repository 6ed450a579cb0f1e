// NVRTC for the device in software: what a plan has compiled is compiled by the C++ compiler of the tests, into a
// shared library, and its name is the code. Libraries and headers are kept in the folder POOLGRAD_SOFT_DEVICE_FOLDER.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

struct Program {
  std::string source, library, log;
};

fs::path Folder() {
  const char* folder = std::getenv("POOLGRAD_SOFT_DEVICE_FOLDER");
  return folder ? fs::path(folder) : fs::temp_directory_path() / "poolgrad-soft-device";
}

// Other programs may be writing the same.
void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  const fs::path draft = path.string() + "." + std::to_string(getpid());
  std::ofstream(draft) << text;
  fs::rename(draft, path);
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) { return *major = 12, *minor = 0, 0; }

int nvrtcCreateProgram(Program** program, const char* source, const char*, int headers, const char* const* texts,
                       const char* const* names) {
  static std::once_flag once;
  std::call_once(once, [&] {
    for (int i = 0; i < headers; ++i) {
      if (*texts[i]) Write(Folder() / "headers" / names[i], texts[i]);
    }
  });
  *program = new Program{source, {}, {}};
  return 0;
}

int nvrtcCompileProgram(Program* program, int, const char* const*) {
  // The kernel is known as soon as the library is there.
  const std::string text = program->source + "static const bool known = (soft_device::Know(poolgrad_kernel), true);\n";
  const std::string stem =
      (Folder() / (std::to_string(std::hash<std::string>()(text)) + "." + std::to_string(getpid()))).string();
  Write(stem + ".cc", text);
  const std::string command = std::string(POOLGRAD_COMPILE) + " -I" + (Folder() / "headers").string() +
                              " -shared -fPIC -o " + stem + ".so " + stem + ".cc > " + stem + ".log 2>&1";
  const bool made = std::system(command.c_str()) == 0;
  program->log = (std::stringstream() << std::ifstream(stem + ".log").rdbuf()).str();
  if (made) program->library = stem + ".so";
  return made ? 0 : 6;
}

int nvrtcDestroyProgram(Program** program) { return delete *program, 0; }
int nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = program->library.size() + 1, 0; }
int nvrtcGetCUBIN(Program* program, char* code) { return program->library.copy(code, std::string::npos), 0; }
int nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* program, char* log) { return program->log.copy(log, std::string::npos), 0; }

}  // extern "C"
