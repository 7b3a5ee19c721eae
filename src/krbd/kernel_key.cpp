#include "kernel_key.hpp"

#include <linux/keyctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "corbd/core/base64.hpp"

namespace corbd::krbd {

namespace {

/// Returns the type of a whole key (docs/sources.md#cephx-keys): type, time, length, secret. 0: it is no such key.
unsigned type_of(std::string_view payload) {
  constexpr std::size_t head = 2 + 8 + 2;
  const auto number = [&](std::size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>(payload[at])) |
           static_cast<unsigned>(static_cast<unsigned char>(payload[at + 1])) << 8;
  };
  return payload.size() > head && number(head - 2) == payload.size() - head ? number(0) : 0;
}

constexpr unsigned kAes = 1, kAes256k = 2;
constexpr int kNotSupported = 524;  ///< the kernel's ENOTSUPP, which no header for programs has

}  // namespace

Error not_added(const std::string& name, std::string_view payload, int failed) {
  const unsigned type = type_of(payload);
  if ((failed == EINVAL || failed == kNotSupported) && type > kAes)
    return {errc::failed_precondition,
            "this kernel's RBD client does not know the type of the key of " + name + ", " +
                (type == kAes256k ? "aes256k, which Linux 7.0 brought" : "number " + std::to_string(type)) +
                ": serve the volume over nbd (mounter rbd-nbd, tryOtherMounters, or a rule in mounters.json), or give "
                "the user a key of type aes"};
  if (failed == EINVAL)
    return {errc::invalid_argument,
            "the key of " + name + " is not a Ceph key: it must be what `ceph auth get-key` prints"};
  if (failed == ENODEV) return {errc::failed_precondition, "the kernel's libceph is not loaded: run `modprobe rbd`"};
  return {errc::failed_precondition,
          "giving the kernel the key of " + name + ": " + std::generic_category().message(failed) +
              (failed == EPERM || failed == ENOSYS
                   ? "; a seccomp profile may forbid add_key: the container must be privileged"
                   : "")};
}

result<KernelKey> KernelKey::add(std::string name, const Secret& key) {
  const Secret payload(from_base64(key.reveal()).value_or(""));
  if (payload.empty()) return not_added(name, "", EINVAL);
  const auto bytes = payload.reveal();
  const long serial = ::syscall(SYS_add_key, "ceph", name.c_str(), bytes.data(), bytes.size(), KEY_SPEC_THREAD_KEYRING);
  if (serial >= 0) return KernelKey(std::move(name), static_cast<std::int32_t>(serial));
  return not_added(name, bytes, errno);
}

KernelKey::KernelKey(KernelKey&& other) noexcept
    : name_(std::move(other.name_)), serial_(std::exchange(other.serial_, 0)) {}

KernelKey::~KernelKey() {
  if (serial_ != 0) ::syscall(SYS_keyctl, KEYCTL_UNLINK, serial_, KEY_SPEC_THREAD_KEYRING);
}

}  // namespace corbd::krbd
