// The saved selection matrix, in its public format (docs/routes.md).
//
// Outputs are grouped in lines: the innermost axis of y's memory order (channels for channels last, width for channels
// first). Each line begins at a byte. Inside a line:
//   codes (ties first, last): `bits` per output (2, 4, 8, 16, 32), the low bits of a byte first, wider codes
//   little-endian.
//     A code is the winning tap's number in its window, row-major. All ones means `no route`, in a problem that can
//     have one.
//   masks (ties split, all): ceil(taps / 8) bytes per output, bit t of the little-endian number set when tap t is a
//   maximum.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace poolgrad {

struct RouteFormat {
  int32_t bits = 8;          // per output
  bool masks = false;        // sets of taps instead of one
  bool may_be_none = false;  // `no route` can occur
  int64_t taps = 1;
  int64_t line = 0;  // outputs per line
  int64_t lines = 0;
  int64_t line_bytes = 0;

  int64_t bytes() const { return lines * line_bytes; }
  int64_t mask_bytes() const { return bits / 8; }
  uint32_t none() const { return bits >= 32 ? 0xFFFFFFFFu : (1u << bits) - 1u; }  // of codes; masks have no use for it
};

// Where line `line` begins, in bytes from the start of the array.
inline int64_t LineOffset(const RouteFormat& f, int64_t line) { return line * f.line_bytes; }

// The code of output `at` of the line that begins at `line`.
inline uint32_t LoadCode(const RouteFormat& f, const uint8_t* line, int64_t at) {
  switch (f.bits) {
    case 2:
      return (line[at / 4] >> (at % 4 * 2)) & 3u;
    case 4:
      return (line[at / 2] >> (at % 2 * 4)) & 15u;
    case 8:
      return line[at];
    case 16:
      return uint32_t{line[2 * at]} | uint32_t{line[2 * at + 1]} << 8;
    default:
      return uint32_t{line[4 * at]} | uint32_t{line[4 * at + 1]} << 8 | uint32_t{line[4 * at + 2]} << 16 |
             uint32_t{line[4 * at + 3]} << 24;
  }
}

// Stores a code. Codes of one line must be stored in order: the first of each byte clears the rest of it.
inline void StoreCode(const RouteFormat& f, uint8_t* line, int64_t at, uint32_t code) {
  switch (f.bits) {
    case 2:
      line[at / 4] = static_cast<uint8_t>((at % 4 ? line[at / 4] : 0u) | (code & 3u) << (at % 4 * 2));
      break;
    case 4:
      line[at / 2] = static_cast<uint8_t>((at % 2 ? line[at / 2] : 0u) | (code & 15u) << (at % 2 * 4));
      break;
    case 8:
      line[at] = static_cast<uint8_t>(code);
      break;
    default:
      for (int32_t b = 0; b < f.bits / 8; ++b) line[at * (f.bits / 8) + b] = static_cast<uint8_t>(code >> (8 * b));
  }
}

inline bool LoadMaskBit(const RouteFormat& f, const uint8_t* line, int64_t at, int64_t tap) {
  return (line[at * f.mask_bytes() + tap / 8] >> (tap % 8)) & 1u;
}

// How many taps share the win of output `at`: every set bit counts, also of taps that lie in padding, or that there are
// none of.
inline int64_t CountMaskBits(const RouteFormat& f, const uint8_t* line, int64_t at) {
  int64_t count = 0;
  for (int64_t b = 0; b < f.mask_bytes(); ++b) count += std::popcount(line[at * f.mask_bytes() + b]);
  return count;
}

}  // namespace poolgrad
