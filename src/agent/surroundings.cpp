#include "surroundings.hpp"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <exception>
#include <iterator>

#include "corbd/host/system.hpp"
#include "corbd/host/tools.hpp"
#include "corbd/kube/own_node.hpp"
#include "corbd/kube/rights.hpp"

namespace corbd {
namespace {

using cli::Surroundings;

constexpr std::chrono::milliseconds kBusWithin{2000};
constexpr std::chrono::seconds kRightsWithin{10};

std::string variable_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Surroundings::ApiRight right_of(const kube::Allowed& allowed) {
  const auto& right = *allowed.right;
  const std::string group = right.group.empty() ? "" : "." + std::string(right.group);
  return {std::string(right.verb) + " " + std::string(right.resource) + group, std::string(right.without), allowed.yes,
          allowed.text, right.by_namespace};
}

result<std::vector<Surroundings::ApiRight>> api_rights(const std::string& driver) {
  const auto access = kube::find_access(variable_of("KUBERNETES_CONFIG_PATH"), variable_of);
  if (!access) return access.error();
  asio::io_context io{1};
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool names(io.get_executor(), *clock, 1);
  kube::Api api(io.get_executor(), *clock, names, *access);
  std::vector<kube::Allowed> reviewed;
  std::exception_ptr failed;
  asio::co_spawn(io, kube::review_rights(api, driver, {clock->now() + kRightsWithin}),
                 [&](std::exception_ptr error, std::vector<kube::Allowed> all) {
                   failed = error;
                   reviewed = std::move(all);
                   io.stop();
                 });
  io.run();
  if (failed) std::rethrow_exception(failed);
  std::vector<Surroundings::ApiRight> all;
  std::ranges::transform(reviewed, std::back_inserter(all), right_of);
  return all;
}

}  // namespace

cli::Surroundings surroundings() {
  Surroundings around;
  for (auto& tool : host::filesystem_tools()) around.tools.push_back({std::move(tool.name), std::move(tool.package)});
  around.system_bus = []() -> result<> {
    const auto stopping = host::system_stopping(kBusWithin);
    if (stopping) return {};
    if (auto other = host::other_init()) return Error{errc::failed_precondition, std::move(*other)};
    return stopping.error();
  };
  around.api_rights = api_rights;
  return around;
}

}  // namespace corbd
