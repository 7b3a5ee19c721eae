// What a type reaches, by script: an HTTP server, Secrets, ConfigMaps and files.
#pragma once

#include "support/catch.hpp"
#include "support/loop.hpp"
#include "types.hpp"

namespace corbd::test {

class FakeTransport final : public kms::Transport {
 public:
  struct Request {
    http::Peer peer;
    http::Message message;
    /// "PUT /v1/auth/kubernetes/login"
    std::string line() const { return message.method + " " + message.target; }
    std::string header(const std::string& name) const {
      for (const auto& [one, value] : message.headers)
        if (one == name) return value;
      return "";
    }
  };
  using Answer = result<http::Reply>;
  std::function<Answer(const Request&)> server = [](const Request&) { return reply(404, "{}"); };
  std::function<result<std::string>(const http::Peer&, const std::string&)> frames;
  std::map<std::string, std::map<std::string, std::string>> secrets, config_maps;  ///< by "namespace/name"
  std::map<std::string, std::string> tokens;                                       ///< by "namespace/account"
  std::map<std::string, std::string> files;
  std::string name_space = "ceph";
  std::chrono::system_clock::time_point time{std::chrono::seconds(1440938160)};
  std::vector<Request> requests;

  static http::Reply reply(unsigned status, std::string body) {
    http::Reply made;
    made.status = status;
    made.body = std::move(body);
    return made;
  }
  /// What was asked of the server, one line each.
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (const auto& one : requests) all.push_back(one.line());
    return all;
  }

  task<result<kms::Unread>> http(http::Peer peer, http::Message message, Until) override {
    requests.push_back({std::move(peer), std::move(message)});
    auto answered = server(requests.back());
    if (!answered) co_return answered.error();
    co_return kms::Unread(std::move(*answered));
  }
  task<result<std::string>> exchange(http::Peer peer, std::string request, std::size_t, Until) override {
    co_return frames(peer, request);
  }
  task<result<std::map<std::string, Secret>>> secret(std::string of, std::string name, Until) override {
    const auto place = secrets.find(of + "/" + name);
    if (place == secrets.end()) co_return Error{errc::not_found, "there is no Secret " + of + "/" + name};
    std::map<std::string, Secret> data;
    for (const auto& [key, value] : place->second) data.emplace(key, Secret(value));
    co_return data;
  }
  task<result<std::map<std::string, std::string>>> config_map(std::string of, std::string name, Until) override {
    const auto place = config_maps.find(of + "/" + name);
    if (place == config_maps.end()) co_return Error{errc::not_found, "there is no ConfigMap " + of + "/" + name};
    co_return place->second;
  }
  task<result<Secret>> account_token(std::string of, std::string account, std::vector<std::string>, Until) override {
    const auto place = tokens.find(of + "/" + account);
    if (place == tokens.end()) co_return Error{errc::not_found, "there is no ServiceAccount " + of + "/" + account};
    co_return Secret(place->second);
  }
  task<result<Secret>> file(std::string path, Until) override {
    const auto place = files.find(path);
    if (place == files.end()) co_return Error{errc::not_found, path + " does not exist"};
    co_return Secret(place->second);
  }
  std::string own_namespace() const override { return name_space; }
  std::chrono::system_clock::time_point now() const override { return time; }

 private:
  task<result<>> run_elsewhere(std::function<void()> job, std::string, Until) override {
    job();
    co_return result<>();
  }
};

}  // namespace corbd::test
