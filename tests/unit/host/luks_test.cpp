#include <fcntl.h>
#include <libcryptsetup.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "ground.hpp"
#include "ops.hpp"

using namespace corbd;
using namespace corbd::test;
using host::Probe;

namespace {

constexpr std::uint32_t kIterations = 4;  // the fewest that argon2 may have
const Secret kPassphrase("canary passphrase");

/// A file with a LUKS2 header.
struct Formatted {
  Folder folder;
  std::string image = make_image(folder.path() + "/image");
  Formatted() { REQUIRE(host::ops::luks_format(image, kPassphrase, kIterations)); }
  std::vector<int> slots() const { return host::ops::luks_look(image).value().key_slots; }
  bool opens(int slot, const Secret& passphrase) const {
    return host::ops::luks_opens(image, slot, passphrase).value();
  }
};

std::string bytes_of(const std::string& path, std::size_t count) {
  std::string bytes(count, '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(count));
  return bytes;
}

/// The number that follows `name` in the JSON of the first header, which a tenant may write by hand. The second header
/// is lost.
void set_cost(const std::string& image, const std::string& name, const std::string& number) {
  constexpr std::size_t kHeader = 16384, kSum = 448, kText = 4096;  // bytes; place of the checksum, and of the JSON
  std::string header = bytes_of(image, kHeader);
  const auto at = header.find(name, kText);
  REQUIRE(at != header.npos);
  const auto digits = at + name.size();
  header.replace(digits, header.find_first_not_of("0123456789", digits) - digits, number);
  header.resize(kHeader, '\0');
  header.replace(kSum, 64, 64, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(header.data()), header.size(),
         reinterpret_cast<unsigned char*>(header.data() + kSum));
  std::fstream file(image, std::ios::binary | std::ios::in | std::ios::out);
  file << header << std::string(kHeader, '\0');
}

/// Gives the file a header whose one key costs 1000 iterations of pbkdf2.
void format_pbkdf2(const std::string& image, const char* type, const char* hash) {
  crypt_device* device = nullptr;
  REQUIRE(crypt_init(&device, image.c_str()) == 0);
  crypt_pbkdf_type cost{};
  cost.type = CRYPT_KDF_PBKDF2;
  cost.hash = hash;
  cost.iterations = 1000;
  cost.flags = CRYPT_PBKDF_NO_BENCHMARK;
  REQUIRE(crypt_set_pbkdf_type(device, &cost) == 0);
  REQUIRE(crypt_format(device, type, "aes", "xts-plain64", nullptr, nullptr, 64, nullptr) == 0);
  const auto text = kPassphrase.reveal();
  REQUIRE(crypt_keyslot_add_by_volume_key(device, 0, nullptr, 0, text.data(), text.size()) == 0);
  crypt_free(device);
}

}  // namespace

TEST_CASE("a formatted image is LUKS of version 2 with sha256, argon2id and 32 MiB, and its passphrase in slot 0") {
  const Formatted made;
  const auto header = host::ops::luks_look(made.image);
  REQUIRE(header);
  CHECK(host::is_luks(header->found));
  CHECK(header->key_slots == std::vector<int>{0});
  CHECK_FALSE(header->integrity);
  CHECK(made.opens(0, kPassphrase));
  const std::string bytes = bytes_of(made.image, 32768);
  CHECK(bytes.substr(0, 8) == std::string("LUKS\xba\xbe\0\2", 8));
  CHECK(bytes.find(R"("type":"argon2id")") != bytes.npos);
  CHECK(bytes.find(R"("memory":32768)") != bytes.npos);
  CHECK(bytes.find(R"("hash":"sha256")") != bytes.npos);
  CHECK(bytes.find("aes-xts-plain64") != bytes.npos);
  CHECK(bytes.find("canary") == bytes.npos);
}

TEST_CASE("a header has the key size and the sector size that were asked for") {
  const Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  host::LuksFormat how;
  how.key_bits = 256;
  how.sector_bytes = 4096;
  REQUIRE(host::ops::luks_format(image, kPassphrase, kIterations, how));
  const std::string bytes = bytes_of(image, 32768);
  CHECK(bytes.find(R"("sector_size":4096)") != bytes.npos);
  CHECK(bytes.find(R"("key_size":32)") != bytes.npos);
}

TEST_CASE("a header is not made with a mode of integrity that is not known") {
  const Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  host::LuksFormat how;
  how.integrity = "crc32";
  CHECK(host::ops::luks_format(image, kPassphrase, kIterations, how).error().code == errc::invalid_argument);
  CHECK(host::ops::luks_look(image).value().found.kind == Probe::Kind::nothing);
}

TEST_CASE("an empty image and one with a filesystem show no LUKS header") {
  const Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  CHECK(host::ops::luks_look(image).value().found.kind == Probe::Kind::nothing);
  REQUIRE(host::ops::mkfs(image, "ext4", ""));
  CHECK(host::ops::luks_look(image).value().found.kind == Probe::Kind::filesystem);
  CHECK(host::ops::luks_look(image).value().key_slots.empty());
}

TEST_CASE("an image with a filesystem, or with a header that has a key, is not formatted", "[failure:103]") {
  const Formatted made;
  CHECK(host::ops::luks_format(made.image, Secret("other"), kIterations).error().code == errc::not_empty);
  CHECK(made.opens(0, kPassphrase));
  const Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  REQUIRE(host::ops::mkfs(image, "ext4", ""));
  CHECK(host::ops::luks_format(image, kPassphrase, kIterations).error().code == errc::not_empty);
}

TEST_CASE("a header without key slots, as an interrupted format leaves it, is formatted anew", "[failure:102]") {
  const Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  const int fd = ::open(image.c_str(), O_WRONLY);
  REQUIRE(::pwrite(fd, "LUKS\xba\xbe\0\2", 8, 0) == 8);
  ::close(fd);
  const auto header = host::ops::luks_look(image);
  REQUIRE(header);
  CHECK(host::is_luks(header->found));
  CHECK(header->key_slots.empty());
  REQUIRE(host::ops::luks_format(image, kPassphrase, kIterations));
  CHECK(host::ops::luks_look(image).value().key_slots == std::vector<int>{0});
}

TEST_CASE("a wrong passphrase has an error of its own, appears in no text, and changes nothing", "[failure:101]") {
  const Formatted made;
  const Secret wrong("canary wrong");
  CHECK_FALSE(made.opens(0, wrong));
  const auto added = host::ops::luks_add_key(made.image, 1, wrong, wrong, kIterations);
  REQUIRE_FALSE(added);
  CHECK(added.error().code == errc::unauthenticated);
  CHECK(added.error().text.find("canary") == std::string::npos);
  CHECK(made.slots() == std::vector<int>{0});
}

TEST_CASE("a key goes into a free slot only, and a slot is wiped as long as it is not the last", "[failure:105]") {
  const Formatted made;
  REQUIRE(host::ops::luks_add_key(made.image, 1, kPassphrase, Secret("other"), kIterations));
  CHECK(made.opens(1, Secret("other")));
  CHECK_FALSE(made.opens(1, kPassphrase));
  CHECK_FALSE(host::ops::luks_add_key(made.image, 1, kPassphrase, Secret("third"), kIterations));
  CHECK(host::ops::luks_remove_key(made.image, 0));
  CHECK(host::ops::luks_remove_key(made.image, 0));
  CHECK(made.slots() == std::vector<int>{1});
  CHECK(host::ops::luks_remove_key(made.image, 1).error().code == errc::failed_precondition);
  CHECK(made.opens(1, Secret("other")));
}

TEST_CASE("a header tells the memory that the costliest of its key slots needs", "[failure:204]") {
  const Formatted made;
  CHECK(host::ops::luks_look(made.image).value().memory_kib == host::kKeyMemoryKib);
  crypt_device* device = nullptr;
  REQUIRE(crypt_init(&device, made.image.c_str()) == 0);
  REQUIRE(crypt_load(device, CRYPT_LUKS, nullptr) == 0);
  crypt_pbkdf_type cost = *crypt_get_pbkdf_default(CRYPT_LUKS2);
  cost.max_memory_kb = 2 * host::kKeyMemoryKib;
  cost.iterations = kIterations;
  cost.flags |= CRYPT_PBKDF_NO_BENCHMARK;
  REQUIRE(crypt_set_pbkdf_type(device, &cost) == 0);
  const auto text = kPassphrase.reveal();
  CHECK(crypt_keyslot_add_by_passphrase(device, 1, text.data(), text.size(), "x", 1) == 1);
  crypt_free(device);
  CHECK(host::ops::luks_look(made.image).value().memory_kib == 2 * host::kKeyMemoryKib);
}

TEST_CASE("a key whose header asks for hours of hashing, or for a thousand threads, is not tried") {
  const auto [name, number] = GENERATE(std::pair("\"time\":", "4000000000"), std::pair("\"iterations\":", "4000000000"),
                                       std::pair("\"cpus\":", "1000"));
  const Formatted made;
  set_cost(made.image, name, number);
  REQUIRE(made.slots() == std::vector<int>{0});
  CAPTURE(name);
  const auto opens = host::ops::luks_opens(made.image, 0, kPassphrase);
  const auto opened = host::ops::luks_open(made.image, "corbd-no-such-mapping", kPassphrase, {.read_only = true});
  const auto added = host::ops::luks_add_key(made.image, 1, kPassphrase, Secret("other"), kIterations);
  for (const auto& code : {opens ? errc::ok : opens.error().code, opened ? errc::ok : opened.error().code,
                           added ? errc::ok : added.error().code})
    CHECK(code == errc::failed_precondition);
  CHECK_THAT(opens.error().text, ContainsSubstring("cryptsetup luksConvertKey"));
}

TEST_CASE("a key of LUKS 1 whose header asks for hours of hashing is not tried") {
  const Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  format_pbkdf2(image, CRYPT_LUKS1, "sha256");
  CHECK(host::ops::luks_opens(image, 0, kPassphrase).value());
  const auto place = GENERATE(164, 212);  // of the iterations of the digest, and of the first slot
  std::fstream(image, std::ios::binary | std::ios::in | std::ios::out).seekp(place) << "\xee\x6b\x28";
  const auto opens = host::ops::luks_opens(image, 0, kPassphrase);
  CHECK((opens ? errc::ok : opens.error().code) == errc::failed_precondition);
}

TEST_CASE("a key whose header names a slow hash may take a tenth of the iterations") {
  const Folder folder;
  const std::string image = make_image(folder.path() + "/image");
  SECTION("LUKS 2") {
    format_pbkdf2(image, CRYPT_LUKS2, "sha3-256");
    CHECK(host::ops::luks_opens(image, 0, kPassphrase).value());
    set_cost(image, "\"iterations\":", "20000000");
  }
  SECTION("LUKS 1") {
    format_pbkdf2(image, CRYPT_LUKS1, "sha3-256");
    CHECK(host::ops::luks_opens(image, 0, kPassphrase).value());
    const auto place = GENERATE(164, 212);  // of the iterations of the digest, and of the first slot
    std::fstream(image, std::ios::binary | std::ios::in | std::ios::out).seekp(place) << "\x01\x31\x2d";
  }
  const auto opens = host::ops::luks_opens(image, 0, kPassphrase);
  CHECK((opens ? errc::ok : opens.error().code) == errc::failed_precondition);
}

TEST_CASE("a key is not tried if the iterations in its header are no plain number, or too large for one") {
  const auto* iterations = GENERATE("9223372036854775807", "4e9", "-1", "\"4000000000\"");
  const Formatted made;
  // Their costs together must not become small by an overflow.
  REQUIRE(host::ops::luks_add_key(made.image, 1, kPassphrase, Secret("other"), kIterations));
  set_cost(made.image, "\"iterations\":", iterations);
  CAPTURE(iterations);
  CHECK_FALSE(host::ops::luks_opens(made.image, 0, kPassphrase));
}

TEST_CASE("the room for a key is what the narrowest memory limit above the process leaves", "[failure:204]") {
  const Folder folder;
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder.path() + path).substr(0, (folder.path() + path).rfind('/')));
    std::ofstream(folder.path() + path) << text;
  };
  write("/own", "1:name=systemd:/x\n0::/pods/agent\n");
  CHECK_FALSE(host::ops::memory_room(folder.path(), folder.path() + "/own"));
  write("/pods/agent/memory.max", "max\n");
  CHECK_FALSE(host::ops::memory_room(folder.path(), folder.path() + "/own"));
  write("/pods/memory.max", "1000\n");
  write("/pods/memory.stat", "anon 300\nfile 5000\nkernel 100\nshmem 50\n");
  CHECK(host::ops::memory_room(folder.path(), folder.path() + "/own") == 550);
  write("/pods/agent/memory.max", "200\n");
  write("/pods/agent/memory.stat", "anon 300\n");
  CHECK(host::ops::memory_room(folder.path(), folder.path() + "/own") == 0);
}

TEST_CASE("a header that asks for more than this libcryptsetup does is refused for good, and is not formatted anew") {
  const Formatted made;
  // Both copies of the header: a binary part with its checksum, then the JSON.
  constexpr std::size_t copy_bytes = 16384, checksum = 448, checksum_bytes = 64;
  for (const std::size_t at : {std::size_t{0}, copy_bytes}) {
    std::string copy = bytes_of(made.image, at + copy_bytes).substr(at);
    copy.insert(copy.find(R"("config":{)") + 10, R"("requirements":{"mandatory":["of-the-future"]},)");
    copy.resize(copy_bytes);
    copy.replace(checksum, checksum_bytes, checksum_bytes, '\0');
    std::array<unsigned char, SHA256_DIGEST_LENGTH> sum{};
    ::SHA256(reinterpret_cast<const unsigned char*>(copy.data()), copy.size(), sum.data());
    std::ranges::copy(sum, copy.begin() + checksum);
    overwrite(made.image, static_cast<off_t>(at), copy);
  }
  CHECK(made.slots() == std::vector<int>{0});
  const auto refused = host::ops::luks_add_key(made.image, 1, kPassphrase, kPassphrase, kIterations);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK_THAT(refused.error().text, ContainsSubstring("cryptsetup luksDump"));
  CHECK(host::ops::luks_format(made.image, kPassphrase, kIterations).error().code == errc::not_empty);
}

TEST_CASE("a header in the middle of a reencryption is refused for good with the library's words") {
  const Formatted made;
  crypt_device* header = nullptr;
  REQUIRE(::crypt_init(&header, made.image.c_str()) == 0);
  REQUIRE(::crypt_load(header, CRYPT_LUKS2, nullptr) == 0);
  REQUIRE(::crypt_persistent_flags_set(header, CRYPT_FLAGS_REQUIREMENTS, CRYPT_REQUIREMENT_OFFLINE_REENCRYPT) == 0);
  ::crypt_free(header);
  CHECK(made.slots() == std::vector<int>{0});
  const auto refused = host::ops::luks_add_key(made.image, 1, kPassphrase, kPassphrase, kIterations);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK_THAT(refused.error().text, ContainsSubstring("reencryption"));
  CHECK(host::ops::luks_format(made.image, kPassphrase, kIterations).error().code == errc::not_empty);
}
