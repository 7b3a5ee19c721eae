// Implements the operations on an encrypted folder: the kernel's fscrypt by its ioctls
// (Documentation/filesystems/fscrypt.rst), and the metadata beside the folder. A filesystem's content is not trusted:
// no path in it may lead out of it.
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"
#include "failure.hpp"
#include "fscrypt_keys.hpp"
#include "ops.hpp"
#include "target.hpp"

namespace corbd::host::ops {
namespace {

// fscrypt's defaults, which ceph-csi uses. The metadata must agree with the folder's own policy.
constexpr int kPadding = 32;
constexpr const char *kMetadata = ".fscrypt", *kPolicies = "policies", *kProtectors = "protectors";
constexpr mode_t kOpenFolderMode = 0755, kMetadataMode = 0600;
constexpr std::size_t kMostMetadata = 16 << 10;  // fscrypt's limit of a file, in bytes

using Policy = fscrypt_policy_v2;
using KeyName = fscrypt_key_specifier;

/// Opens a path below `root`, on its filesystem, without following a link. Nothing: it does not exist.
result<std::optional<Fd>> open_inside(int root, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  Fd fd(static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
  if (!fd && errno == ENOENT) return std::optional<Fd>();
  if (!fd) return failure("opening " + path + " of a volume", errno);
  return std::optional(std::move(fd));
}

Error cannot_encrypt(const std::string& what, int error) {
  if (error == EOPNOTSUPP || error == ENOTTY)
    return {errc::failed_precondition,
            what +
                " cannot be encrypted: its filesystem was made without the option -O encrypt, or the kernel lacks "
                "CONFIG_FS_ENCRYPTION. Copy its data into a new volume"};
  return failure("asking for the encryption of " + what, error);
}

/// Nothing: it is not encrypted.
result<std::optional<Policy>> policy_of(int fd, const std::string& what) {
  fscrypt_get_policy_ex_arg asked{};
  asked.policy_size = sizeof asked.policy;
  if (::ioctl(fd, FS_IOC_GET_ENCRYPTION_POLICY_EX, &asked) != 0) {
    if (errno == ENODATA) return std::optional<Policy>();
    return cannot_encrypt(what, errno);
  }
  if (asked.policy.version == FSCRYPT_POLICY_V2) return std::optional(asked.policy.v2);
  return Error{errc::unimplemented,
               what +
                   " is encrypted with a policy of version 1, as on kernels before 5.4, which is not supported: "
                   "copy its data into a new volume with ceph-csi"};
}

std::string id_of(const Policy& policy) {
  const auto& id = policy.master_key_identifier;
  return hex({reinterpret_cast<const char*>(id), sizeof id});
}

KeyName name_of(const Policy& policy) {
  KeyName name{};
  name.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER;
  std::memcpy(name.u.identifier, policy.master_key_identifier, sizeof policy.master_key_identifier);
  return name;
}

/// A volume's folder, and its policy.
struct OpenFolder {
  Fd fd;
  std::optional<Policy> policy;
};

/// Nothing: it does not exist.
result<std::optional<OpenFolder>> open_folder(int root, const std::string& target) {
  if (const auto able = policy_of(root, target); !able) return able.error();
  auto folder = open_inside(root, kEncryptedFolder, O_RDONLY | O_DIRECTORY);
  if (!folder) return folder.error();
  if (!*folder) return std::optional<OpenFolder>();
  auto policy = policy_of((*folder)->get(), target + "/" + kEncryptedFolder);
  if (!policy) return policy.error();
  return std::optional(OpenFolder{std::move(**folder), *policy});
}

/// Adds a key. The kernel returns its name.
result<KeyName> add_key(int root, const std::string& target, const Secret& key) {
  std::string buffer(sizeof(fscrypt_add_key_arg) + key.reveal().size(), '\0');
  auto* asked = reinterpret_cast<fscrypt_add_key_arg*>(buffer.data());
  asked->key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER;
  asked->raw_size = static_cast<std::uint32_t>(key.reveal().size());
  key.reveal().copy(buffer.data() + sizeof(fscrypt_add_key_arg), key.reveal().size());
  const int failed = ::ioctl(root, FS_IOC_ADD_ENCRYPTION_KEY, asked) == 0 ? 0 : errno;
  const KeyName name = asked->key_spec;
  wipe(buffer);
  if (failed != 0) return cannot_encrypt(target, failed);
  return name;
}

/// Removes a key. Returns the flags of the remaining state; 0: nothing remains.
result<std::uint32_t> remove_key(int root, const std::string& target, const KeyName& name) {
  fscrypt_remove_key_arg asked{};
  asked.key_spec = name;
  if (::ioctl(root, FS_IOC_REMOVE_ENCRYPTION_KEY_ALL_USERS, &asked) == 0) return asked.removal_status_flags;
  if (errno == ENOKEY) return std::uint32_t{0};
  return failure("taking away the key of " + target, errno);
}

template <class Message>
result<std::optional<Message>> read_metadata(int root, const char* folder, const std::string& id) {
  const std::string path = std::string(kMetadata) + "/" + folder + "/" + id;
  const auto file = open_inside(root, path, O_PATH);
  if (!file) return file.error();
  if (!*file) return std::optional<Message>();
  struct stat found{};
  if (::fstat((*file)->get(), &found) != 0) return failure("looking at " + path, errno);
  const Error corrupt{errc::state_corrupt, path + " of a volume is not what fscrypt writes"};
  if (!S_ISREG(found.st_mode)) return corrupt;
  const auto bytes = read_file("/proc/self/fd/" + std::to_string((*file)->get()), kMostMetadata);
  if (!bytes) return with_context("reading " + path + " of a volume", bytes.error());
  Message message;
  if (!message.ParseFromString(*bytes)) return corrupt;
  return std::optional(std::move(message));
}

/// Makes the folder if it does not exist.
result<Fd> make_inside(int at, const char* name) {
  const bool made = ::mkdirat(at, name, kOpenFolderMode) == 0;
  if (!made && errno != EEXIST) return failure(std::string("making the folder ") + name + " of a volume", errno);
  auto opened = open_inside(at, name, O_RDONLY | O_DIRECTORY);
  if (!opened) return opened.error();
  if (!*opened) return failure(std::string("opening the folder ") + name + " of a volume", ENOENT);
  // Set the mode again, because of the umask.
  if (made && ::fchmod((*opened)->get(), kOpenFolderMode) != 0)
    return failure(std::string("opening to all the folder ") + name + " of a volume", errno);
  return std::move(**opened);
}

result<> write_metadata(int metadata, const char* folder, const std::string& id, const std::string& bytes) {
  const auto into = make_inside(metadata, folder);
  if (!into) return into.error();
  return write_durably("/proc/self/fd/" + std::to_string(into->get()) + "/" + id, bytes, kMetadataMode);
}

/// Encrypts the folder last: until then the metadata belong to nothing, and another try adds its own.
result<> encrypt_folder(int root, const std::string& target, const fscrypt::Protector& protector,
                        const fscrypt::Policy& saved, const Policy& policy) {
  const auto metadata = make_inside(root, kMetadata);
  if (!metadata) return metadata.error();
  if (auto done = write_metadata(metadata->get(), kProtectors, protector.id(), protector.SerializeAsString()); !done)
    return done;
  if (auto done = write_metadata(metadata->get(), kPolicies, saved.id(), saved.SerializeAsString()); !done) return done;
  if (::fsync(metadata->get()) != 0 || ::syncfs(root) != 0) return failure("storing the metadata of " + target, errno);
  const auto folder = make_inside(root, kEncryptedFolder);
  if (!folder) return folder.error();
  if (::ioctl(folder->get(), FS_IOC_SET_ENCRYPTION_POLICY, &policy) != 0) {
    if (errno == ENOTEMPTY) return Error{errc::not_empty, target + "/" + kEncryptedFolder + " holds unencrypted files"};
    return cannot_encrypt(target + "/" + kEncryptedFolder, errno);
  }
  if (::fsync(folder->get()) != 0 || ::syncfs(root) != 0) return failure("storing the policy of " + target, errno);
  return {};
}

/// Makes the policy of a new folder.
result<fscrypt::Policy> policy_to_save(const fscrypt::Protector& protector, const Secret& protector_key,
                                       const Secret& key, const Policy& policy) {
  auto wrapped = wrap_fscrypt_key(protector_key, key);
  if (!wrapped) return wrapped.error();
  fscrypt::Policy saved;
  saved.set_id(id_of(policy));
  auto& options = *saved.mutable_options();
  options.set_padding(kPadding);
  options.set_contents(policy.contents_encryption_mode);
  options.set_filenames(policy.filenames_encryption_mode);
  options.set_policy_version(policy.version);
  auto& for_protector = *saved.add_wrapped_policy_keys();
  for_protector.set_protector_id(protector.id());
  *for_protector.mutable_wrapped_key() = std::move(*wrapped);
  return saved;
}

/// Returns the key that the metadata store for that policy.
result<Secret> key_of(int root, const std::string& target, const Policy& policy, const Secret& secret) {
  const std::string id = id_of(policy);
  const auto saved = read_metadata<fscrypt::Policy>(root, kPolicies, id);
  if (!saved) return saved.error();
  if (!*saved)
    return Error{errc::state_corrupt, "the encrypted folder at " + target +
                                          " has lost its metadata .fscrypt/policies/" + id +
                                          ": restore the file from a backup"};
  for (const auto& wrapped : (*saved)->wrapped_policy_keys()) {
    const auto protector = read_metadata<fscrypt::Protector>(root, kProtectors, wrapped.protector_id());
    if (!protector) return protector.error();
    if (!*protector || (*protector)->name() != kProtectorName) continue;
    const auto protector_key = open_protector(**protector, secret);
    if (!protector_key) return with_context("unlocking the folder at " + target, protector_key.error());
    return unwrap_fscrypt_key(*protector_key, wrapped.wrapped_key());
  }
  return Error{errc::failed_precondition, "the encrypted folder at " + target + " has no protector named " +
                                              kProtectorName + ": unlock it with the program that made it"};
}

result<> unlock(int root, const std::string& target, const Policy& policy, const Secret& secret) {
  const auto key = key_of(root, target, policy, secret);
  if (!key) return key.error();
  const auto added = add_key(root, target, *key);
  if (!added) return added.error();
  if (std::memcmp(added->u.identifier, policy.master_key_identifier, sizeof policy.master_key_identifier) == 0)
    return {};
  static_cast<void>(remove_key(root, target, *added));
  return Error{errc::state_corrupt,
               "the metadata of the encrypted folder at " + target + " have another key than the folder"};
}

}  // namespace

result<EncryptedFolder> fscrypt_look(const std::string& target) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  const auto folder = open_folder(root->get(), target);
  if (!folder) return folder.error();
  if (!*folder) return EncryptedFolder::none;
  if (!(*folder)->policy) {
    const auto empty = check_empty((*folder)->fd.get(), target + "/" + kEncryptedFolder);
    if (!empty && empty.error().code != errc::failed_precondition) return empty.error();
    return empty ? EncryptedFolder::none : EncryptedFolder::plain;
  }
  fscrypt_get_key_status_arg asked{};
  asked.key_spec = name_of(*(*folder)->policy);
  if (::ioctl(root->get(), FS_IOC_GET_ENCRYPTION_KEY_STATUS, &asked) != 0)
    return failure("asking for the key of " + target, errno);
  return asked.status == FSCRYPT_KEY_STATUS_PRESENT ? EncryptedFolder::unlocked : EncryptedFolder::locked;
}

result<> fscrypt_make(const std::string& target, const FscryptSecret& secret) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  const auto there = open_folder(root->get(), target);
  if (!there) return there.error();
  if (*there && (*there)->policy) return unlock(root->get(), target, *(*there)->policy, secret.secret);
  const auto protector_key = make_fscrypt_key(kProtectorKeyBytes), key = make_fscrypt_key(kFolderKeyBytes);
  if (!protector_key || !key) return protector_key ? key.error() : protector_key.error();
  const auto protector = make_protector(secret, *protector_key);
  if (!protector) return protector.error();
  const auto name = add_key(root->get(), target, *key);
  if (!name) return name.error();
  Policy policy{};
  policy.version = FSCRYPT_POLICY_V2;
  policy.contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS;
  policy.filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS;
  policy.flags = FSCRYPT_POLICY_FLAGS_PAD_32;
  std::memcpy(policy.master_key_identifier, name->u.identifier, sizeof policy.master_key_identifier);
  const auto saved = policy_to_save(*protector, *protector_key, *key, policy);
  auto made = saved ? encrypt_folder(root->get(), target, *protector, *saved, policy) : result<>(saved.error());
  if (!made) static_cast<void>(remove_key(root->get(), target, *name));
  return made;
}

result<> fscrypt_unlock(const std::string& target, const FscryptSecret& secret) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  const auto folder = open_folder(root->get(), target);
  if (!folder) return folder.error();
  if (!*folder || !(*folder)->policy)
    return Error{errc::failed_precondition, target + " has no encrypted folder " + kEncryptedFolder};
  return unlock(root->get(), target, *(*folder)->policy, secret.secret);
}

result<> fscrypt_lock(const std::string& target) {
  const auto root = open_mounted_folder(target);
  if (!root) return root.error();
  std::optional<Policy> policy;
  {
    // An open folder would count as one in use.
    const auto folder = open_folder(root->get(), target);
    if (!folder) return folder.error();
    if (*folder) policy = (*folder)->policy;
  }
  if (!policy) return {};
  const auto left = remove_key(root->get(), target, name_of(*policy));
  if (!left) return left.error();
  if (*left != 0)
    log::warning("fscrypt.files_open",
                 {{"target", target}, {"effect", "files that are open stay readable until they are closed"}});
  return {};
}

}  // namespace corbd::host::ops
