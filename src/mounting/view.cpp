#include "view.hpp"

#include <boost/json/object.hpp>

#include "corbd/core/display.hpp"

namespace corbd::mounting {
namespace {

using Phase = manager::Claim::Phase;
using At = manager::PathState::At;

std::string usage_text(const manager::Usage& usage) {
  std::string text = usage.read_only ? "ro" : "rw";
  if (usage.attachment == manager::AccessType::block) return text + ",block";
  for (const auto& option : usage.mount_options) text += "," + option;
  return text;
}

}  // namespace

MountState state_of(const manager::Manager::Held& held) {
  const auto& [claim, sight, another] = held;
  const std::string dir = for_terminal(claim.target);
  if (sight.at == At::unknown) return {"unknown", sight.text + "; look at `corbd volumes`"};
  if (another)
    return {"hidden", "another mount is there, and not this volume's: unmount that, then `corbd mount --all`"};
  const bool begun = claim.phase == Phase::unmounting || claim.phase == Phase::leaving;
  if (begun && !claim.again) return {"half-unmounted", "an unmount did not end: `corbd unmount " + dir + "`"};
  if (sight.at == At::dead) return {"dead", sight.text + ": end who uses it, then `corbd mount --all`"};
  if (begun && sight.at == At::mounted)
    return {"half-unmounted", "`corbd unmount --all` did not end: repeat it, or `corbd mount --all`"};
  if (claim.phase == Phase::mounting) return {"half-mounted", "a mount did not end: `corbd mount --all`"};
  if (sight.at == At::mounted) return {"mounted", ""};
  return {"unmounted", "after a reboot or `corbd unmount --all`, or by another program: `corbd mount --all`"};
}

std::string mounts_table(const std::vector<manager::Manager::Held>& all) {
  if (all.empty()) return "nothing is mounted\n";
  std::vector<std::vector<std::string>> rows{{"DIR", "VOLUME", "STATE", "MOUNT", "OPTIONS", "HINT"}};
  for (const auto& held : all) {
    const auto state = state_of(held);
    rows.push_back({cell(held.claim.target), cell(held.claim.volume.name), state.word, cell(held.sight.mount),
                    cell(usage_text(held.claim.usage)), for_terminal(state.hint)});
  }
  return table(rows);
}

boost::json::array mounts_json(const std::vector<manager::Manager::Held>& all) {
  boost::json::array rows;
  for (const auto& held : all) {
    const auto& [claim, sight, another] = held;
    const auto state = state_of(held);
    rows.push_back(boost::json::object{{"dir", claim.target},
                                       {"volume", claim.volume.name},
                                       {"volume_id", claim.volume.external_id},
                                       {"plugin", claim.volume.plugin},
                                       {"phase", name(claim.phase)},
                                       {"state", state.word},
                                       {"hint", state.hint},
                                       {"mount", sight.mount},
                                       {"staging", claim.staging},
                                       {"access_mode", claim.usage.access_mode},
                                       {"block", claim.usage.attachment == manager::AccessType::block},
                                       {"read_only", claim.usage.read_only},
                                       {"fstype", claim.usage.fstype}});
  }
  return rows;
}

}  // namespace corbd::mounting
