// .npy files as memory: inputs mapped for reading, outputs mapped for writing under a temporary name in the same
// folder. An output appears under its own name whole, by Publish, or not at all: whoever throws, returns or is
// interrupted before that leaves nothing behind. Mapping lets arrays be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "npy.h"
#include "support.h"

namespace poolgrad::cli {

// Whether two names, however they are spelt, are those of one file that is there or would be made.
bool SameFile(const std::string& a, const std::string& b);

class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const NpyHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  const std::byte* data() const;  // aligned to its elements

 private:
  std::string path_;
  NpyHeader header_;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  Buffer aligned_;  // the data, where the file has them at an address that is no multiple of an element
};

class OutputFile {
 public:
  // Takes the room on disk at once, so that a full disk is an error here and not a crash later.
  OutputFile(const std::string& path, const std::string& descr, const std::vector<int64_t>& shape, int64_t data_bytes);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  std::byte* data() const { return memory_ + data_offset_; }
  // Writes everything to the disk and gives the file its own name, replacing what had it.
  void Publish();

 private:
  void Discard();

  std::string path_, temporary_;
  int64_t data_offset_ = 0;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
  int slot_ = -1;  // in the list of files to remove when interrupted
};

}  // namespace poolgrad::cli
