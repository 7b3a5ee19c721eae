// Storage of claims: one file each, durable before anything follows from it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/task.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::manager {

/// Version of a claim's file. A newer one is refused (docs/compatibility.md).
inline constexpr int kClaimVersion = 1;

/// The port to the stored claims. Control thread.
class Claims {
 public:
  virtual ~Claims() = default;
  struct Loaded {
    std::vector<Claim> claims;           ///< ordered by target
    std::vector<std::string> set_aside;  ///< unreadable files: their new names, and the reasons
  };
  /// Reads all claims each time, because another process may have written. A file that is no claim is renamed to
  /// .corrupt-<time>. A file of a newer version is an error, state_newer: its claim is unknown.
  virtual task<result<Loaded>> load() = 0;
  virtual task<result<>> save(Claim claim) = 0;
  virtual task<result<>> drop(std::string target) = 0;
};

/// Stores claims in `folder`, which is created.
std::unique_ptr<Claims> make_claims(BlockingPool& files, std::string folder);

}  // namespace corbd::manager
