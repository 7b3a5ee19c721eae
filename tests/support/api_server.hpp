// A scripted API server on loopback: the test decides its answers, byte by byte. It has a thread for each connection.
//
// A real one does the following, and this one does not. The checks of api_client.hpp run against both (tests/unit/kube
// and tests/lab/kube_lab.cpp), each with the answers that the other gave:
// - It keeps objects, gives versions, and refuses a change of an older one. Here nothing is kept between requests.
// - It authorizes each verb, and knows when a token expires. Here a script says 401 or 403.
// - It sends bookmarks, ends watches by its own timeout, forgets versions, and answers from a cache that lags.
// - It limits callers by priority and fairness, and tells them when to come again.
// - It compresses large answers for those who ask, and closes idle connections.
// - Proxies before it answer in its place, with bodies that are no Status.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "corbd/kube/access.hpp"

namespace corbd::test {

class ApiServer {
 public:
  struct Request {
    std::string method, target, authorization, body;
    int connection = 0;  ///< counts from 1
  };
  /// A connection, controlled by the script.
  class Peer {
   public:
    virtual ~Peer() = default;
    virtual void send(std::string_view bytes) = 0;
    /// Sends a whole answer. `headers`: lines, each with its end.
    void answer(unsigned status, std::string_view body, std::string_view headers = {});
    /// Answers as the API server does if it has no such object.
    void absent(const Request& request);
    /// Sends the requested object under its name. 404: absent(). Any other status: answer().
    void object(const Request& request, unsigned status, std::string body, std::string_view headers = {});
    /// Send the head of a chunked answer, pieces of it, its end.
    void begin(unsigned status = 200);
    void piece(std::string_view bytes);
    void end();
    /// Waits until the client is gone, or the server ends.
    virtual void hang() = 0;
    virtual void close() = 0;
  };
  using Script = std::function<void(const Request&, Peer&)>;

  /// old: no TLS 1.3. finite_field: TLS 1.2 with Diffie-Hellman of a finite field, by the certificate rsa.pem.
  enum class Tls { none, good, old, wrong_host, asks_for_certificate, finite_field };
  explicit ApiServer(Script script, Tls tls = Tls::none);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  std::uint16_t port() const;
  /// Returns its address, without credentials.
  kube::Access access() const;
  std::vector<Request> requests() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the path of a file in tests/support/pki: "ca.pem".
std::string pki(const std::string& name);

}  // namespace corbd::test
