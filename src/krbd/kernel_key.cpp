#include "kernel_key.hpp"

#include <linux/keyctl.h>
#include <openssl/evp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace corbd::krbd {
namespace {

/// The bytes; empty when it is no base64.
Secret decoded(const Secret& key) {
  const auto text = key.reveal();
  const bool whole = !text.empty() && text.size() % 4 == 0;
  if (!whole) return {};
  std::string bytes(text.size() / 4 * 3, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  if (length < 0) return {};
  // It counts what only fills the last group.
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<std::size_t>(length) - padding);
  return Secret(std::move(bytes));
}

}  // namespace

result<KernelKey> KernelKey::add(std::string name, const Secret& key) {
  const Secret payload = decoded(key);
  if (payload.empty()) return Error{errc::invalid_argument, "the key of " + name + " is not what `ceph auth get-key` prints"};
  const auto bytes = payload.reveal();
  const long serial = ::syscall(SYS_add_key, "ceph", name.c_str(), bytes.data(), bytes.size(), KEY_SPEC_THREAD_KEYRING);
  if (serial >= 0) return KernelKey(std::move(name), static_cast<std::int32_t>(serial));
  const int failed = errno;
  if (failed == EINVAL) return Error{errc::invalid_argument, "the key of " + name + " is not what `ceph auth get-key` prints"};
  if (failed == ENODEV) return Error{errc::failed_precondition, "the kernel's libceph is not there: run `modprobe rbd`"};
  return Error{errc::failed_precondition, "giving the kernel the key of " + name + ": " + std::generic_category().message(failed) +
                                              (failed == EPERM || failed == ENOSYS ? "; a seccomp profile may forbid add_key: the container must be privileged" : "")};
}

KernelKey::KernelKey(KernelKey&& other) noexcept : name_(std::move(other.name_)), serial_(std::exchange(other.serial_, 0)) {}

KernelKey::~KernelKey() {
  if (serial_ != 0) ::syscall(SYS_keyctl, KEYCTL_UNLINK, serial_, KEY_SPEC_THREAD_KEYRING);
}

}  // namespace corbd::krbd
