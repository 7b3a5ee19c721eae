#include "corbd/core/helper_operation.hpp"

namespace corbd::helper {

result<boost::json::object> work(const boost::json::object& request,
                                 std::initializer_list<std::span<const Known>> rooms) {
  const auto* op = request.if_contains("op");
  const auto* name = op == nullptr ? nullptr : op->if_string();
  const std::string_view wanted = name == nullptr ? std::string_view() : *name;
  for (const auto& known : rooms)
    if (const auto found = std::ranges::find(known, wanted, &Known::name); found != known.end())
      return found->perform(request);
  return Error{errc::unimplemented, "the helper knows no operation " + std::string(wanted)};
}

}  // namespace corbd::helper
