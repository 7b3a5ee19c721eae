// The coroutine type of the control plane. Every task runs on the one control thread; a cancellation is a value
// (Until), never an exception: after an Asio cancellation every later co_await throws, even in the clean-up.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

namespace corbd {

namespace asio = boost::asio;

template <class T = void>
using task = asio::awaitable<T>;

using executor = asio::any_io_executor;

}  // namespace corbd
