#include "choosing.hpp"

#include <algorithm>
#include <map>

#include "connection.hpp"

namespace corbd::rbd {
namespace {

constexpr std::size_t kMostFurther = 2;
constexpr std::chrono::minutes kIdleFor{10};

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

bool has_better(const Group& group, const Connection& than) {
  return std::ranges::any_of(group.serving,
                             [&](const auto& one) { return one.get() != &than && (than.silent || !one->silent); });
}

IdleConnections judge_idle(const std::vector<std::shared_ptr<Group>>& groups, time_point now) {
  std::map<std::string, std::shared_ptr<Connection>> last;  // by cluster
  std::vector<std::shared_ptr<Connection>> idle;
  for (const auto& group : groups)
    for (const auto& connection : group->serving) {
      if (connection->users > 0) continue;
      idle.push_back(connection);
      auto& newest = last[group->access.cluster_id];
      if (!newest || newest->idle_since <= connection->idle_since) newest = connection;
    }
  IdleConnections judged;
  for (const auto& connection : idle) {
    if (last[connection->group->access.cluster_id] == connection) continue;
    if (now - connection->idle_since >= kIdleFor)
      judged.end.push_back(connection);
    else
      judged.end_later = true;
  }
  return judged;
}

}  // namespace corbd::rbd
