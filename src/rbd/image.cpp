#include "image.hpp"

#include <algorithm>

#include "address.hpp"
#include "connect.hpp"
#include "emptiness.hpp"
#include "failure.hpp"
#include "header.hpp"
#include "locks.hpp"
#include "mirror.hpp"

namespace corbd::rbd {
namespace {

/// Makes a blocking call on the image; `calls` keeps the handle open for it. One call at a time: an image that does not
/// answer takes only one thread of its cluster, however often it is asked.
template <class Job, class R = std::invoke_result_t<Job>>
task<R> call(std::shared_ptr<OpenImage> opened, Job job, Until until, std::string doing) {
  co_return co_await opened->blocking().call(opened->calls, std::move(job), until, std::move(doing), &opened->turn);
}

struct Seen {
  Lockers lockers;
  std::vector<Watcher> watchers;
};

result<Seen> see(OpenImage& opened) {
  auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  auto watchers = list_watchers(opened);
  if (!watchers) return watchers.error();
  return Seen{std::move(*lockers), std::move(*watchers)};
}

/// Without rbd-mirror's clients, which use no volume's image.
result<Seen> see_users(OpenImage& opened) {
  auto seen = see(opened);
  // An image that is open for reading has no watch of its own.
  if (!seen || seen->watchers.size() <= (opened.read_only ? 0 : 1)) return seen;
  const auto daemons = mirror_daemons(opened);
  if (!daemons) return daemons.error();
  std::erase_if(seen->watchers, [&](const Watcher& watcher) { return daemons->contains(watcher.client); });
  return seen;
}

/// The lock's cookie.
result<std::string> take_lock(OpenImage& opened) {
  const std::string doing = "taking the lock of image " + opened.text();
  const auto seen = see(opened);
  if (!seen) return seen.error();
  const int r = opened.connection.note(rbd_lock_acquire(opened.image, RBD_LOCK_MODE_EXCLUSIVE));
  if (r == -EROFS || r == -EBUSY || r == -EAGAIN)
    return Error{errc::in_use, doing + ": another client holds it and does not give it up"};
  if (r < 0) return failure(doing, r);
  const auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  if (lockers->all.size() != 1)
    return Error{errc::in_use, doing + ": it is locked by " + std::to_string(lockers->all.size()) + " clients"};
  // librbd's hour may be shorter than the time for which that node is cut off. Its writes under way would then still
  // arrive.
  for (const auto& address : dead_owners(seen->lockers.all, seen->watchers, opened.connection.addresses))
    if (auto longer = blocklist(opened.connection.cluster, address); !longer) return longer.error();
  return lockers->all.front().cookie;
}

result<> give_lock(OpenImage& opened) {
  const int r = opened.connection.note(rbd_lock_release(opened.image));
  if (r < 0) return failure("releasing the lock of image " + opened.text(), r);
  return {};
}

result<std::optional<std::string>> get_metadata(OpenImage& opened, const std::string& name) {
  std::string value(4096, '\0');
  int r = -ERANGE;
  for (int attempt = 0; attempt < 4 && r == -ERANGE; ++attempt) {
    std::size_t length = value.size();
    r = opened.connection.note(rbd_metadata_get(opened.image, name.c_str(), value.data(), &length));
    if (r == -ERANGE) value.assign(length + 1, '\0');
  }
  if (r == -ENOENT) return std::optional<std::string>();
  if (r < 0) return failure("reading metadata " + name + " of image " + opened.text(), r);
  return std::optional<std::string>(value.c_str());
}

/// Names are in order, so those with one prefix stand together. librbd lists from behind a name.
result<std::map<std::string, std::string>> list_metadata(OpenImage& opened, const std::string& prefix) {
  constexpr std::uint64_t kPage = 64;
  std::map<std::string, std::string> found;
  std::string start = prefix;
  for (;;) {
    std::string names(8192, '\0'), values(8192, '\0');
    int r = -ERANGE;
    std::size_t names_size = 0, values_size = 0;
    for (int attempt = 0; attempt < 4 && r == -ERANGE; ++attempt) {
      names.resize(std::max(names.size(), names_size)), values.resize(std::max(values.size(), values_size));
      names_size = names.size(), values_size = values.size();
      r = opened.connection.note(rbd_metadata_list(opened.image, start.c_str(), kPage, names.data(), &names_size,
                                                   values.data(), &values_size));
    }
    if (r < 0) return failure("listing metadata of image " + opened.text(), r);
    std::size_t at = 0, value_at = 0, count = 0;
    for (; at < names_size && value_at < values_size; ++count) {
      const std::string name(names.c_str() + at), value(values.c_str() + value_at);
      at += name.size() + 1, value_at += value.size() + 1;
      start = name;
      if (!name.starts_with(prefix)) return found;
      found[name] = value;
    }
    if (count < kPage) return found;
  }
}

result<> write_metadata(OpenImage& opened, const std::string& name, const std::optional<std::string>& value,
                        bool locked) {
  if (!locked) return write_header_metadata(opened, name, value);
  const int r = opened.connection.note(value ? rbd_metadata_set(opened.image, name.c_str(), value->c_str())
                                             : rbd_metadata_remove(opened.image, name.c_str()));
  if (r == -ENOENT && !value) return {};
  if (r < 0) return failure("writing metadata " + name + " of image " + opened.text(), r);
  return {};
}

}  // namespace

Image::~Image() {
  // Refused while we leave. The connection then stays as it is, and the next start fences it.
  if (!opened_->closing) opened_->connections.gate().spawn(close_image(opened_));
}

task<result<>> Image::refresh(Until until) {
  const auto opened = opened_;
  auto details = co_await call(
      opened, [&image = *opened] { return read_details(image); }, until, "reading image " + opened->text());
  if (!details) co_return details.error();
  note_size(*opened, details->size);
  co_return result<>();
}

task<result<image::Ownership>> Image::ownership(Until until) {
  const auto opened = opened_;
  auto seen = co_await call(
      opened, [&image = *opened] { return see_users(image); }, until, "asking who uses image " + opened->text());
  if (!seen) co_return seen.error();
  auto found = classify(seen->lockers.all, seen->watchers, opened->key.fsid, opened->connection.uuid,
                        opened->connections.incarnations());
  if (found) {
    found->version = seen->lockers.version;
    found->self = opened->connection.addresses.front();
  }
  co_return found;
}

task<result<>> Image::break_dead_lock(std::string owner, std::int64_t mark, Until until) {
  const auto opened = opened_;
  const std::string doing = "breaking the lock of " + owner + " on image " + opened->text();
  const auto* known = opened->connections.incarnations().find(opened->key.fsid, owner);
  if (known == nullptr || known->state != Incarnation::State::fenced)
    co_return Error{errc::failed_precondition, doing + ": that client is not one that this agent has fenced"};
  auto job = [&image = *opened, address = bare_address(owner), mark] { return break_lock_of(image, address, mark); };
  co_return co_await call(opened, std::move(job), until, doing);
}

task<result<>> Image::acquire_lock(Until until) {
  const auto opened = opened_;
  if (!exclusive_lock())
    co_return Error{errc::failed_precondition,
                    "image " + opened->text() + " has no exclusive-lock feature, so there is no lock to take"};
  auto taken = co_await call(
      opened, [&image = *opened] { return take_lock(image); }, until, "taking the lock of image " + opened->text());
  if (!taken) co_return taken.error();
  note_held(*opened, std::move(*taken));
  keep_watching_lock(opened);
  co_return result<>();
}

task<result<>> Image::release_lock(Until until) {
  const auto opened = opened_;
  if (!exclusive_lock()) co_return result<>();
  opened->held.reset();
  co_return co_await call(
      opened, [&image = *opened] { return give_lock(image); }, until, "releasing the lock of image " + opened->text());
}

task<result<bool>> Image::has_data(Until until) {
  const auto opened = opened_;
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  auto job = [&image = *opened, stop] { return rbd::has_data(image, *stop); };
  auto found = co_await call(opened, std::move(job), until, "looking for data in image " + opened->text());
  stop->store(true);
  co_return found;
}

task<result<std::optional<std::string>>> Image::metadata(std::string name, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, name] { return get_metadata(image, name); };
  co_return co_await call(opened, std::move(job), until, "reading metadata of image " + opened->text());
}

task<result<std::map<std::string, std::string>>> Image::metadata_below(std::string prefix, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, prefix] { return list_metadata(image, prefix); };
  co_return co_await call(opened, std::move(job), until, "listing metadata of image " + opened->text());
}

// librbd refuses this to a reader. It would also take a lock that is not held.
task<result<>> Image::set_metadata(std::string name, std::string value, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, name, value, locked = opened->held.has_value()] {
    return write_metadata(image, name, value, locked);
  };
  co_return co_await call(opened, std::move(job), until, "writing metadata of image " + opened->text());
}

task<result<>> Image::remove_metadata(std::string name, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, name, locked = opened->held.has_value()] {
    return write_metadata(image, name, std::nullopt, locked);
  };
  co_return co_await call(opened, std::move(job), until, "removing metadata of image " + opened->text());
}

task<result<>> Image::close(Until until) {
  const auto opened = opened_;
  if (!opened->closing && !opened->connections.gate().spawn(close_image(opened)))
    co_return Error{errc::cancelled, "closing image " + opened->text() + ": the agent is leaving"};
  const Waited how = co_await opened->closed.wait(until);
  if (how != Waited::ready) co_return wait_error(how, "image " + opened->text() + " to close");
  co_return result<>();
}

}  // namespace corbd::rbd
