#include "full_pools.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace corbd::volume {
namespace {

constexpr std::chrono::seconds kAsksForPoolFor{5};

}  // namespace

task<std::map<std::string, std::string>> in_full_pools(const Ports& ports, Clock& clock, const VolumeMap& volumes,
                                                       Until until) {
  struct Pool {
    image::Access access;
    std::int64_t id;
    result<std::optional<std::string>> full;
  };
  std::vector<Pool> asked;
  std::map<std::string, std::string> found;
  std::vector<std::string> ids;
  for (const auto& [id, volume] : volumes)
    if (volume->record && !volume->record->failed && volume->server.serves() && !volume->record->use.read_only)
      ids.push_back(id);
  for (const auto& id : ids) {
    // The volume may be gone after any wait.
    const Volume* known = volumes.find(id);
    if (known == nullptr || !known->record || known->credentials.known().empty()) continue;
    const auto access = access_of(ports, *known->record, known->credentials.known());
    if (!access || !is_own_cluster(ports, *known->record, *access)) continue;
    const std::int64_t pool = known->record->key.pool_id;
    auto place = std::ranges::find_if(asked, [&](const Pool& one) { return one.access == *access && one.id == pool; });
    if (place == asked.end()) {
      // A cluster that is silent is not asked again.
      const bool silent = std::ranges::any_of(asked, [&](const Pool& one) {
        return one.access == *access && !one.full && one.full.error().code == errc::timed_out;
      });
      if (silent || clock.now() >= until.deadline) continue;
      auto full = co_await ports.clusters.why_full(*access, pool, until.at_most(clock.now() + kAsksForPoolFor));
      asked.push_back({*access, pool, std::move(full)});
      place = std::prev(asked.end());
    }
    if (place->full && *place->full) found[id] = **place->full;
  }
  co_return found;
}

}  // namespace corbd::volume
