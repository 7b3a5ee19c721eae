// A Ceph key in the kernel's keyring, for as long as it takes to map an image.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"

namespace corbd::krbd {

/// Explains why the kernel did not take a key. `payload`: the key's bytes; `failed`: errno of add_key(2). Linux 6.12
/// answers EINVAL for an unknown type, and for bytes that are no key.
Error not_added(const std::string& name, std::string_view payload, int failed);

/// Holds the key in this thread's own keyring, which nobody else can search. The destructor removes it.
class KernelKey {
 public:
  /// `key`: base64, as Ceph prints it. invalid_argument: it is not in that form. failed_precondition: no libceph, no
  /// right to add a key, or a type of key that this kernel does not know.
  static result<KernelKey> add(std::string name, const Secret& key);
  KernelKey(KernelKey&& other) noexcept;
  KernelKey& operator=(KernelKey&&) = delete;
  ~KernelKey();
  const std::string& name() const { return name_; }

 private:
  KernelKey(std::string name, std::int32_t serial) : name_(std::move(name)), serial_(serial) {}
  std::string name_;
  std::int32_t serial_;
};

}  // namespace corbd::krbd
