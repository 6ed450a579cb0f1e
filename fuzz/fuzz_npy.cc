// Fuzzes the reader of .npy headers: the input is the beginning of a file, and its last bytes say how large the file
// is. Whatever is read must fit that size exactly; whatever is not is refused with a sentence that names the file.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "npy.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace poolgrad::cli;
  const auto fail = [](const std::string& sentence) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
    std::abort();
  };
  // Data follow the header: none, what the input holds, or any number of bytes that are only counted.
  const size_t counted = size == 0 ? 0 : data[size - 1];
  const std::span<const std::byte> start(reinterpret_cast<const std::byte*>(data), size);
  const auto file_bytes = static_cast<int64_t>(size + (counted < 128 ? counted : size_t{1} << (counted - 128) % 60));
  try {
    const NpyHeader header = ParseNpyHeader(start, file_bytes, "a.npy");
    int64_t elements = 1;
    for (const int64_t n : header.shape) {
      if (n < 0) fail("a size is negative");
      elements = n == 0 || elements == 0 ? 0 : elements * n;
    }
    if (elements != header.elements) fail("the number of elements is not the product of the shape");
    if (header.element_bytes < 1 || header.data_offset + header.data_bytes() != file_bytes)
      fail("the header does not fit the file");
    for (const char* wanted : {"", "bf16", "f32"}) {
      try {
        (void)SizeOf(NpyDtype(header, wanted, "a.npy"));
      } catch (const Failure&) {
      }
    }
    // What we write of it is read back.
    const std::string again = MakeNpyHeader(header.descr, header.shape);
    const auto bytes = static_cast<int64_t>(again.size());
    const NpyHeader reread = ParseNpyHeader(std::as_bytes(std::span(again)), bytes + header.data_bytes(), "a.npy");
    if (reread.shape != header.shape || reread.descr != header.descr) fail("a header does not survive");
  } catch (const Failure& failure) {
    if (std::string(failure.what()).find("a.npy ") != 0)
      fail(std::string("a sentence without a name: ") + failure.what());
  }
  return 0;
}
