#include "short_entries.hpp"

#include <algorithm>
#include <filesystem>

#include "corbd/core/fields_json.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "incarnation.hpp"

namespace corbd::rbd {
namespace {

using std::chrono::system_clock;

constexpr std::string_view kNoteSuffix = ".short";
constexpr std::size_t kLargestNote = 4096;
constexpr int kNoteVersion = 1;

// A leading monitor checks every 5 s (mon_tick_interval) which entries have ended. Until ours exists its client may
// write, so we check often then.
constexpr std::chrono::seconds kBefore{10}, kLate{60};
constexpr std::chrono::milliseconds kOften{200}, kSeldom{30'000}, kStalled{5'000};

std::string note_file(const std::string& dir, const std::string& uuid) {
  return dir + "/" + uuid + std::string(kNoteSuffix);
}

Renewal wait_for_end(system_clock::duration left) {
  const auto before = std::chrono::duration_cast<std::chrono::milliseconds>(left - kBefore);
  if (left > kBefore) return {Renewal::Step::wait, std::clamp(before, kOften, kSeldom)};
  return {Renewal::Step::wait, left < -kLate ? kStalled : kOften};
}

}  // namespace

std::string to_json(const ShortEntry& entry) { return fields::to_file(entry, kNoteVersion); }

result<ShortEntry> parse_short_entry(std::string_view text) {
  auto entry = fields::from_text<ShortEntry>(text, "entry");
  if (!entry) return entry.error();
  if (entry->uuid.empty() || entry->fsid.empty()) return Error{errc::state_corrupt, "no uuid, or no fsid"};
  if (const auto client = image::entry_of_client(entry->client); !client)
    return Error{errc::state_corrupt, client.error().text};
  return entry;
}

result<> save_short_entry(const std::string& dir, const ShortEntry& entry) {
  return write_durably(note_file(dir, entry.uuid), to_json(entry), 0600);
}

result<> forget_short_entry(const std::string& dir, const std::string& uuid) {
  return remove_durably(note_file(dir, uuid));
}

LoadedShortEntries load_short_entries(const std::string& dir) {
  LoadedShortEntries loaded;
  std::error_code failed;
  for (std::filesystem::directory_iterator file(dir, failed), end; !failed && file != end; file.increment(failed)) {
    const std::string path = file->path().string();
    if (!path.ends_with(kNoteSuffix)) continue;
    const auto text = read_file(path, kLargestNote);
    if (!text && text.error().code == errc::not_found) continue;  // the agent that serves beside this one removed it
    if (!text && text.error().code != errc::state_corrupt) {
      loaded.unread = text.error();
      continue;
    }
    auto entry = text ? parse_short_entry(*text) : result<ShortEntry>(text.error());
    if (entry) {
      loaded.all.push_back(std::move(*entry));
      continue;
    }
    loaded.lost = true;
    log::error("blocklist.note_corrupt",
               {{"file", path},
                {"error", entry.error().text},
                {"effect", "the dead clients of earlier agents here are fenced again, at each start"},
                {"hint",
                 "it may name another node's client, which can write once its entry has ended: look at `ceph osd "
                 "blocklist ls`, fence whoever ends early again, and then remove the file"}});
  }
  if (failed) loaded.unread = Error{errc::unavailable, "reading the folder " + dir + ": " + failed.message()};
  return loaded;
}

Renewal next_renewal(const ShortEntry& entry, const std::vector<image::BlocklistEntry>& listed,
                     system_clock::time_point now, bool exact) {
  const auto found = std::ranges::find_if(listed, [&](const image::BlocklistEntry& one) {
    return one.kind == image::BlocklistEntry::Kind::client && one.client == entry.client;
  });
  if (found == listed.end()) {
    const bool taken_away = exact && now + kLate < entry.until;
    return {taken_away ? Renewal::Step::forget : Renewal::Step::add, kOften};
  }
  const auto left = found->until - now;
  const bool is_new = found->until > entry.until + std::chrono::seconds(1);
  if (is_new && image::is_long_enough(std::chrono::floor<std::chrono::seconds>(left), kBlocklistTime))
    return {Renewal::Step::forget, {}};
  return wait_for_end(left);
}

}  // namespace corbd::rbd
