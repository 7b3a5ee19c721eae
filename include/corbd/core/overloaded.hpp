#pragma once

namespace corbd {

/// Joins one function for each alternative of a variant, for std::visit.
template <class... Each>
struct Overloaded : Each... {
  using Each::operator()...;
};
template <class... Each>
Overloaded(Each...) -> Overloaded<Each...>;

}  // namespace corbd
