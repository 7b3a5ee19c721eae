#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>

#include "corbd/core/process.hpp"
#include "corbd/kube/own_node.hpp"
#include "inputs.hpp"

namespace corbd::doctor {

result<std::vector<kube::Allowed>> api_rights(const std::string& driver) {
  constexpr std::chrono::seconds within{10};
  const auto access = kube::find_access(environment("KUBERNETES_CONFIG_PATH"), environment);
  if (!access) return access.error();
  asio::io_context io{1};
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool names(io.get_executor(), *clock, 1);
  kube::Api api(io.get_executor(), *clock, names, *access);
  std::vector<kube::Allowed> reviewed;
  std::exception_ptr failed;
  asio::co_spawn(io, kube::review_rights(api, driver, {clock->now() + within}),
                 [&](std::exception_ptr error, std::vector<kube::Allowed> all) {
                   failed = error;
                   reviewed = std::move(all);
                   io.stop();
                 });
  io.run();
  if (failed) std::rethrow_exception(failed);
  return reviewed;
}

}  // namespace corbd::doctor
