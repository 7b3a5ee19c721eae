#include "choosing.hpp"

#include <algorithm>

#include "connection.hpp"

namespace corbd::rbd {
namespace {

constexpr std::size_t kMostFurther = 2;

bool is_of_use(const Connection& one, Need need) {
  return !one.retired && (need == Need::monitors || !one.node_fenced);
}

std::size_t count_of_use(const Group& group, Need need) {
  return static_cast<std::size_t>(
      std::ranges::count_if(group.serving, [&](const auto& one) { return is_of_use(*one, need); }));
}

bool some_answer(const Group& group, Need need) {
  return std::ranges::any_of(group.serving, [&](const auto& one) { return is_of_use(*one, need) && !one->silent; });
}

}  // namespace

std::shared_ptr<Connection> choose(const Group& group, Need need, Limits limits) {
  const bool only_answering = some_answer(group, need);
  std::shared_ptr<Connection> fullest, emptiest;
  for (const auto& one : group.serving) {
    if (!is_of_use(*one, need) || (only_answering && one->silent)) continue;
    if (!emptiest || one->users < emptiest->users) emptiest = one;
    if (need == Need::room_for_image && one->users >= limits.images_per_connection) continue;
    if (!fullest || one->users > fullest->users) fullest = one;
  }
  return fullest || count_of_use(group, need) < limits.connections ? fullest : emptiest;
}

bool needs_another(const Group& group, Need need, Limits limits, time_point now) {
  const std::size_t usable = count_of_use(group, need);
  if (usable == 0 || some_answer(group, need)) return false;
  return group.connecting || (usable < limits.connections + kMostFurther && now >= group.further_from);
}

}  // namespace corbd::rbd
