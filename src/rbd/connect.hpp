// Makes a rados_t, and asks the cluster through it. Everything here blocks: pool threads only.
#pragma once

#include <rados/librados.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/image/image.hpp"

namespace corbd::rbd {

/// Returns "cluster lab (monitors a:6789,b:6789)", for error texts.
std::string cluster_text(const image::Access& access);

/// Whether the text can be a Ceph key at all (base64 of: type u16, time u64, length u16, that many bytes). For a
/// malformed key librados gives the same error as for a monitor whose name does not resolve.
bool is_key(std::string_view text);

struct Connected {
  rados_t cluster = nullptr;
  std::string fsid;
  std::vector<std::string> addresses;  ///< bare addresses
  /// Entry of the blocklist by which the cluster refuses every client of this node.
  std::optional<Error> node_fenced = std::nullopt;
  std::optional<std::string> cannot_fence = std::nullopt;  ///< image::Clusters::cannot_fence
};

/// Time-outs of a client's calls.
struct Timeouts {
  std::chrono::seconds monitors{0};
  /// 0: none. A client that serves devices has none: their filesystems would get a timeout as EIO.
  std::chrono::seconds osds{0};
};

/// After success the client has the latest OSD map. unavailable: no monitor answers; unauthenticated: the key or the
/// user is wrong.
result<Connected> connect(const image::Access& access, Timeouts timeouts);

/// `r`: the result of rados_connect().
Error connect_error(const image::Access& access, int r);

/// Returns an error if the blocklist refuses every client with one of these addresses. Nothing: it does not, or the
/// monitors do not answer.
std::optional<Error> find_fence(rados_t cluster, const std::string& cluster_id,
                                const std::vector<std::string>& addresses);

/// Returns why the monitors would not let this user add a client to the blocklist. It changes nothing there.
std::optional<std::string> find_missing_right(rados_t cluster, const std::string& user);

/// Whether the blocklist has an entry for that very client. A wider entry may go before the client's last write.
result<bool> has_own_entry(rados_t cluster, const std::string& client);

/// A pool of a cluster, and a namespace in it. Never blocks after its construction.
class IoCtx {
 public:
  IoCtx() = default;
  explicit IoCtx(rados_ioctx_t io) : io_(io) {}
  IoCtx(IoCtx&& other) noexcept : io_(std::exchange(other.io_, nullptr)) {}
  IoCtx& operator=(IoCtx&& other) noexcept {
    std::swap(io_, other.io_);
    return *this;
  }
  ~IoCtx() {
    if (io_ != nullptr) rados_ioctx_destroy(io_);
  }
  rados_ioctx_t get() const { return io_; }

 private:
  rados_ioctx_t io_ = nullptr;
};

struct OpenPool {
  IoCtx io;
  std::string name;  ///< name of the pool
  std::string text;  ///< "pool" or "pool/namespace", as in commands
};

result<std::int64_t> pool_id(rados_t cluster, const std::string& name);
/// not_found: there is no such pool.
result<OpenPool> open_pool(rados_t cluster, std::int64_t id, const std::string& ns);

}  // namespace corbd::rbd
