#include "cluster_threads.hpp"

#include <utility>

#include "connection.hpp"

namespace corbd::rbd {
namespace {

constexpr std::size_t kMostReplaced = 3;

}  // namespace

ClusterThreads& ThreadsByCluster::of(const std::string& cluster_id) {
  auto& newest = newest_[cluster_id];
  if (!newest) newest = std::make_unique<ClusterThreads>(control_, clock_, cluster_id);
  return *newest;
}

void ThreadsByCluster::end_unused() {
  std::erase_if(connections_, [](const auto& one) { return one.expired(); });
  const auto is_used = [this](const ClusterThreads* threads) {
    return std::ranges::any_of(connections_, [&](const auto& one) {
      const auto connection = one.lock();
      return connection && connection->threads == threads;
    });
  };
  std::erase_if(replaced_, [&](const auto& one) { return one.second->idle() && !is_used(one.second.get()); });
}

bool ThreadsByCluster::renew(const std::string& cluster_id) {
  end_unused();
  if (of(cluster_id).idle() || replaced_.count(cluster_id) >= kMostReplaced) return false;
  auto made = std::make_unique<ClusterThreads>(control_, clock_, cluster_id);
  replaced_.emplace(cluster_id, std::exchange(newest_[cluster_id], std::move(made)));
  return true;
}

}  // namespace corbd::rbd
