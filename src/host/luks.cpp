// Implements the operations on LUKS with libcryptsetup. Each has a context of its own, so that nothing of a header or
// key outlives its request.
#include <fcntl.h>
#include <libcryptsetup.h>
#include <linux/dm-ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/host/luks.hpp"
#include "failure.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

struct Free {
  void operator()(crypt_device* context) const { crypt_free(context); }
};
using Context = std::unique_ptr<crypt_device, Free>;

/// A mode of integrity as crypt_format() takes it, and the bytes of its key.
struct Integrity {
  std::string_view name;
  const char* hash;
  std::size_t key_bytes;
};
constexpr std::array kIntegrityModes{Integrity{"hmac-sha256", "hmac(sha256)", 32},
                                     Integrity{"hmac-sha512", "hmac(sha512)", 64}};

const Integrity* integrity_named(std::string_view name) {
  const auto* place = std::ranges::find(kIntegrityModes, name, &Integrity::name);
  return place == kIntegrityModes.end() ? nullptr : place;
}

/// The library's messages go into the error, not to a standard stream.
void keep_message(int level, const char* message, void* into) {
  if (level != CRYPT_LOG_ERROR) return;
  auto& text = *static_cast<std::string*>(into);
  text += (text.empty() ? "" : " ") + std::string(message);
  while (!text.empty() && text.back() == '\n') text.pop_back();
}

/// A context, and the library's messages during its use.
struct Device {
  std::string messages;
  Context context;

  Error failed(const std::string& doing, int code) const {
    if (code == -EPERM)
      return {errc::unauthenticated, doing + ": no key slot opens with this passphrase; nothing was changed"};
    Error error = failure(doing, -code);
    if (!messages.empty()) error.text += " (" + messages + ")";
    // The library lacks something that the header asks for: no repeat helps.
    if (code == -ETXTBSY)
      error = {errc::failed_precondition,
               error.text +
                   ": the header asks for what this agent's libcryptsetup does not do, and "
                   "`cryptsetup luksDump` names it: undo it with the cryptsetup that wrote it"};
    return error;
  }
};

/// The caller has exclusive use of the volume, so the library needs no lock files below /run.
result<> begin(Device& on, const std::string& device) {
  static_cast<void>(crypt_metadata_locking(nullptr, 0));
  crypt_device* made = nullptr;
  const int r = crypt_init(&made, device.c_str());
  if (r < 0) return failure("opening " + device, -r);
  on.context.reset(made);
  crypt_set_log_callback(made, &keep_message, &on.messages);
  return {};
}

result<> load(Device& on, const std::string& device) {
  if (auto begun = begin(on, device); !begun) return begun;
  const int r = crypt_load(on.context.get(), CRYPT_LUKS, nullptr);
  if (r < 0) return on.failed("reading the LUKS header of " + device, r);
  return {};
}

/// False if there is no such mapping.
result<bool> find_mapping(Device& on, const std::string& mapping) {
  crypt_device* found = nullptr;
  const int r = crypt_init_by_name(&found, mapping.c_str());
  if (r == -ENODEV) return false;
  if (r < 0) return failure("looking at the mapping " + mapping, -r);
  on.context.reset(found);
  crypt_set_log_callback(found, &keep_message, &on.messages);
  return true;
}

crypt_pbkdf_type key_derivation(std::uint32_t iterations) {
  crypt_pbkdf_type pbkdf = *crypt_get_pbkdf_default(CRYPT_LUKS2);
  pbkdf.type = CRYPT_KDF_ARGON2ID;
  pbkdf.hash = "sha256";
  pbkdf.max_memory_kb = kKeyMemoryKib;  // ceph-csi's --pbkdf-memory
  if (iterations != 0) {
    pbkdf.iterations = iterations;
    pbkdf.flags |= CRYPT_PBKDF_NO_BENCHMARK;
  }
  return pbkdf;
}

std::vector<int> used_slots(crypt_device* context) {
  std::vector<int> used;
  const int all = crypt_keyslot_max(crypt_get_type(context));
  for (int slot = 0; slot < all; ++slot) {
    const auto state = crypt_keyslot_status(context, slot);
    if (state == CRYPT_SLOT_ACTIVE || state == CRYPT_SLOT_ACTIVE_LAST) used.push_back(slot);
  }
  return used;
}

/// Returns the KiB needed to try the costliest key slot.
std::uint32_t memory_of(crypt_device* context) {
  std::uint32_t most = 0;
  for (const int slot : used_slots(context)) {
    crypt_pbkdf_type cost{};
    if (crypt_keyslot_get_pbkdf(context, slot, &cost) == 0) most = std::max(most, cost.max_memory_kb);
  }
  return most;
}

/// Upper bound of an iteration's time, relative to sha256. The header's author names the hash: whirlpool, sha3-512 or
/// streebog512 take several times as long.
std::uint64_t weight_of(std::string_view hash) {
  constexpr std::array<std::string_view, 5> usual{"sha1", "sha224", "sha256", "sha384", "sha512"};
  constexpr std::uint64_t other = 10;
  return std::ranges::find(usual, hash) == usual.end() ? other : 1;
}

/// Returns the values of that name in the JSON of a header. The library wrote this text, so a quote inside a name or a
/// value has a backslash before it.
std::vector<std::string_view> values_of(std::string_view header, std::string_view name) {
  std::vector<std::string_view> values;
  for (auto at = header.find(name); at != header.npos; at = header.find(name, at + 1)) {
    const auto begin = at + name.size();
    values.push_back(trimmed(header.substr(begin, header.find_first_of(",}\n", begin) - begin)));
  }
  return values;
}

/// Parses a number strictly: the library takes other JSON for a number too, such as 4e9, -1 or "4000000000", and cuts
/// it to 32 bits.
std::uint64_t count_of(std::string_view value) {
  std::uint64_t count = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), count);
  const bool known = failed == std::errc() && end == value.data() + value.size() && count <= kMaxHashing;
  return known ? count : kMaxHashing + 1;
}

/// Returns an upper bound for checking a slot's key against the digest: the most iterations of pbkdf2, and the slowest
/// hash, that the header names.
result<std::uint64_t> digest_cost(const Device& on, const std::string& device) {
  std::uint64_t most = 0, weight = 1;
  if (crypt_get_type(on.context.get()) == std::string_view(CRYPT_LUKS1)) {
    // Offsets of hash-spec and mk-digest-iter in LUKS 1's header, the latter in network order.
    constexpr std::size_t hash = 72, hash_bytes = 32, place = 164;
    std::array<char, place + 4> bytes{};
    const Fd file(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || ::pread(file.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      return failure("reading the LUKS header of " + device, errno);
    for (std::size_t i = place; i < bytes.size(); ++i) most = most << 8 | static_cast<unsigned char>(bytes[i]);
    const std::string_view name(bytes.data() + hash, hash_bytes);
    return most * weight_of(name.substr(0, name.find('\0')));
  }
  const char* text = nullptr;
  if (const int r = crypt_dump_json(on.context.get(), &text, 0); r < 0)
    return on.failed("reading the LUKS header of " + device, r);
  for (const auto value : values_of(text, "\"iterations\":")) most = std::max(most, count_of(value));
  for (auto value : values_of(text, "\"hash\":")) {
    if (value.size() > 1 && value.front() == '"') value = value.substr(1, value.size() - 2);
    weight = std::max(weight, weight_of(value));
  }
  return most * weight;
}

/// Counts blocks: pbkdf2 derives a slot's key in blocks, and runs all iterations for each block.
std::uint32_t blocks_of(const Device& on, int slot) {
  constexpr std::size_t block = 32;  // bytes of a sha256
  std::size_t bytes = 0;
  if (crypt_keyslot_get_encryption(on.context.get(), slot, &bytes) == nullptr) return 1;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(bytes / block, 1, UINT32_MAX));
}

/// Refuses hostile costs: anybody who writes the image chooses the costs of its key slots, and a passphrase is tried on
/// every slot in turn.
result<> check_hashing(const Device& on, const std::string& device) {
  constexpr std::uint32_t kMaxThreads = 16;  // cryptsetup makes no key with more than 4
  const auto digest = digest_cost(on, device);
  if (!digest) return digest.error();
  std::uint64_t hashing = 0;
  for (const int slot : used_slots(on.context.get())) {
    crypt_pbkdf_type cost{};
    if (crypt_keyslot_get_pbkdf(on.context.get(), slot, &cost) != 0) continue;
    const auto derives = std::uint64_t{cost.iterations} * std::max(cost.max_memory_kb, blocks_of(on, slot));
    const bool pbkdf2 = cost.type != nullptr && cost.type == std::string_view(CRYPT_KDF_PBKDF2);
    const auto weight = pbkdf2 ? weight_of(cost.hash == nullptr ? "" : cost.hash) : 1;
    const bool too_much =
        derives > kMaxHashing / weight || *digest > kMaxHashing || cost.parallel_threads > kMaxThreads;
    hashing += too_much ? kMaxHashing + 1 : derives * weight + *digest;
  }
  if (hashing <= kMaxHashing) return {};
  return Error{
      errc::failed_precondition,
      "a key of the LUKS header of " + device + " costs too much to try: all key slots together may take " +
          std::to_string(kMaxHashing >> 20) +
          " GiB of hashing (memory times iterations), and each slot 16 threads. Lower the costs with `cryptsetup "
          "luksConvertKey --pbkdf-memory 32768 --iter-time 2000`, or wipe key slots that nobody needs"};
}

result<> check_costs(const Device& on, const std::string& device) {
  // Without this check the kernel would kill this process, and perhaps all others of its cgroup.
  const std::uint64_t needed = std::uint64_t{memory_of(on.context.get())} << 10;
  const auto room = memory_room("/sys/fs/cgroup", "/proc/self/cgroup");
  if (!room || needed <= *room) return check_hashing(on, device);
  return Error{errc::exhausted, "a key of the LUKS header of " + device + " needs " + std::to_string(needed >> 20) +
                                    " MiB, and the memory limit of the agent leaves " + std::to_string(*room >> 20) +
                                    " MiB: raise the limit, or lower the cost with `cryptsetup luksConvertKey "
                                    "--pbkdf-memory 32768`"};
}

/// Writes a header without a key slot.
result<> write_header(Device& on, const std::string& device, std::uint32_t iterations, const LuksFormat& how) {
  const auto* integrity = integrity_named(how.integrity);
  const std::size_t dash = how.cipher.find('-');
  if ((integrity == nullptr && !how.integrity.empty()) || dash == how.cipher.npos)
    return Error{errc::invalid_argument,
                 "no LUKS header is made with cipher '" + how.cipher + "' and integrity '" + how.integrity + "'"};
  const auto pbkdf = key_derivation(iterations);
  crypt_params_luks2 parameters{};
  parameters.pbkdf = &pbkdf;
  parameters.sector_size = how.sector_bytes;
  std::size_t key_bytes = how.key_bits / 8;
  if (integrity != nullptr) {
    parameters.integrity = integrity->hash;
    key_bytes += integrity->key_bytes;
  }
  const int r = crypt_format(on.context.get(), CRYPT_LUKS2, how.cipher.substr(0, dash).c_str(),
                             how.cipher.substr(dash + 1).c_str(), nullptr, nullptr, key_bytes, &parameters);
  if (r < 0) return on.failed("writing a LUKS header on " + device, r);
  return {};
}

/// Writes each sector once, because a sector without a tag cannot be read. No journal is used: a format that does not
/// end starts over.
result<> write_tags(Device& on, const std::string& device, const std::string& mapping) {
  constexpr std::size_t kPiece = 1 << 20;  // bytes
  crypt_volume_key_keyring(on.context.get(), 0);
  int r = crypt_activate_by_volume_key(on.context.get(), mapping.c_str(), nullptr, 0,
                                       CRYPT_ACTIVATE_PRIVATE | CRYPT_ACTIVATE_NO_JOURNAL);
  if (r < 0) return on.failed("opening the new LUKS volume on " + device, r);
  r = crypt_wipe(on.context.get(), ("/dev/mapper/" + mapping).c_str(), CRYPT_WIPE_ZERO, 0, 0, kPiece, 0, nullptr,
                 nullptr);
  result<> written;
  if (r < 0) written = on.failed("writing the tags of integrity on " + device, r);
  r = crypt_deactivate(on.context.get(), mapping.c_str());
  if (r < 0 && written) written = on.failed("closing the mapping " + mapping, r);
  return written;
}

/// Whether libcryptsetup uses this mapping below another, or temporarily, and does not close it by that name.
bool is_inner(std::string_view mapping) {
  return mapping.ends_with("_dif") || mapping.starts_with("temporary-cryptsetup-");
}

/// Works like `dmsetup remove`.
result<> remove_inner(const std::string& mapping) {
  const Fd control(::open("/dev/mapper/control", O_RDWR | O_CLOEXEC));
  if (!control) return failure("opening /dev/mapper/control", errno);
  dm_ioctl request{};
  request.version[0] = DM_VERSION_MAJOR;
  request.data_size = sizeof request;
  if (mapping.size() >= sizeof request.name) return Error{errc::invalid_argument, mapping + " is no name of a mapping"};
  std::ranges::copy(mapping, request.name);
  if (::ioctl(control.get(), DM_DEV_REMOVE, &request) != 0 && errno != ENXIO)
    return failure("closing the mapping " + mapping, errno);
  // udev does this on hosts that run it.
  ::unlink(("/dev/mapper/" + mapping).c_str());
  return {};
}

}  // namespace

std::optional<std::uint64_t> memory_room(const std::string& cgroups, const std::string& own) {
  constexpr std::size_t kFile = 64 << 10;  // bytes
  const auto lines = read_file(own, kFile);
  const auto begin = lines ? lines->find("0::/") : std::string::npos;
  if (begin == std::string::npos) return std::nullopt;
  std::string path = lines->substr(begin + 3, lines->find('\n', begin) - begin - 3);
  std::optional<std::uint64_t> room;
  for (;; path.resize(path.rfind('/'))) {
    const auto most = read_file(cgroups + path + "/memory.max", kFile);
    std::uint64_t limit = 0, taken = 0;
    if (most && std::sscanf(most->c_str(), "%" SCNu64, &limit) == 1) {
      const auto stat = read_file(cgroups + path + "/memory.stat", kFile);
      std::istringstream counts(stat ? *stat : "");
      std::string name;
      for (std::uint64_t bytes = 0; counts >> name >> bytes;)
        if (name == "anon" || name == "kernel" || name == "shmem") taken += bytes;
      const std::uint64_t left = limit > taken ? limit - taken : 0;
      room = std::min(room.value_or(left), left);
    }
    if (path.empty()) return room;
  }
}

result<LuksHeader> luks_look(const std::string& device) {
  auto found = probe(device);
  if (!found) return found.error();
  LuksHeader header{std::move(*found), {}};
  if (!is_luks(header.found)) return header;
  Device on;
  if (auto begun = begin(on, device); !begun) return begun.error();
  const int r = crypt_load(on.context.get(), CRYPT_LUKS, nullptr);
  if (r == 0) header.key_slots = used_slots(on.context.get());
  if (r == 0) header.memory_kib = memory_of(on.context.get());
  crypt_params_integrity integrity{};
  header.integrity =
      r == 0 && crypt_get_integrity_info(on.context.get(), &integrity) == 0 && integrity.integrity != nullptr;
  if (r < 0 && r != -EINVAL) return on.failed("reading the LUKS header of " + device, r);
  return header;
}

result<> luks_format(const std::string& device, const Secret& passphrase, std::uint32_t iterations,
                     const LuksFormat& how) {
  const auto header = luks_look(device);
  if (!header) return header.error();
  const bool unfinished = is_luks(header->found) && header->key_slots.empty();
  if (header->found.kind != Probe::Kind::nothing && !unfinished)
    return Error{errc::not_empty, "refusing to encrypt " + device + ": it already holds data" +
                                      (header->found.type.empty() ? "" : ", " + header->found.type)};
  Device on;
  if (auto begun = begin(on, device); !begun) return begun;
  if (auto written = write_header(on, device, iterations, how); !written) return written;
  if (!how.integrity.empty())
    if (auto written = write_tags(on, device, how.mapping); !written) return written;
  const auto text = passphrase.reveal();
  const int r = crypt_keyslot_add_by_volume_key(on.context.get(), 0, nullptr, 0, text.data(), text.size());
  if (r < 0) return on.failed("writing the first LUKS key on " + device, r);
  return {};
}

result<> luks_open(const std::string& device, const std::string& mapping, const Secret& passphrase, bool read_only) {
  Device open;
  const auto there = find_mapping(open, mapping);
  if (!there) return there.error();
  if (*there) {
    const char* below = crypt_get_device_name(open.context.get());
    if (below != nullptr && below == device) return {};
    return Error{errc::in_use, "the mapping " + mapping + " is open on " +
                                   (below == nullptr ? "another device" : below) + ", not on " + device +
                                   ": close it with `cryptsetup close`"};
  }
  Device on;
  if (auto loaded = load(on, device); !loaded) return loaded;
  if (auto fits = check_costs(on, device); !fits) return fits;
  crypt_volume_key_keyring(on.context.get(), 0);
  const auto text = passphrase.reveal();
  const int r = crypt_activate_by_passphrase(on.context.get(), mapping.c_str(), CRYPT_ANY_SLOT, text.data(),
                                             text.size(), read_only ? CRYPT_ACTIVATE_READONLY : 0);
  if (r < 0) return on.failed("opening the LUKS volume on " + device, r);
  return {};
}

result<> luks_resize(const std::string& mapping) {
  Device on;
  const auto there = find_mapping(on, mapping);
  if (!there) return there.error();
  if (!*there) return Error{errc::unavailable, "the mapping " + mapping + " is not open"};
  const int r = crypt_resize(on.context.get(), mapping.c_str(), 0);
  if (r < 0) return on.failed("making the mapping " + mapping + " as large as its device", r);
  return {};
}

result<> luks_close(const std::string& mapping) {
  if (is_inner(mapping)) return remove_inner(mapping);
  Device on;
  const auto there = find_mapping(on, mapping);
  if (!there) return there.error();
  if (!*there) return {};
  const int r = crypt_deactivate(on.context.get(), mapping.c_str());
  if (r < 0 && r != -ENODEV) return on.failed("closing the mapping " + mapping, r);
  return {};
}

result<bool> luks_opens(const std::string& device, int slot, const Secret& passphrase) {
  Device on;
  if (auto loaded = load(on, device); !loaded) return loaded.error();
  if (auto fits = check_costs(on, device); !fits) return fits.error();
  const auto text = passphrase.reveal();
  const int r = crypt_activate_by_passphrase(on.context.get(), nullptr, slot, text.data(), text.size(), 0);
  if (r == -EPERM) return false;
  if (r < 0) return on.failed("trying key slot " + std::to_string(slot) + " of " + device, r);
  return true;
}

result<> luks_add_key(const std::string& device, int slot, const Secret& known, const Secret& added,
                      std::uint32_t iterations) {
  Device on;
  if (auto loaded = load(on, device); !loaded) return loaded;
  if (auto fits = check_costs(on, device); !fits) return fits;
  const auto pbkdf = key_derivation(iterations);
  const auto old_text = known.reveal(), new_text = added.reveal();
  int r = crypt_set_pbkdf_type(on.context.get(), &pbkdf);
  if (r >= 0)
    r = crypt_keyslot_add_by_passphrase(on.context.get(), slot, old_text.data(), old_text.size(), new_text.data(),
                                        new_text.size());
  if (r < 0) return on.failed("writing key slot " + std::to_string(slot) + " of " + device, r);
  return {};
}

result<> luks_remove_key(const std::string& device, int slot) {
  Device on;
  if (auto loaded = load(on, device); !loaded) return loaded;
  switch (crypt_keyslot_status(on.context.get(), slot)) {
    case CRYPT_SLOT_INACTIVE:
      return {};
    case CRYPT_SLOT_ACTIVE_LAST:
      return Error{errc::failed_precondition, "key slot " + std::to_string(slot) + " of " + device +
                                                  " is the last one, and nothing else opens the volume"};
    default:
      break;
  }
  const int r = crypt_keyslot_destroy(on.context.get(), slot);
  if (r < 0) return on.failed("wiping key slot " + std::to_string(slot) + " of " + device, r);
  return {};
}

}  // namespace corbd::host::ops
