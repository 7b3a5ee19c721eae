// Judges what the key slots of a header cost, which the writer of the image chooses.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <sstream>
#include <string_view>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "corbd/host/cgroup.hpp"
#include "corbd/host/luks.hpp"
#include "failure.hpp"
#include "luks_device.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

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
result<std::uint64_t> digest_cost(const LuksDevice& on, const std::string& device) {
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
std::uint32_t blocks_of(const LuksDevice& on, int slot) {
  constexpr std::size_t block = 32;  // bytes of a sha256
  std::size_t bytes = 0;
  if (crypt_keyslot_get_encryption(on.context.get(), slot, &bytes) == nullptr) return 1;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(bytes / block, 1, UINT32_MAX));
}

/// Refuses hostile costs: anybody who writes the image chooses the costs of its key slots, and a passphrase is tried on
/// every slot in turn.
result<> check_hashing(const LuksDevice& on, const std::string& device) {
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

}  // namespace

std::vector<int> used_slots(crypt_device* context) {
  std::vector<int> used;
  const int all = crypt_keyslot_max(crypt_get_type(context));
  for (int slot = 0; slot < all; ++slot) {
    const auto state = crypt_keyslot_status(context, slot);
    if (state == CRYPT_SLOT_ACTIVE || state == CRYPT_SLOT_ACTIVE_LAST) used.push_back(slot);
  }
  return used;
}

std::uint32_t memory_of(crypt_device* context) {
  std::uint32_t most = 0;
  for (const int slot : used_slots(context)) {
    crypt_pbkdf_type cost{};
    if (crypt_keyslot_get_pbkdf(context, slot, &cost) == 0) most = std::max(most, cost.max_memory_kb);
  }
  return most;
}

result<> check_costs(const LuksDevice& on, const std::string& device) {
  // Without this check the kernel would kill this process, and perhaps all others of its cgroup.
  const std::uint64_t needed = std::uint64_t{memory_of(on.context.get())} << 10;
  const auto room = memory_room("/sys/fs/cgroup", "/proc/self/cgroup");
  if (!room || needed <= *room) return check_hashing(on, device);
  return Error{errc::exhausted, "a key of the LUKS header of " + device + " needs " + std::to_string(needed >> 20) +
                                    " MiB, and the memory limit of the agent leaves " + std::to_string(*room >> 20) +
                                    " MiB: raise the limit, or lower the cost with `cryptsetup luksConvertKey "
                                    "--pbkdf-memory 32768`"};
}

std::optional<std::uint64_t> memory_room(const std::string& cgroups, const std::string& own) {
  std::optional<std::uint64_t> room;
  for (const auto& folder : own_cgroups(cgroups, own)) {
    const auto limit = kernel_number(folder + "/memory.max");
    if (!limit) continue;
    const auto stat = read_file(folder + "/memory.stat", 64 << 10);
    std::istringstream counts(stat ? *stat : "");
    std::string name;
    std::uint64_t taken = 0;
    for (std::uint64_t bytes = 0; counts >> name >> bytes;)
      if (name == "anon" || name == "kernel" || name == "shmem") taken += bytes;
    const std::uint64_t left = *limit > taken ? *limit - taken : 0;
    room = std::min(room.value_or(left), left);
  }
  return room;
}

}  // namespace corbd::host::ops
