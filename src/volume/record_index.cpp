#include "record_index.hpp"

#include "corbd/plan/observation.hpp"

namespace corbd::volume {
namespace {

template <class Set, class Key>
void add_of(const Set& set, const Key& key, std::set<std::string>& found) {
  for (auto place = set.lower_bound({key, ""}); place != set.end() && place->first == key; ++place)
    found.insert(place->second);
}

/// Returns all paths that plan::is_at() finds in the record.
std::vector<std::string> all_paths_of(const Record& record) {
  std::vector<std::string> paths;
  for (const auto& staging : record.stagings) {
    paths.push_back(staging.path);
    paths.push_back(plan::staging_target(record.volume_id, staging.path));
  }
  for (const auto& publish : record.publishes) paths.push_back(publish.target);
  return paths;
}

}  // namespace

std::set<std::string> RecordIndex::of_image(const image::Key& key) const {
  std::set<std::string> found;
  add_of(by_image_, key, found);
  return found;
}

std::set<std::string> RecordIndex::at(const std::vector<std::string>& paths) const {
  std::set<std::string> found;
  for (const auto& path : paths) add_of(by_path_, path, found);
  return found;
}

void RecordIndex::add(const std::string& id, const Record& record) {
  by_image_.emplace(record.key, id);
  for (auto& path : all_paths_of(record)) by_path_.emplace(std::move(path), id);
}

void RecordIndex::remove(const std::string& id, const Record& record) {
  by_image_.extract({record.key, id});
  for (auto& path : all_paths_of(record)) by_path_.extract({std::move(path), id});
}

}  // namespace corbd::volume
