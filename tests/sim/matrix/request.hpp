// The requests of a cell, as kubelet makes them.
#pragma once

#include "cell.hpp"

namespace corbd::matrix {

inline const std::string kVolume = "image-1", kStagingPath = "/kubelet/staging/image-1";
inline constexpr const char *kCephKey = "canary-key", *kPassphrase = "canary-passphrase";

/// What else a request of the same volume may say.
struct Request {
  Cell cell;
  std::string kms = "own";
  std::string mount_flags = {};
  std::string ceph_key = kCephKey, passphrase = kPassphrase;
};
result<plan::Staged> stage_of(const Request& request);
result<plan::Published> publish_of(const Request& request, const std::string& target);

}  // namespace corbd::matrix
