// Errors as values: a code of the C ABI and a full sentence. The library is built without relying on exceptions, so
// that the same sources serve WebAssembly; only the C boundary catches (allocation failure).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "poolgrad/poolgrad.h"

namespace poolgrad {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(poolgrad_status code, std::string sentence) : code_(code), sentence_(std::move(sentence)) {}
  static Status Invalid(std::string sentence) { return {POOLGRAD_INVALID_ARGUMENT, std::move(sentence)}; }
  static Status Unsupported(std::string sentence) { return {POOLGRAD_UNSUPPORTED, std::move(sentence)}; }

  bool ok() const { return code_ == POOLGRAD_OK; }
  poolgrad_status code() const { return code_; }
  const std::string& sentence() const { return sentence_; }

 private:
  poolgrad_status code_ = POOLGRAD_OK;
  std::string sentence_;
};

// What a user typed, between quotes, for a sentence. Control characters are spelt out: a sentence ends up in a
// terminal.
inline std::string Quoted(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string quoted = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      quoted += c;
    } else {
      quoted += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return quoted + "'";
}

// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace poolgrad
