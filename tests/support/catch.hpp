// Catch2 of either major version under one name (Debian 12 has v2, Debian 13 v3). Include it before rapidcheck/catch.h.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text) { return Catch::Contains(text); }
}  // namespace Catch::Matchers
using Catch::Matchers::ContainsSubstring;
#endif

#include "corbd/core/result.hpp"

namespace Catch {
/// A failed check shows the error's sentence; the value need not be printable.
template <class T>
struct StringMaker<corbd::result<T>> {
  static std::string convert(const corbd::result<T>& from) {
    return from ? "a value" : std::string(corbd::name(from.error().code)) + ": " + from.error().text;
  }
};
}  // namespace Catch
