// The poolgrad command as a user meets it: the built binary is run on files in a temporary folder. POOLGRAD_BINARY and
// POOLGRAD_GOLDEN are given by CMake.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "npy.h"

namespace poolgrad::cli {
namespace {

namespace fs = std::filesystem;

std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Command : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "poolgrad_cli_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Outcome {
    int status;
    std::string out, err;
  };
  Outcome Run(const std::string& words) const {
    {
      std::ofstream script(folder_ / "command");
      script << POOLGRAD_BINARY " " << words << "\n";
    }
    const std::string line = "cd " + folder_.string() + " && bash ./command >stdout 2>stderr";
    const int raw = std::system(line.c_str());
    fs::remove(folder_ / "command");
    Outcome outcome{WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, Contents(folder_ / "stdout"), Contents(folder_ / "stderr")};
    fs::remove(folder_ / "stdout");
    fs::remove(folder_ / "stderr");
    return outcome;
  }
  template <class T>
  void Save(const std::string& name, const std::string& descr, const std::vector<int64_t>& shape,
            const std::vector<T>& values) {
    std::ofstream file(folder_ / name, std::ios::binary);
    const std::string header = MakeNpyHeader(descr, shape);
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  }
  template <class T>
  std::vector<T> Load(const std::string& name, const std::vector<int64_t>& shape) const {
    const std::string bytes = Contents(folder_ / name);
    const auto header = ParseNpyHeader(std::as_bytes(std::span(bytes)), static_cast<int64_t>(bytes.size()), name);
    EXPECT_EQ(header.shape, shape);
    EXPECT_EQ(header.element_bytes, static_cast<int64_t>(sizeof(T)));
    std::vector<T> values(static_cast<size_t>(header.elements));
    std::memcpy(values.data(), bytes.data() + header.data_offset, values.size() * sizeof(T));
    return values;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  // A failed command: one sentence on stderr, and no file but those that were there.
  void ExpectRefusal(const std::string& words, const std::string& sentence) {
    const auto before = Files();
    const Outcome outcome = Run(words);
    EXPECT_EQ(outcome.status, 1) << words;
    EXPECT_EQ(outcome.err, "poolgrad: " + sentence + "\n") << words;
    EXPECT_EQ(Files(), before) << words;
  }
  void SaveOneToNine() { Save<float>("x.npy", "<f4", {1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}); }

  fs::path folder_;
};

TEST_F(Command, DemoIsTheGoldenText) {
  const Outcome outcome = Run("demo --skip-speed");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, Contents(fs::path(POOLGRAD_GOLDEN) / "demo.txt"));
}

TEST_F(Command, ExplainTellsEveryWindow) {
  const Outcome outcome = Run("explain 'max f32 nwc 1x5x2 k3 s2 p1 ties=split' --values '1 1 2 2 2 1 5 1 nan 1'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out.substr(outcome.out.find("\nx\n") + 1),
            Contents(fs::path(POOLGRAD_GOLDEN) / "explain_split.txt"));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  EXPECT_NE(Run("--colour always explain 'max f32 ncw 1x1x4 k2'").out.find('\x1b'), std::string::npos);
  ExpectRefusal("explain 'max f32 ncw 1x1x4 k2' --values '1 2 3'",
                "--values has 3 numbers; expected 4, one for each element");
  ExpectRefusal("explain 'max f32 nchw 1x1x4x4 k2 s0'", "stride[0] is 0; every stride must be at least 1");
}

TEST_F(Command, CheckComparesWithFiniteDifferences) {
  const Outcome outcome = Run("check 'max f32 nhwc 2x7x6x3 k3 s2 p1' --samples 1000");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("252 of 252 inputs checked"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("they agree"), std::string::npos) << outcome.out;
}

// Backward divides by the whole window there, forward by what lies inside.
TEST_F(Command, AveragesOfTfjsAreToldWithTheGradientThatTheyHave) {
  const std::string told = Run("explain 'avg f32 ncw 1x1x4 k3 s2 p1 tfjs'").out;
  EXPECT_NE(told.find("y[0]  1/2 1/2   .   ."), std::string::npos) << told;
  EXPECT_NE(told.find("dx[0] = 1/3 dy[0] = 1/3\n"), std::string::npos) << told;
  EXPECT_NE(told.find("dx[1] = 1/3 dy[0] + 1/3 dy[1] = 2/3\n"), std::string::npos) << told;
  EXPECT_EQ(told.find("S^T"), std::string::npos) << told;
  const Outcome checked = Run("check 'avg f64 ncw 1x1x4 k3 s2 p1 tfjs'");
  EXPECT_EQ(checked.status, 1);
  EXPECT_NE(checked.err.find("and is not meant to: averages of the tfjs dialect"), std::string::npos) << checked.err;
  EXPECT_EQ(Run("check 'avg f64 ncw 1x1x4 adaptive=3 tfjs'").status, 0);
}

TEST_F(Command, ForwardThenBackwardFromEachSource) {
  SaveOneToNine();
  ASSERT_EQ(Run("run x.npy y.npy --window 'k2 s1' --routes r.npy --indices i.npy").err, "");
  EXPECT_EQ(Load<float>("y.npy", {1, 1, 2, 2}), (std::vector<float>{5, 6, 8, 9}));
  EXPECT_EQ(Load<int64_t>("i.npy", {1, 1, 2, 2}), (std::vector<int64_t>{4, 5, 7, 8}));
  Save<float>("dy.npy", "<f4", {1, 1, 2, 2}, {1, 2, 3, 4});
  const std::vector<float> expected{0, 0, 0, 0, 1, 2, 0, 3, 4};
  for (const char* source : {"--x x.npy", "--routes r.npy --shape 1x1x3x3", "--indices i.npy --shape 1x1x3x3"}) {
    ASSERT_EQ(Run(std::string("grad dy.npy dx.npy --window 'k2 s1' ") + source).err, "");
    EXPECT_EQ(Load<float>("dx.npy", {1, 1, 3, 3}), expected) << source;
  }
  ASSERT_EQ(Run("grad dy.npy dx.npy --kind avg --window 'k2 s1' --shape 1x1x3x3").err, "");
  EXPECT_EQ(Load<float>("dx.npy", {1, 1, 3, 3}), (std::vector<float>{0.25, 0.75, 0.5, 1, 2.5, 1.5, 0.75, 1.75, 1}));
}

TEST_F(Command, ABiasAndItsGradient) {
  Save<float>("x.npy", "<f4", {2, 2, 2}, {1, 2, -3, -4, 5, 0, 1, 1});
  Save<float>("b.npy", "<f4", {2}, {-1, 2});
  ASSERT_EQ(Run("run x.npy y.npy --window 'k2 relu bias' --bias b.npy --routes r.npy").err, "");
  EXPECT_EQ(Load<float>("y.npy", {2, 2, 1}), (std::vector<float>{1, 0, 4, 3}));
  Save<float>("dy.npy", "<f4", {2, 2, 1}, {1, 2, 3, 4});
  ASSERT_EQ(Run("grad dy.npy dx.npy --window 'k2 relu bias' --routes r.npy --shape 2x2x2 --dbias db.npy").err, "");
  EXPECT_EQ(Load<float>("dx.npy", {2, 2, 2}), (std::vector<float>{0, 1, 0, 0, 3, 0, 4, 0}));
  EXPECT_EQ(Load<float>("db.npy", {2}), (std::vector<float>{4, 4}));
  ExpectRefusal("run x.npy z.npy --window 'k2 relu' --bias b.npy",
                "a bias takes both --bias FILE and the words `relu bias` in --window; one of them is missing");
  ExpectRefusal("run x.npy z.npy --window 'k2 relu bias' --bias x.npy",
                "x.npy has shape (2, 2, 2); expected (2,), one bias per channel");
  ExpectRefusal("grad dy.npy dz.npy --window 'k2 relu bias' --x x.npy --dbias d.npy",
                "--dbias needs the --routes of a run with --bias");
  EXPECT_EQ(Run("explain 'max f32 ncw 1x2x4 k2 relu bias'").status, 0);
  EXPECT_EQ(Run("check 'max f32 ncw 1x2x9 k2 relu bias'").status, 0);
}

// Items of 32 MiB make several slices, so that slices and the numbering across them are put together rightly.
TEST_F(Command, SlicesOfTheBatchAreOneArray) {
  const int64_t batch = 5, plane = 1 << 11;
  std::vector<float> x(static_cast<size_t>(batch * plane * plane));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 2654435761u) >> 8 & 0xffff);
  const std::vector<int64_t> shape{batch, 1, plane, plane}, out{batch, 1, 2, 2};
  Save<float>("x.npy", "<f4", shape, x);
  ASSERT_EQ(Run("run x.npy y.npy --window k1024 --indices i.npy --numbering onnx").err, "");
  const auto y = Load<float>("y.npy", out);
  const auto indices = Load<int64_t>("i.npy", out);
  for (size_t o = 0; o < y.size(); ++o) {
    ASSERT_GE(indices[o], static_cast<int64_t>(o / 4) * plane * plane);
    EXPECT_EQ(y[o], x[static_cast<size_t>(indices[o])]);
  }
  Save<float>("dy.npy", "<f4", out, std::vector<float>(y.size(), 2));
  ASSERT_EQ(Run("grad dy.npy dx.npy --window k1024 --indices i.npy --numbering onnx --shape 5x1x2048x2048").err, "");
  const auto dx = Load<float>("dx.npy", shape);
  double sum = 0;
  for (const float v : dx) sum += v;
  EXPECT_EQ(sum, 2.0 * static_cast<double>(y.size()));
  for (const int64_t index : indices) EXPECT_EQ(dx[static_cast<size_t>(index)], 2);
  // The last input of the slice before is not -1, no route.
  auto wrong = indices;
  wrong[12] = 3 * plane * plane - 1;
  Save("w.npy", "<i8", out, wrong);
  const std::string ignoring = "--window 'k1024 nan=ignore' --numbering onnx --shape 5x1x2048x2048";
  const Outcome outcome = Run("grad dy.npy dw.npy --indices w.npy " + ignoring);
  EXPECT_NE(outcome.err.find("w.npy has 12582911 for output 12, which is an input of another item"), std::string::npos)
      << outcome.err;
}

TEST_F(Command, TypesKeepTheirWord) {
  Save<uint16_t>("b.npy", "<u2", {1, 1, 4}, {0x3f80, 0x4000, 0xbf80, 0x0000});  // bf16 1, 2, -1, 0
  ASSERT_EQ(Run("run b.npy y.npy --window k2 --dtype bf16").err, "");
  EXPECT_EQ(Load<uint16_t>("y.npy", {1, 1, 2}), (std::vector<uint16_t>{0x4000, 0x0000}));
  Save<int8_t>("c.npy", "|i1", {1, 4, 1}, {-3, -2, -1, -128});
  ASSERT_EQ(Run("run c.npy y.npy --window k2 --layout nhwc").err, "");
  EXPECT_EQ(Load<int8_t>("y.npy", {1, 2, 1}), (std::vector<int8_t>{-2, -1}));
  Save<double>("e.npy", "<f8", {0, 3, 4}, {});
  ASSERT_EQ(Run("run e.npy y.npy --window k2 --routes r.npy").err, "");
  EXPECT_TRUE(Load<double>("y.npy", {0, 3, 2}).empty());
}

TEST_F(Command, RefusalsChangeNothing) {
  SaveOneToNine();
  Save<float>("dy.npy", "<f4", {1, 1, 2, 2}, {1, 2, 3, 4});
  Save<float>("y.npy", "<f4", {1}, {42});
  const std::string before = Contents(folder_ / "y.npy");
  ExpectRefusal("run x.npy y.npy --window 'k2 s0'", "stride[0] is 0; every stride must be at least 1");
  ExpectRefusal("run missing.npy y.npy --window k2", "missing.npy cannot be read: No such file or directory");
  ExpectRefusal("run x.npy nowhere/y.npy --window k2", "nowhere/y.npy cannot be written: No such file or directory");
  ExpectRefusal("run x.npy y.npy --window k2 --routes y.npy",
                "y.npy is named for two outputs; expected a different file for each");
  ExpectRefusal("run x.npy . --window k2", ". cannot be written: it exists and is not a regular file");
  ExpectRefusal("run x.npy y.npy --window k2 --layout chw",
                "--layout is 'chw'; expected nchw or nhwc (or the same for 1 or 3 spatial axes)");
  ExpectRefusal("run x.npy y.npy --kind avg --window k2 --routes r.npy",
                "--routes and --indices need max pooling; average pooling has no routes to keep");
  ExpectRefusal("run y.npy z.npy --window k2",
                "y.npy has shape (1,); expected 3, 4 or 5 axes: batch, channels and 1 to 3 spatial ones");
  ExpectRefusal("grad dy.npy y.npy --window 'k2 s1'",
                "the gradient needs to know who won: give exactly one of --x, --routes and --indices");
  ExpectRefusal("grad dy.npy y.npy --kind avg --window 'k2 s1' --routes x.npy --shape 1x1x3x3",
                "--routes and --indices need max pooling; the gradient of an average needs --x or --shape alone");
  ExpectRefusal("grad dy.npy y.npy --window 'k2 s1' --routes x.npy",
                "the gradient needs the shape of the input: give --x, or else --shape, e.g. --shape 8x64x112x112");
  ExpectRefusal("grad dy.npy y.npy --window k2 --x x.npy",
                "dy.npy has shape (1, 1, 2, 2); expected (1, 1, 1, 1), the shape of this window's output");
  ExpectRefusal("grad dy.npy y.npy --window 'k2 s1' --routes x.npy --shape 1x1x3x3",
                "x.npy has element type '<f4'; expected routes as bytes ('|u1')");
  ExpectRefusal("grad dy.npy y.npy --window 'k2 s1' --x x.npy --shape 1x1x3x",
                "the gradient needs the shape of the input: give --x, or else --shape, e.g. --shape 8x64x112x112");
  ExpectRefusal("grad dy.npy y.npy --window 'k2 s1' --routes x.npy --shape 1x1x3x",
                "--shape is '1x1x3x'; expected numbers joined by x, e.g. 8x64x112x112");
  fs::resize_file(folder_ / "x.npy", 140);
  ExpectRefusal("run x.npy y.npy --window k2",
                "x.npy is cut short: its shape (1, 1, 3, 3) of <f4 needs 36 bytes of data, and it holds 12");
  EXPECT_EQ(Contents(folder_ / "y.npy"), before);
}

TEST_F(Command, OneFileUnderTwoNamesIsRefused) {
  SaveOneToNine();
  ExpectRefusal("run x.npy y.npy --window k2 --routes ./y.npy",
                "y.npy is named for two outputs, the second time as ./y.npy; expected a different file for each");
  fs::create_directory(folder_ / "real");
  fs::create_directory_symlink("real", folder_ / "alias");
  ExpectRefusal(
      "run x.npy r.npy --window k2 --routes real/y.npy --indices alias/../alias//y.npy",
      "real/y.npy is named for two outputs, the second time as alias/../alias//y.npy; expected a different file for "
      "each");
  EXPECT_EQ(Run("run x.npy real/y.npy --window k2 --routes y.npy").status, 0) << "one name in two folders";
}

TEST_F(Command, APipeIsRefusedAndNotWaitedFor) {
  SaveOneToNine();
  ASSERT_EQ(mkfifo((folder_ / "pipe.npy").c_str(), 0600), 0);
  ExpectRefusal("run pipe.npy y.npy --window k2", "pipe.npy is not a regular file; expected a .npy file");
  ExpectRefusal("run x.npy pipe.npy --window k2", "pipe.npy cannot be written: it exists and is not a regular file");
}

TEST_F(Command, TheLongestNameIsWritten) {
  SaveOneToNine();
  const std::string name = std::string(251, 'n') + ".npy";
  ASSERT_EQ(Run("run x.npy " + name + " --window k2").err, "");
  EXPECT_EQ(Load<float>(name, {1, 1, 1, 1}), (std::vector<float>{5}));
}

TEST_F(Command, ControlCharactersAreSpeltOut) {
  ExpectRefusal("run $'a\\x1b[31m\\x07.npy' y.npy --window k2",
                "a\\x1b[31m\\x07.npy cannot be read: No such file or directory");
  SaveOneToNine();
  EXPECT_EQ(Run("run x.npy y.npy --window $'k2 \\x1b[2J'").err.find('\x1b'), std::string::npos);
  const Outcome unknown = Run("bench $'--\\x1b[2J'");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.err.find('\x1b'), std::string::npos) << unknown.err;
}

TEST_F(Command, WhatIsNoCommandIsNamed) {
  const Outcome unknown = Run("expalin 'max f32 ncw 1x1x4 k2'");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.err,
            "poolgrad: 'expalin' is no command; the commands are demo, explain, run, grad, check, bench\n");
  EXPECT_NE(Run("").err.find("subcommand is required"), std::string::npos);
}

TEST_F(Command, OutputThatIsLostIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  for (const char* words : {"explain 'max f32 ncw 1x1x4 k2'", "bench --list", "--version"}) {
    const Outcome lost = Run(std::string(words) + " >/dev/full");
    EXPECT_EQ(lost.status, 1) << words;
    EXPECT_EQ(lost.err, "poolgrad: what it prints could not all be written; is the disk full?\n") << words;
  }
}

TEST_F(Command, DataAtAnyByteAreRead) {
  for (int spaces = 0; spaces < 8; ++spaces) {
    const std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1, 4)}" +
                               std::string(static_cast<size_t>(spaces), ' ') + "\n";
    std::ofstream file(folder_ / "x.npy", std::ios::binary);
    file << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size()) << '\0' << header;
    const double values[] = {1, 4, 3, 2};
    file.write(reinterpret_cast<const char*>(values), sizeof values);
    file.close();
    ASSERT_EQ(Run("run x.npy y.npy --window k2").err, "") << spaces;
    EXPECT_EQ(Load<double>("y.npy", {1, 1, 2}), (std::vector<double>{4, 3})) << spaces;
  }
}

TEST_F(Command, AFileThatMayNotBeSoLargeIsASentence) {
  Save<float>("x.npy", "<f4", {1, 1, 4096}, std::vector<float>(4096, 1));
  const auto before = Files();
  const std::string line =
      "cd " + folder_.string() + " && ulimit -f 4 && " POOLGRAD_BINARY " run x.npy y.npy --window k2 2>stderr";
  EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 1);
  EXPECT_EQ(Contents(folder_ / "stderr"), "poolgrad: y.npy cannot be written: File too large\n");
  fs::remove(folder_ / "stderr");
  EXPECT_EQ(Files(), before);
}

TEST_F(Command, BadIndicesLeaveNoFile) {
  Save<float>("dy.npy", "<f4", {1, 1, 2}, {1, 2});
  Save<int64_t>("i.npy", "<i8", {1, 1, 2}, {0, 9});
  const auto before = Files();
  const std::string sets = Run("grad dy.npy dx.npy --window 'k2 ties=all' --indices i.npy --shape 1x1x4").err;
  EXPECT_EQ(sets.rfind("poolgrad: ties are split or all", 0), 0u) << sets << "(nothing is wrong with the file)";
  const Outcome outcome = Run("grad dy.npy dx.npy --window k2 --indices i.npy --shape 1x1x4");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("9"), std::string::npos) << outcome.err;
  EXPECT_EQ(Files(), before);
}

// An interrupted run removes its temporary file and leaves the old output alone, whoever interrupts it.
TEST_F(Command, AnInterruptedRunLeavesNothing) {
  const int64_t plane = 2048;
  Save<float>("x.npy", "<f4", {4, 1, plane, plane}, std::vector<float>(static_cast<size_t>(4 * plane * plane), 1));
  const auto before = Files();
  const auto interrupted = [&](const std::string& how) {
    const std::string line = "cd " + folder_.string() + " && " + how +
                             " " POOLGRAD_BINARY
                             " run x.npy y.npy --window 'k41 s1 p20' --algorithm reference >/dev/null 2>&1";
    EXPECT_NE(std::system(line.c_str()), 0) << how;
    EXPECT_EQ(Files(), before) << how;
  };
  for (const char* name : {"TERM", "INT", "HUP", "QUIT", "PIPE", "XCPU"})
    interrupted(std::string("timeout -s ") + name + " 0.2");
  interrupted("ulimit -S -t 1 &&");
}

TEST_F(Command, BenchGivesOneObjectPerLine) {
  const Outcome outcome = Run("bench --case tiny --dtype f32,u8 --seconds 0.001 --copy-gbps 100 --json");
  EXPECT_EQ(outcome.status, 0);
  std::istringstream lines(outcome.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line.find("{\"case\":\"tiny\",\"layout\":\"n"), 0u) << line;
    for (const char* key : {"\"dtype\":", "\"op\":", "\"threads\":", "\"ms\":", "\"spread\":", "\"fraction\":",
                            "\"copy_gbps\":100.00", "\"peer\":\"poolgrad\"", "\"algorithm\":", "\"target\":"}) {
      EXPECT_NE(line.find(key), std::string::npos) << key << " in " << line;
    }
  }
  EXPECT_EQ(count, 2 * 4 + 2 * 2);  // integers have no gradient
  EXPECT_EQ(Run("bench --case nothing").err.find("poolgrad: --case is 'nothing'; expected one of resnet_stem, "), 0u);
  EXPECT_EQ(Run("bench --nothing").status, 2);
  ExpectRefusal("bench --dtype f33", "dtype is 'f33'; expected one of f32, f64, f16, bf16, i8, u8, i32");
  for (const char* option : {"--seconds nan", "--seconds 0", "--copy-gbps nan", "--copy-gbps inf", "--copy-gbps 0"}) {
    const Outcome refused = Run(std::string("bench --case tiny --op fwd ") + option);
    EXPECT_EQ(refused.status, 2) << option;
    EXPECT_LT(refused.err.size(), 120u) << refused.err;
  }
  EXPECT_EQ(Run("bench --case tiny --dtype f32,bf16 --op fwd --seconds 0.001 --copy-gbps 100 --rectified").status, 0);
  const std::string average = "--problem 'avg f32 nchw 1x2x9x9 k3 s2 p1'";  // without routes
  EXPECT_EQ(Run("bench --seconds 0.001 --copy-gbps 100 " + average).status, 0);
}

}  // namespace
}  // namespace poolgrad::cli
