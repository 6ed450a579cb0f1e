// The header of a .npy file: magic, version, length, then a Python dictionary literal with the keys descr,
// fortran_order and shape. Only that little of Python is read, by a parser that never looks past the header's end. See
// npy.h.
#include "npy.h"

#include <cctype>
#include <cstring>
#include <optional>
#include <string_view>

#include "support.h"

namespace poolgrad::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kLongestHeader = int64_t{1} << 20;
constexpr size_t kMostAxes = 32;

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  struct Fields {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
  };

  Fields Parse() {
    Fields fields;
    Expect('{');
    while (!Accept('}')) {
      const std::string key = String();
      Expect(':');
      if (key == "descr" && !fields.descr) {
        fields.descr = Descr();
      } else if (key == "fortran_order" && !fields.fortran_order) {
        fields.fortran_order = Bool();
      } else if (key == "shape" && !fields.shape) {
        fields.shape = Shape();
      } else {
        Corrupt("its header has an unknown or repeated key '" + key + "'");
      }
      if (!Accept(',')) {
        Expect('}');
        break;
      }
    }
    SkipSpace();
    if (at_ != text_.size()) Corrupt("its header goes on after the closing brace");
    return fields;
  }

 private:
  [[noreturn]] void Corrupt(const std::string& why) const {
    throw Failure(name_ + " is not a readable .npy file: " + why);
  }
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char Peek() {
    SkipSpace();
    if (at_ == text_.size()) Corrupt("its header ends too early");
    return text_[at_];
  }
  bool Accept(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Accept(c))
      Corrupt(std::string("its header has '") + Printable(text_[at_]) + "' where '" + c + "' was expected");
  }
  static char Printable(char c) { return std::isprint(static_cast<unsigned char>(c)) ? c : '?'; }

  std::string String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Corrupt("its header lacks a quoted word where one was expected");
    const size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) Corrupt("its header has a quoted word without an end");
    std::string word(text_.substr(at_, end - at_));
    for (char& c : word) c = Printable(c);
    at_ = end + 1;
    return word;
  }
  std::string Descr() {
    if (Peek() == '[') throw Failure(name_ + " holds a structured array; expected a plain array of numbers");
    return String();
  }
  bool Bool() {
    SkipSpace();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    Corrupt("its fortran_order is neither True nor False");
  }
  int64_t Number() {
    if (!std::isdigit(static_cast<unsigned char>(Peek())))
      Corrupt("its shape has something that is not a number from 0 up");
    int64_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        Corrupt("its shape has a number past 2^63");
      }
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return value;
  }
  std::vector<int64_t> Shape() {
    std::vector<int64_t> shape;
    Expect('(');
    while (!Accept(')')) {
      if (shape.size() == kMostAxes) Corrupt("its shape has more than 32 axes");
      shape.push_back(Number());
      if (!Accept(',')) {
        Expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

// Bytes per element of a little-endian or byte-sized numeric type; everything else is refused with its reason.
int64_t ElementBytes(const std::string& descr, const std::string& name) {
  if (descr == "|O") throw Failure(name + " holds Python objects ('|O'); expected an array of numbers");
  if (descr.size() >= 2 && descr[0] == '>') {
    throw Failure(name + " is big-endian ('" + descr + "'); expected little-endian numbers, as array.astype('<" +
                  descr.substr(1) + "') gives");
  }
  const bool sized = descr.size() == 3 && (descr[0] == '<' || descr[0] == '|') && descr[2] >= '1' && descr[2] <= '8';
  const int64_t bytes = sized ? descr[2] - '0' : 0;
  const std::string known = sized ? descr.substr(1) : "";
  for (const char* word : {"f2", "f4", "f8", "i1", "u1", "i4", "i8", "u2", "V2"}) {
    if (known == word && (descr[0] == '<' || bytes == 1 || known == "V2")) return bytes;
  }
  throw Failure(name + " has element type '" + descr +
                "'; expected one of <f4, <f8, <f2, |i1, |u1, <i4, <i8 (indices), <u2 or <V2 (bf16)");
}

}  // namespace

NpyHeader ParseNpyHeader(std::span<const std::byte> start, int64_t file_bytes, const std::string& name) {
  auto byte = [&](size_t i) { return static_cast<int64_t>(start[i]); };
  if (start.size() < 10 || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) {
    throw Failure(name + " is not a .npy file: it does not begin with the .npy magic bytes");
  }
  const int64_t version = byte(6);
  if (version < 1 || version > 3) {
    throw Failure(name + " is a .npy file of version " + std::to_string(version) + "; expected version 1, 2 or 3");
  }
  NpyHeader header;
  int64_t length = byte(8) | byte(9) << 8;
  header.data_offset = 10;
  if (version > 1) {
    if (start.size() < 12) throw Failure(name + " is cut short: it ends inside its header");
    length |= byte(10) << 16 | byte(11) << 24;
    header.data_offset = 12;
  }
  if (length > kLongestHeader || header.data_offset + length > static_cast<int64_t>(start.size())) {
    throw Failure(name + " is cut short: its header of " + std::to_string(length) + " bytes does not fit in the file");
  }
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + header.data_offset,
                              static_cast<size_t>(length));
  header.data_offset += length;
  const auto fields = HeaderParser(text, name).Parse();
  if (!fields.descr || !fields.fortran_order || !fields.shape) {
    throw Failure(name + " is not a readable .npy file: its header lacks descr, fortran_order or shape");
  }
  header.descr = *fields.descr;
  header.shape = *fields.shape;
  header.element_bytes = ElementBytes(header.descr, name);
  if (*fields.fortran_order) {
    throw Failure(name + " is stored in Fortran order; expected C order, as numpy.ascontiguousarray gives");
  }
  // A zero anywhere makes the array empty whatever the other numbers say, so the product is taken over the others
  // first.
  int64_t bytes = header.element_bytes;
  bool empty = false;
  for (const int64_t n : header.shape) {
    empty |= n == 0;
    if (n != 0 && __builtin_mul_overflow(bytes, n, &bytes)) {
      throw Failure(name + " says its shape is " + ShapeText(header.shape) + ", which is more bytes than 2^63");
    }
  }
  header.elements = empty ? 0 : bytes / header.element_bytes;
  if (file_bytes - header.data_offset != header.data_bytes()) {
    const int64_t have = file_bytes - header.data_offset;
    throw Failure(name + (have < header.data_bytes() ? " is cut short: " : " is too long: ") + "its shape " +
                  ShapeText(header.shape) + " of " + header.descr + " needs " + std::to_string(header.data_bytes()) +
                  " bytes of data, and it holds " + std::to_string(have));
  }
  return header;
}

std::string MakeNpyHeader(const std::string& descr, const std::vector<int64_t>& shape) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + ShapeText(shape) + ", }";
  constexpr size_t kPrefix = 10;
  text.append(64 - (kPrefix + text.size() + 1) % 64, ' ');
  text += '\n';
  std::string bytes(kMagic);
  bytes += '\1';
  bytes += '\0';
  bytes += static_cast<char>(text.size() & 0xff);
  bytes += static_cast<char>(text.size() >> 8);
  return bytes + text;
}

int32_t NpyDtype(const NpyHeader& header, const std::string& wanted, const std::string& name) {
  const std::string word = header.descr.substr(1);
  if (word == "V2" || word == "u2") {
    if (wanted == "bf16") return POOLGRAD_BF16;
    throw Failure(name + " has element type '" + header.descr + "'; if these are bf16 numbers, say --dtype bf16");
  }
  for (const int32_t dtype : {POOLGRAD_F32, POOLGRAD_F64, POOLGRAD_F16, POOLGRAD_I8, POOLGRAD_U8, POOLGRAD_I32}) {
    if (NpyDescr(dtype).substr(1) != word) continue;
    if (!wanted.empty() && wanted != DtypeName(dtype)) {
      throw Failure(name + " has element type '" + header.descr + "' (" + DtypeName(dtype) + "); --dtype says " +
                    wanted);
    }
    return dtype;
  }
  throw Failure(name + " has element type '" + header.descr + "'; expected f32, f64, f16, bf16, i8, u8 or i32");
}

std::string NpyDescr(int32_t dtype) {
  switch (dtype) {
    case POOLGRAD_F32:
      return "<f4";
    case POOLGRAD_F64:
      return "<f8";
    case POOLGRAD_F16:
      return "<f2";
    case POOLGRAD_BF16:
      return "<V2";
    case POOLGRAD_I8:
      return "|i1";
    case POOLGRAD_U8:
      return "|u1";
    default:
      return "<i4";
  }
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace poolgrad::cli
