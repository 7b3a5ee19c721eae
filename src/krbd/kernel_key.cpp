#include "kernel_key.hpp"

#include <linux/keyctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "corbd/core/base64.hpp"

namespace corbd::krbd {

result<KernelKey> KernelKey::add(std::string name, const Secret& key) {
  const Secret payload(from_base64(key.reveal()).value_or(""));
  if (payload.empty())
    return Error{errc::invalid_argument,
                 "the key of " + name + " is not a Ceph key: it must be what `ceph auth get-key` prints"};
  const auto bytes = payload.reveal();
  const long serial = ::syscall(SYS_add_key, "ceph", name.c_str(), bytes.data(), bytes.size(), KEY_SPEC_THREAD_KEYRING);
  if (serial >= 0) return KernelKey(std::move(name), static_cast<std::int32_t>(serial));
  const int failed = errno;
  if (failed == EINVAL)
    return Error{errc::invalid_argument,
                 "the key of " + name + " is not a Ceph key: it must be what `ceph auth get-key` prints"};
  if (failed == ENODEV)
    return Error{errc::failed_precondition, "the kernel's libceph is not loaded: run `modprobe rbd`"};
  return Error{errc::failed_precondition,
               "giving the kernel the key of " + name + ": " + std::generic_category().message(failed) +
                   (failed == EPERM || failed == ENOSYS
                        ? "; a seccomp profile may forbid add_key: the container must be privileged"
                        : "")};
}

KernelKey::KernelKey(KernelKey&& other) noexcept
    : name_(std::move(other.name_)), serial_(std::exchange(other.serial_, 0)) {}

KernelKey::~KernelKey() {
  if (serial_ != 0) ::syscall(SYS_keyctl, KEYCTL_UNLINK, serial_, KEY_SPEC_THREAD_KEYRING);
}

}  // namespace corbd::krbd
