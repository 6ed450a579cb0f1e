// POSIX files behind files.h. The list of temporary names that the signal handler removes is of fixed size and holds
// plain characters, because a handler may neither allocate nor lock.
#include "files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include "support.h"

namespace poolgrad::cli {
namespace {

constexpr int kMostOutputs = 8;
char g_temporary[kMostOutputs][PATH_MAX];

extern "C" void RemoveTemporaries(int signal_number) {
  for (auto& name : g_temporary) {
    if (name[0] != '\0') unlink(name);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

int Remember(const std::string& name) {
  if (name.size() >= PATH_MAX) return -1;
  for (int slot = 0; slot < kMostOutputs; ++slot) {
    if (g_temporary[slot][0] != '\0') continue;
    std::memcpy(g_temporary[slot], name.c_str(), name.size() + 1);
    for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGBUS}) signal(signal_number, RemoveTemporaries);
    return slot;
  }
  return -1;
}

[[noreturn]] void FailWithErrno(const std::string& doing, const std::string& path, int error) {
  throw Failure(path + " cannot be " + doing + ": " + std::strerror(error));
}

std::string TemporaryBeside(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(0, name) + "." + path.substr(name) + ".XXXXXX";
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) FailWithErrno("read", path, errno);
  struct stat about;
  if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) {
    close(descriptor);
    throw Failure(path + " is not a regular file; expected a .npy file");
  }
  bytes_ = static_cast<size_t>(about.st_size);
  void* memory = bytes_ > 0 ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0) : nullptr;
  const int error = errno;
  close(descriptor);
  if (memory == MAP_FAILED) FailWithErrno("mapped", path, error);
  memory_ = static_cast<std::byte*>(memory);
  try {
    header_ = ParseNpyHeader({memory_, bytes_}, static_cast<int64_t>(bytes_), path);
  } catch (...) {
    if (memory_ != nullptr) munmap(memory_, bytes_);
    throw;
  }
}

InputFile::~InputFile() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

OutputFile::OutputFile(const std::string& path, const std::string& descr, const std::vector<int64_t>& shape,
                       int64_t data_bytes)
    : path_(path), temporary_(TemporaryBeside(path)) {
  const std::string header = MakeNpyHeader(descr, shape);
  data_offset_ = static_cast<int64_t>(header.size());
  bytes_ = header.size() + static_cast<size_t>(data_bytes);
  struct stat about;
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    throw Failure(path + " cannot be written: it exists and is not a regular file");
  }
  descriptor_ = mkstemp(temporary_.data());
  if (descriptor_ < 0) FailWithErrno("written", path, errno);
  slot_ = Remember(temporary_);
  const mode_t mask = umask(0);
  umask(mask);
  int error = fchmod(descriptor_, 0666 & ~mask) != 0 ? errno : 0;
  if (error == 0) error = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_));
  if (error == 0) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (memory == MAP_FAILED) {
      error = errno;
    } else {
      memory_ = static_cast<std::byte*>(memory);
    }
  }
  if (error != 0) {
    Discard();
    FailWithErrno("written", path, error);
  }
  std::memcpy(memory_, header.data(), header.size());
}

OutputFile::~OutputFile() { Discard(); }

void OutputFile::Publish() {
  if (msync(memory_, bytes_, MS_SYNC) != 0 || fsync(descriptor_) != 0 ||
      rename(temporary_.c_str(), path_.c_str()) != 0) {
    FailWithErrno("written", path_, errno);
  }
  temporary_.clear();
  Discard();
}

// Lets go of everything; removes the temporary file unless it has been published.
void OutputFile::Discard() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  memory_ = nullptr;
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  if (slot_ >= 0) g_temporary[slot_][0] = '\0';
  slot_ = -1;
}

}  // namespace poolgrad::cli
