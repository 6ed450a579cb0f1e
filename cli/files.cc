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

// Signals that end a run from outside. SIGXFSZ is none of them: passed over, it becomes an error with a sentence.
constexpr int kEndings[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU, SIGBUS};

int Remember(const std::string& name) {
  if (name.size() >= PATH_MAX) return -1;
  for (int slot = 0; slot < kMostOutputs; ++slot) {
    if (g_temporary[slot][0] != '\0') continue;
    std::memcpy(g_temporary[slot], name.c_str(), name.size() + 1);
    for (const int signal_number : kEndings) signal(signal_number, RemoveTemporaries);
    return slot;
  }
  return -1;
}

// Makes a temporary file and remembers it, with no moment between in which an ending would leave it behind.
int MakeTemporary(std::string& name, int* slot) {
  sigset_t endings, before;
  sigemptyset(&endings);
  for (const int signal_number : kEndings) sigaddset(&endings, signal_number);
  sigprocmask(SIG_BLOCK, &endings, &before);
  const int descriptor = mkstemp(name.data());
  const int error = errno;
  if (descriptor >= 0) *slot = Remember(name);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return descriptor;
}

[[noreturn]] void FailWithErrno(const std::string& doing, const std::string& path, int error) {
  throw Failure(path + " cannot be " + doing + ": " + std::strerror(error));
}

// "" for a name without a folder; else up to and with the last slash.
std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// A short name of its own: the output's may be as long as a name can be.
std::string TemporaryBeside(const std::string& path) { return FolderOf(path) + ".poolgrad.XXXXXX"; }

}  // namespace

bool SameFile(const std::string& a, const std::string& b) {
  const std::string folders[] = {FolderOf(a), FolderOf(b)};
  if (a.substr(folders[0].size()) != b.substr(folders[1].size())) return false;
  struct stat about[2];
  for (int i = 0; i < 2; ++i) {
    if (stat(folders[i].empty() ? "." : folders[i].c_str(), &about[i]) != 0) return false;
  }
  return about[0].st_dev == about[1].st_dev && about[0].st_ino == about[1].st_ino;
}

InputFile::InputFile(const std::string& path) : path_(path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer would wait
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
    if (header_.data_offset % header_.element_bytes != 0) {  // a header of any length is allowed; such data are copied
      aligned_ = Buffer(header_.data_bytes());
      std::memcpy(aligned_.data(), memory_ + header_.data_offset, static_cast<size_t>(header_.data_bytes()));
    }
  } catch (...) {
    if (memory_ != nullptr) munmap(memory_, bytes_);
    throw;
  }
}

const std::byte* InputFile::data() const { return aligned_.data() ? aligned_.data() : memory_ + header_.data_offset; }

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
  signal(SIGXFSZ, SIG_IGN);
  descriptor_ = MakeTemporary(temporary_, &slot_);
  if (descriptor_ < 0) FailWithErrno("written", path, errno);
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
