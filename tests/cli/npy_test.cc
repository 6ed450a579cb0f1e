// The .npy header reader: what it takes, and what it refuses in a sentence. Mutated headers must never do anything but
// these two.
#include "npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "support.h"

namespace poolgrad::cli {
namespace {

NpyHeader Parse(const std::string& bytes, int64_t data_bytes) {
  return ParseNpyHeader(std::as_bytes(std::span(bytes)), static_cast<int64_t>(bytes.size()) + data_bytes, "a.npy");
}

std::string Sentence(const std::string& bytes, int64_t data_bytes) {
  try {
    Parse(bytes, data_bytes);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "accepted";
}

// A version 1 file around this dictionary.
std::string Around(const std::string& dictionary, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  bytes += static_cast<char>(dictionary.size() & 0xff);
  bytes += static_cast<char>(dictionary.size() >> 8);
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + dictionary;
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {7}, {0, 3}, {8, 64, 112, 112}, {1, 2, 3, 4, 5}}) {
    for (const int32_t dtype : {POOLGRAD_F32, POOLGRAD_F64, POOLGRAD_F16, POOLGRAD_I8, POOLGRAD_U8, POOLGRAD_I32}) {
      int64_t elements = 1;
      for (const int64_t n : shape) elements *= n;
      const std::string bytes = MakeNpyHeader(NpyDescr(dtype), shape);
      EXPECT_EQ(bytes.size() % 64, 0u);
      const NpyHeader header = Parse(bytes, elements * SizeOf(dtype));
      EXPECT_EQ(header.shape, shape);
      EXPECT_EQ(header.elements, elements);
      EXPECT_EQ(header.data_offset, static_cast<int64_t>(bytes.size()));
      EXPECT_EQ(NpyDtype(header, "", "a.npy"), dtype);
    }
  }
}

TEST(Npy, EveryVersionAndPythonTwosLongNumbers) {
  for (const char version : {1, 2, 3}) {
    const auto header = Parse(Around("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }\n", version), 24);
    EXPECT_EQ(header.shape, (std::vector<int64_t>{2, 3}));
  }
  EXPECT_EQ(Sentence(Around("{}", 4), 0), "a.npy is a .npy file of version 4; expected version 1, 2 or 3");
}

TEST(Npy, Bf16NeedsToBeSaid) {
  for (const char* descr : {"<V2", "<u2", "|V2"}) {
    const auto header = Parse(MakeNpyHeader(descr, {4}), 8);
    EXPECT_EQ(NpyDtype(header, "bf16", "a.npy"), POOLGRAD_BF16);
    EXPECT_THROW(NpyDtype(header, "", "a.npy"), Failure);
  }
  EXPECT_THROW(NpyDtype(Parse(MakeNpyHeader("<f4", {1}), 4), "f64", "a.npy"), Failure);
}

TEST(Npy, RefusalsAreSentences) {
  const std::string good = MakeNpyHeader("<f4", {2, 3});
  EXPECT_EQ(Sentence("", 0), "a.npy is not a .npy file: it does not begin with the .npy magic bytes");
  EXPECT_EQ(Sentence("PK\3\4 and so on, a zip", 0),
            "a.npy is not a .npy file: it does not begin with the .npy magic bytes");
  EXPECT_EQ(Sentence(good.substr(0, 40), 0), "a.npy is cut short: its header of 118 bytes does not fit in the file");
  EXPECT_EQ(Sentence(good, 23), "a.npy is cut short: its shape (2, 3) of <f4 needs 24 bytes of data, and it holds 23");
  EXPECT_EQ(Sentence(good, 25), "a.npy is too long: its shape (2, 3) of <f4 needs 24 bytes of data, and it holds 25");
  EXPECT_EQ(Sentence(MakeNpyHeader("|O", {2}), 16), "a.npy holds Python objects ('|O'); expected an array of numbers");
  EXPECT_EQ(Sentence(MakeNpyHeader(">f4", {2}), 8),
            "a.npy is big-endian ('>f4'); expected little-endian numbers, as array.astype('<f4') gives");
  EXPECT_EQ(Sentence(Around("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}"), 4),
            "a.npy is stored in Fortran order; expected C order, as numpy.ascontiguousarray gives");
  EXPECT_EQ(Sentence(Around("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), 4),
            "a.npy holds a structured array; expected a plain array of numbers");
  EXPECT_EQ(Sentence(Around("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}"), 8)
                .find("a.npy has element type '<c8'"),
            0u);
  EXPECT_EQ(Sentence(Around("{'descr': '<f4', 'shape': (1,)}"), 4),
            "a.npy is not a readable .npy file: its header lacks descr, fortran_order or shape");
  EXPECT_EQ(Sentence(Around("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), 4),
            "a.npy is not a readable .npy file: its shape has something that is not a number from 0 up");
  EXPECT_EQ(Sentence(Around("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"), 4),
            "a.npy says its shape is (4294967296, 4294967296), which is more bytes than 2^63");
  EXPECT_EQ(Sentence(Around("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"), 4),
            "a.npy is not a readable .npy file: its shape has a number past 2^63");
  EXPECT_EQ(Sentence(Around("{'descr': '<f4', 'descr': '<f4'}"), 4),
            "a.npy is not a readable .npy file: its header has an unknown or repeated key 'descr'");
}

TEST(Npy, MutatedHeadersAreReadOrRefused) {
  std::mt19937 random(7);
  const std::string good = MakeNpyHeader("<f4", {2, 3, 4});
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good.substr(0, random() % 8 ? good.size() : random() % good.size());
    for (unsigned changes = random() % 4; changes-- > 0 && !bytes.empty();) {
      bytes[random() % std::min<size_t>(bytes.size(), 80)] =
          static_cast<char>(random() % 2 ? random() % 256 : "(){}':,0 T"[random() % 10]);
    }
    try {
      const auto header = Parse(bytes, 96);
      EXPECT_EQ(header.data_offset + header.data_bytes(), static_cast<int64_t>(bytes.size()) + 96);
    } catch (const Failure& failure) {
      EXPECT_EQ(std::string(failure.what()).find("a.npy "), 0u);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace poolgrad::cli
