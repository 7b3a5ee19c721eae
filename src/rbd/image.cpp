#include "image.hpp"

#include "emptiness.hpp"
#include "metadata.hpp"
#include "modified.hpp"

namespace corbd::rbd {

RbdImage::~RbdImage() {
  // This is refused while we leave. The connection then stays as it is, and the next start fences it.
  static_cast<void>(opened_->close_in_background());
}

task<result<std::optional<std::uint64_t>>> RbdImage::stamp(Until until) {
  if (opened_->checked().stamps_writes) co_return std::optional<std::uint64_t>();
  co_return co_await opened_->call(&stamp_modified, until, "stamping image " + text());
}

task<result<bool>> RbdImage::has_data(Until until) {
  const auto opened = opened_;
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  auto job = [size = size(), stop](const ImageHandle& handle) { return rbd::has_data(handle, size, *stop); };
  auto found = co_await opened->call_untimed(std::move(job), until, "looking for data in image " + text());
  stop->store(true);
  co_return found;
}

task<result<std::optional<std::string>>> RbdImage::metadata(std::string name, Until until) {
  auto job = [name = std::move(name)](const ImageHandle& handle) { return get_metadata(handle, name); };
  return opened_->call(std::move(job), until, "reading metadata of image " + text());
}

task<result<std::map<std::string, std::string>>> RbdImage::metadata_below(std::string prefix, Until until) {
  auto job = [prefix = std::move(prefix)](const ImageHandle& handle) { return list_metadata(handle, prefix); };
  return opened_->call(std::move(job), until, "listing metadata of image " + text());
}

// librbd refuses this to a reader. It would also take a lock that is not held.
task<result<>> RbdImage::set_metadata(std::string name, std::string value, Until until) {
  auto job = [name = std::move(name), value = std::move(value), locked = opened_->lock().held()](
                 const ImageHandle& handle) { return write_metadata(handle, name, value, locked); };
  return opened_->call(std::move(job), until, "writing metadata of image " + text());
}

task<result<>> RbdImage::remove_metadata(std::string name, Until until) {
  auto job = [name = std::move(name), locked = opened_->lock().held()](const ImageHandle& handle) {
    return write_metadata(handle, name, std::nullopt, locked);
  };
  return opened_->call(std::move(job), until, "removing metadata of image " + text());
}

task<result<>> RbdImage::close(Until until) {
  const auto opened = opened_;
  if (!opened->close_in_background())
    co_return Error{errc::cancelled, "closing image " + text() + ": the agent is leaving"};
  const Waited how = co_await opened->wait_closed(until);
  if (how != Waited::ready) co_return wait_error(how, "image " + opened->handle().text() + " to close");
  co_return result<>();
}

}  // namespace corbd::rbd
