#include "lines.hpp"

#include <utility>

namespace corbd::kube {

result<> Lines::feed(std::string_view piece, const std::function<bool(std::string_view)>& line) {
  while (!piece.empty()) {
    const auto end = piece.find('\n');
    const auto part = piece.substr(0, end);
    if (kept_.size() + part.size() > limit_)
      return Error{errc::exhausted, "the API server sent an object of more than " + std::to_string(limit_) + " bytes"};
    if (end == piece.npos) {
      kept_.append(part);
      return {};
    }
    piece.remove_prefix(end + 1);
    const std::string whole = std::exchange(kept_, {}).append(part);
    if (!whole.empty() && !line(whole)) return {};
  }
  return {};
}

}  // namespace corbd::kube
