#include "key_uses.hpp"

#include <boost/algorithm/string/join.hpp>
#include <boost/json/array.hpp>
#include <tuple>

#include "corbd/core/display.hpp"

namespace corbd::cli {
namespace {

using boost::algorithm::join;

boost::json::object document(const v1::CephKey& key) {
  boost::json::object out{{"user", key.user()}, {"fingerprint", key.fingerprint()}, {"type", key.type()}};
  out["made_at_ms"] = key.has_made_at_ms() ? boost::json::value(key.made_at_ms()) : nullptr;
  return out;
}

boost::json::array array(const std::vector<std::string>& texts) {
  return boost::json::array(texts.begin(), texts.end());
}

std::string key_cell(const v1::CephKey& key) {
  if (key.user().empty()) return cell("");
  return cell("client." + key.user() + (key.fingerprint().empty() ? "" : "/" + key.fingerprint()));
}

/// The volumes come before the devices.
struct Collected {
  KeyUses out;
  std::map<std::tuple<std::string, std::string, std::string>, UsedKey> keys;
  std::set<std::string> recorded;  ///< devices of volumes

  void count(const std::string& cluster_id, const v1::CephKey& key, const std::string& by) {
    auto& use = keys[{cluster_id, key.user(), key.fingerprint()}];
    use.cluster_id = cluster_id;
    use.key = key;
    use.used_by.push_back(by);
    out.needed[key.user()].insert(by);
  }
  void add(const v1::Volume& volume) {
    recorded.insert(volume.device_path());
    for (const auto& user : volume.other_users()) out.needed[user].insert(volume.id());
    if (volume.has_next_key()) out.needed[volume.next_key().user()].insert(volume.id());
    if (volume.has_key())
      count(volume.cluster_id(), volume.key(), volume.id());
    else
      out.unknown.push_back(volume.device_path().empty() ? volume.id() : volume.device_path());
    if (volume.has_next_key() || !volume.why_not_next_key().empty())
      out.moving.push_back(
          {volume.id(), volume.device_path(), volume.key(), volume.next_key(), volume.why_not_next_key()});
  }
  void add(const v1::KernelDevice& device) {
    const bool is_volumes = recorded.contains(device.device_path());
    if (device.user().empty()) {
      if (!is_volumes) out.unknown.push_back(device.device_path());
      return;
    }
    if (is_volumes) {
      out.needed[device.user()].insert(device.device_path());
      return;
    }
    v1::CephKey key;
    key.set_user(device.user());
    key.set_type("unknown");
    count("", key, device.device_path());
  }
};

}  // namespace

KeyUses key_uses(const v1::ListVolumesResponse& volumes) {
  Collected all;
  for (const auto& volume : volumes.volumes()) all.add(volume);
  for (const auto& device : volumes.kernel_devices()) all.add(device);
  for (const auto& device : volumes.unclaimed())
    if (!device.by_kernel()) all.out.unknown.push_back(device.device_path());
  for (const auto& why : volumes.not_read())
    all.out.unknown.push_back("devices that could not be listed (" + why + ")");
  for (auto& [name, use] : all.keys) all.out.keys.push_back(std::move(use));
  return std::move(all.out);
}

std::string keys_table(const KeyUses& uses) {
  std::vector<std::vector<std::string>> rows{{"CLUSTER", "USER", "KEY", "TYPE", "MADE", "DEVICES"}};
  for (const auto& [cluster_id, key, used_by] : uses.keys)
    rows.push_back({cell(cluster_id), cell("client." + key.user()), cell(key.fingerprint()), cell(key.type()),
                    key.has_made_at_ms() ? time_text(key.made_at_ms()) : cell(""), std::to_string(used_by.size())});
  std::string text = table(rows);
  if (!uses.moving.empty()) {
    std::vector<std::vector<std::string>> left{{"VOLUME", "DEVICE", "HAS", "IS-TO-HAVE", "WHY-NOT-YET"}};
    for (const auto& volume : uses.moving)
      left.push_back({cell(volume.volume_id), cell(volume.device), key_cell(volume.key), key_cell(volume.next),
                      volume.why_not.empty() ? "it is about to move" : cell(volume.why_not)});
    text += "\n" + table(left);
  }
  if (!uses.unknown.empty())
    text += "\nThe agent does not know the Ceph user of " + for_terminal(join(uses.unknown, ", ")) + "\n";
  return text;
}

boost::json::object keys_document(const KeyUses& uses) {
  boost::json::array keys, moving;
  for (const auto& use : uses.keys) {
    auto one = document(use.key);
    one["cluster_id"] = use.cluster_id;
    one["used_by"] = array(use.used_by);
    keys.push_back(std::move(one));
  }
  for (const auto& volume : uses.moving)
    moving.push_back({{"volume_id", volume.volume_id},
                      {"device_path", volume.device},
                      {"key", document(volume.key)},
                      {"next_key", document(volume.next)},
                      {"why_not_next_key", volume.why_not}});
  return {{"keys", std::move(keys)}, {"moving", std::move(moving)}, {"unknown", array(uses.unknown)}};
}

UserVerdict judge_user(const KeyUses& uses, const std::string& user) {
  const std::string client = "client." + for_terminal(user);
  if (const auto place = uses.needed.find(user); place != uses.needed.end())
    return {true, client + " is needed on this node, by " + for_terminal(join(place->second, ", "))};
  if (!uses.unknown.empty())
    return {true, "nobody knows whether this node needs " + client + ": the Ceph user of " +
                      for_terminal(join(uses.unknown, ", ")) +
                      " is unknown. Another program serves that, or the agent is older than this command"};
  return {false, "nothing on this node needs " + client};
}

}  // namespace corbd::cli
