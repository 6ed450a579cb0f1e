// Reads and writes the header of NumPy's .npy format (versions 1, 2 and 3). Headers come from anywhere, so the reader
// believes nothing: it takes the bytes it is given and the file's real size, and either returns a header that fits that
// size exactly or throws Failure with one sentence that names the file. It allocates no more than the header's own
// length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace poolgrad::cli {

struct NpyHeader {
  std::string descr;  // NumPy's type word, e.g. "<f4"; little-endian
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // bytes of magic, lengths and header
  int64_t element_bytes = 0;
  int64_t elements = 0;

  int64_t data_bytes() const { return elements * element_bytes; }
};

// `start` holds the first bytes of the file (all of them, or at least the whole header), `file_bytes` is its size.
NpyHeader ParseNpyHeader(std::span<const std::byte> start, int64_t file_bytes, const std::string& name);

// The bytes that come before the data: version 1, padded so that data begin at a multiple of 64.
std::string MakeNpyHeader(const std::string& descr, const std::vector<int64_t>& shape);

// The element type. bf16 has no NumPy word: files hold it as <V2 or <u2, and `wanted` must say bf16. An empty `wanted`
// takes the file's own type; any other must agree with it.
int32_t NpyDtype(const NpyHeader& header, const std::string& wanted, const std::string& name);

// NumPy's word for a type of ours; bf16 is written as <V2, which is what NumPy itself writes for ml_dtypes.bfloat16.
std::string NpyDescr(int32_t dtype);

std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace poolgrad::cli
