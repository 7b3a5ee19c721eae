// Where claims are kept: one file each, durable before anything follows from it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/task.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::manager {

/// Of a claim's file. A newer one is refused (docs/compatibility.md).
inline constexpr int kClaimVersion = 1;

class Claims {
 public:
  virtual ~Claims() = default;
  struct Loaded {
    std::vector<Claim> claims;           ///< by target
    std::vector<std::string> set_aside;  ///< files that could not be read: where each is now, and why
  };
  /// Reads all of them, each time: another process may have written. A file that is no claim is renamed to
  /// .corrupt-<time>. One of a newer version is an error, state_newer: what it claims is not known.
  virtual task<result<Loaded>> load() = 0;
  virtual task<result<>> save(Claim claim) = 0;
  virtual task<result<>> drop(std::string target) = 0;
};

/// In `folder`, which is made.
std::unique_ptr<Claims> make_claims(BlockingPool& files, std::string folder);

}  // namespace corbd::manager
