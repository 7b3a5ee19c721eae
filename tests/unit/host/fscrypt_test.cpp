#include <filesystem>
#include <fstream>

#include "corbd/core/file.hpp"
#include "corbd/host/tools.hpp"
#include "fscrypt_keys.hpp"
#include "ground.hpp"
#include "ops.hpp"

using namespace corbd;
using namespace corbd::test;
using host::EncryptedFolder;
using host::FscryptSecret;
namespace fs = std::filesystem;
namespace ops = corbd::host::ops;

namespace {

const std::string kText = "canary passphrase";
const FscryptSecret kRaw{Secret(kText), false}, kHashed{Secret(kText), true}, kWrong{Secret("another"), false};

/// ceph-csi's raw key: 32 bytes, filled up with NUL.
std::string raw_key_of(std::string text) {
  text.resize(32, '\0');
  return text;
}

/// A mounted filesystem on a loop device.
struct Ext4 {
  Folder folder;
  std::string image = make_image(folder.path() + "/image"), target = folder.path() + "/target";
  std::optional<LoopDevice> device;
  explicit Ext4(bool encrypts = true) {
    if (!may_mount()) return;
    REQUIRE(ops::mkfs(image, "ext4", "", {.files_encrypted = encrypts}));
    device = LoopDevice::attach(image);
    if (device) mount();
  }
  ~Ext4() {
    while (::umount2(target.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
    }
  }
  void mount() const { REQUIRE(ops::mount(device->path(), "ext4", target, "")); }
  void remount() const {
    REQUIRE(ops::unmount(target));
    mount();
  }
  std::string encrypted() const { return target + "/" + host::kEncryptedFolder; }
  EncryptedFolder look() const { return ops::fscrypt_look(target).value(); }
  /// False, with a message, where this kernel cannot.
  bool works() const {
    if (!device) return false;
    const auto found = ops::fscrypt_look(target);
    if (!found) WARN("skipped: " + found.error().text);
    return found.has_value();
  }
};

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::size_t files_in(const std::string& folder) { return fs::exists(folder) ? names_in(folder).size() : 0; }

/// Debian's program, which has the library that ceph-csi has.
bool has_fscrypt() {
  const bool there = !host::find_program("fscrypt").empty();
  if (!there) WARN("skipped: no fscrypt");
  return there;
}

/// Its exit code; `input` is its stdin.
int run_fscrypt(const std::string& arguments, const std::string& input = "/dev/null") {
  return ::system(("fscrypt " + arguments + " --quiet <" + input + " >/dev/null 2>&1").c_str());
}

/// The program's configuration has one place.
struct FscryptConf {
  static constexpr const char* path = "/etc/fscrypt.conf";
  bool made = !fs::exists(path);
  FscryptConf() {
    if (made)
      put(path,
          R"({"source":"custom_passphrase","hash_costs":{"time":"2","memory":"8192","parallelism":"2"},)"
          R"("options":{"padding":"32","contents":"AES_256_XTS","filenames":"AES_256_CTS","policy_version":"2"}})");
  }
  ~FscryptConf() {
    if (made) fs::remove(path);
  }
};

}  // namespace

TEST_CASE("a protector opens with the secret that it was made with, raw or hashed, and with no other") {
  const auto key = host::make_fscrypt_key(host::kProtectorKeyBytes).value();
  for (const auto& secret : {kRaw, kHashed}) {
    const auto protector = host::make_protector(secret, key);
    REQUIRE(protector);
    CHECK(protector->name() == "ceph-csi");
    CHECK(protector->id().size() == 16);
    CHECK(host::open_protector(*protector, secret.secret).value() == key);
    CHECK(host::open_protector(*protector, kWrong.secret).error().code == errc::unauthenticated);
    CHECK(protector->SerializeAsString().find("canary") == std::string::npos);
  }
}

TEST_CASE("a secret of more than 32 bytes opens a raw protector by the first 32, as ceph-csi's base64 of 64 does") {
  const auto key = host::make_fscrypt_key(host::kProtectorKeyBytes).value();
  const std::string text(88, 'a');
  const auto protector = host::make_protector({Secret(text), false}, key);
  REQUIRE(protector);
  CHECK(host::open_protector(*protector, Secret(text.substr(0, 32))).value() == key);
}

TEST_CASE("a passphrase opens what an older ceph-csi made of its first 32 bytes, filled up with NUL") {
  const auto key = host::make_fscrypt_key(host::kProtectorKeyBytes).value();
  const auto protector = host::make_protector({Secret(raw_key_of(kText)), true}, key);
  REQUIRE(protector);
  CHECK(host::open_protector(*protector, Secret(kText)).value() == key);
}

TEST_CASE("costs of a protector that would take a node's memory are refused") {
  const auto key = host::make_fscrypt_key(host::kProtectorKeyBytes).value();
  auto protector = host::make_protector(kHashed, key).value();
  protector.mutable_costs()->set_memory(std::int64_t{1} << 40);
  CHECK(host::open_protector(protector, kHashed.secret).error().code == errc::state_corrupt);
}

TEST_CASE("costs of a protector that would take minutes of CPU time are refused") {
  const auto key = host::make_fscrypt_key(host::kProtectorKeyBytes).value();
  auto protector = host::make_protector(kHashed, key).value();
  protector.mutable_costs()->set_memory(256 << 10);
  protector.mutable_costs()->set_time(1 << 10);
  CHECK(host::open_protector(protector, kHashed.secret).error().code == errc::state_corrupt);
}

TEST_CASE("a folder is made with a key, locked, and unlocked, and without its key its names are not readable") {
  const Ext4 on;
  if (!on.works()) return;
  const auto& secret = GENERATE(false, true) ? kHashed : kRaw;
  CHECK(on.look() == EncryptedFolder::none);
  REQUIRE(ops::fscrypt_make(on.target, secret));
  CHECK(on.look() == EncryptedFolder::unlocked);
  put(on.encrypted() + "/a plain name", "canary text");
  REQUIRE(ops::fscrypt_lock(on.target));
  CHECK(on.look() == EncryptedFolder::locked);
  REQUIRE(names_in(on.encrypted()).size() == 1);
  CHECK(names_in(on.encrypted()).front() != "a plain name");
  CHECK(ops::fscrypt_unlock(on.target, kWrong).error().code == errc::unauthenticated);
  CHECK(on.look() == EncryptedFolder::locked);
  REQUIRE(ops::fscrypt_unlock(on.target, secret));
  CHECK(read_file(on.encrypted() + "/a plain name", 100).value() == "canary text");
}

TEST_CASE("a filesystem that is mounted again has no key of its folder, and neither text nor name is on the device") {
  const Ext4 on;
  if (!on.works()) return;
  REQUIRE(ops::fscrypt_make(on.target, kRaw));
  put(on.encrypted() + "/canary-name", "canary-text");
  on.remount();
  CHECK(on.look() == EncryptedFolder::locked);
  CHECK_FALSE(fs::exists(on.encrypted() + "/canary-name"));
  const auto bytes = read_file(on.image, std::size_t{1} << 30).value();
  CHECK(bytes.find("canary") == bytes.npos);
}

TEST_CASE("making, unlocking and locking a folder again changes nothing") {
  const Ext4 on;
  if (!on.works()) return;
  REQUIRE(ops::fscrypt_lock(on.target));
  REQUIRE(ops::fscrypt_make(on.target, kRaw));
  REQUIRE(ops::fscrypt_make(on.target, kRaw));
  REQUIRE(ops::fscrypt_unlock(on.target, kRaw));
  CHECK(files_in(on.target + "/.fscrypt/policies") == 1);
  CHECK(files_in(on.target + "/.fscrypt/protectors") == 1);
  REQUIRE(ops::fscrypt_lock(on.target));
  REQUIRE(ops::fscrypt_lock(on.target));
  CHECK(on.look() == EncryptedFolder::locked);
}

TEST_CASE("a folder is made beside the metadata that an interrupted try left", "[failure:180]") {
  const Ext4 on;
  if (!on.works()) return;
  REQUIRE(ops::fscrypt_make(on.target, kRaw));
  // The folder is encrypted last, and a death before that leaves the metadata alone.
  fs::remove(on.encrypted());
  if (GENERATE(false, true)) fs::create_directory(on.encrypted());
  CHECK(on.look() == EncryptedFolder::none);
  REQUIRE(ops::fscrypt_make(on.target, kHashed));
  CHECK(files_in(on.target + "/.fscrypt/policies") == 2);
  on.remount();
  CHECK(ops::fscrypt_unlock(on.target, kHashed));
}

TEST_CASE("a folder with files is not encrypted, and its files stay", "[failure:181]") {
  const Ext4 on;
  if (!on.works()) return;
  fs::create_directory(on.encrypted());
  put(on.encrypted() + "/file", "text");
  CHECK(on.look() == EncryptedFolder::plain);
  CHECK(ops::fscrypt_make(on.target, kRaw).error().code == errc::not_empty);
  CHECK(read_file(on.encrypted() + "/file", 100).value() == "text");
}

TEST_CASE("a file that is open stays readable when its folder is locked, and nobody opens another") {
  const Ext4 on;
  if (!on.works()) return;
  REQUIRE(ops::fscrypt_make(on.target, kRaw));
  put(on.encrypted() + "/file", "text");
  std::ifstream open(on.encrypted() + "/file");
  REQUIRE(ops::fscrypt_lock(on.target));
  CHECK(on.look() == EncryptedFolder::locked);
  std::string text;
  CHECK((open >> text && text == "text"));
  CHECK_FALSE(std::ofstream(on.encrypted() + "/other").is_open());
  open.close();
  REQUIRE(ops::fscrypt_unlock(on.target, kRaw));
  CHECK(read_file(on.encrypted() + "/file", 100).value() == "text");
}

TEST_CASE("a filesystem that was not made for encryption is refused, and so is a folder that is no mount") {
  const Ext4 on(false);
  if (!on.device) return;
  const auto found = ops::fscrypt_look(on.target);
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::failed_precondition);
  CHECK_THAT(found.error().text, ContainsSubstring("encrypt"));
  CHECK(ops::fscrypt_make(on.target, kRaw).error().code == errc::failed_precondition);
  CHECK(ops::fscrypt_make(on.folder.path(), kRaw).error().code == errc::not_found);
}

TEST_CASE("a link in place of the metadata or the folder leads nowhere") {
  const Ext4 on;
  if (!on.works()) return;
  const std::string elsewhere = on.folder.path() + "/elsewhere";
  fs::create_directory(elsewhere);
  fs::create_directory_symlink(elsewhere, GENERATE(false, true) ? on.encrypted() : on.target + "/.fscrypt");
  CHECK_FALSE(ops::fscrypt_make(on.target, kRaw));
  CHECK(names_in(elsewhere).empty());
}

TEST_CASE("damaged metadata of a folder are told, and it stays locked", "[failure:181]") {
  const Ext4 on;
  if (!on.works()) return;
  REQUIRE(ops::fscrypt_make(on.target, kRaw));
  REQUIRE(ops::fscrypt_lock(on.target));
  const std::string policies = on.target + "/.fscrypt/policies/";
  const std::string policy = policies + names_in(policies).front();
  if (GENERATE(false, true))
    put(policy, "no protobuf");
  else
    fs::remove(policy);
  CHECK(ops::fscrypt_unlock(on.target, kRaw).error().code == errc::state_corrupt);
  CHECK(on.look() == EncryptedFolder::locked);
}

// One case: the program's configuration is the machine's.
TEST_CASE("the program fscrypt opens a folder that was made here, and one that it made as ceph-csi does opens here") {
  const Ext4 on;
  if (!has_fscrypt() || !on.works()) return;
  const FscryptConf conf;
  const bool hashed = GENERATE(false, true);
  const std::string key = on.folder.path() + "/key";
  put(key, hashed ? kText : raw_key_of(kText));
  SECTION("made here") {
    REQUIRE(ops::fscrypt_make(on.target, hashed ? kHashed : kRaw));
    put(on.encrypted() + "/file", "text");
    on.remount();
    CHECK(run_fscrypt("unlock " + on.encrypted() + (hashed ? "" : " --key=" + key), hashed ? key : "/dev/null") == 0);
    CHECK(on.look() == EncryptedFolder::unlocked);
  }
  SECTION("made by the program") {
    fs::create_directory(on.encrypted());
    REQUIRE(run_fscrypt("setup " + on.target) == 0);
    REQUIRE(run_fscrypt("encrypt " + on.encrypted() + " --name=ceph-csi --no-recovery --source=" +
                            (hashed ? "custom_passphrase" : "raw_key --key=" + key),
                        hashed ? key : "/dev/null") == 0);
    put(on.encrypted() + "/file", "text");
    on.remount();
    CHECK(ops::fscrypt_unlock(on.target, kWrong).error().code == errc::unauthenticated);
    REQUIRE(ops::fscrypt_unlock(on.target, kRaw));
  }
  CHECK(read_file(on.encrypted() + "/file", 100).value() == "text");
}
