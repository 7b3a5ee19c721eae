// One list of checks of the cluster's behaviour that the agent relies on. It runs on the world's fake
// (tests/sim/cluster_contract_test.cpp) and on a real cluster through librbd (tests/lab/cluster_contract_lab.cpp). The
// header of tests/support/world/cluster.hpp lists where the two must differ.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>

#include "corbd/image/image.hpp"

namespace corbd::test {

/// A node's agent, as far as it calls a cluster.
class ContractNode {
 public:
  virtual ~ContractNode() = default;
  virtual image::Clusters& clusters() = 0;
  virtual executor control() = 0;
  virtual Until in(std::chrono::milliseconds time) = 0;
  /// Runs it until `until` is true, for at most that long. False: it is still not true.
  virtual bool drive(const std::function<bool()>& until, std::chrono::milliseconds at_most) = 0;

  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    std::exception_ptr failed;
    asio::co_spawn(control(), std::move(work), [&](std::exception_ptr error, T value) {
      failed = error;
      if (!error) out.emplace(std::move(value));
    });
    if (!drive([&] { return failed || out; }, std::chrono::minutes(3))) throw std::runtime_error("a call has no end");
    if (failed) std::rethrow_exception(failed);
    return std::move(*out);
  }
};

/// A client of the cluster on neither node, like rbd or another driver.
class ContractStranger {
 public:
  virtual ~ContractStranger() = default;
  virtual void take_lock() = 0;
  virtual void write() = 0;
  virtual void close() = 0;
};

/// The two nodes, a stranger, and an administrator.
class ContractCluster {
 public:
  virtual ~ContractCluster() = default;
  virtual image::Access access() = 0;
  virtual std::string pool() = 0;
  virtual ContractNode& ours() = 0;
  virtual ContractNode& other() = 0;
  /// Lets an agent on our node take the image's lock, and kills it. ours() is the next one.
  virtual void agent_dies(const std::string& image) = 0;
  virtual std::unique_ptr<ContractStranger> opened_by_stranger(const std::string& image) = 0;
  /// Creates a fresh image.
  virtual void create(const std::string& image, bool exclusive_lock) = 0;
  virtual void remove(const std::string& image) = 0;
  virtual void resize(const std::string& image, std::uint64_t bytes) = 0;
  virtual void lock_by_hand(const std::string& image) = 0;
  /// Sets metadata of the image that switch rbd_cache on.
  virtual void cache_by_metadata(const std::string& image) = 0;
  /// Sets whether the image's header says that another client's persistent cache has its newest writes.
  virtual void set_dirty_cache(const std::string& image, bool dirty) = 0;
};

/// Runs each check as a section of the test case that calls this, with a cluster of its own.
void check_cluster_contract(const std::function<std::unique_ptr<ContractCluster>()>& make);

}  // namespace corbd::test
