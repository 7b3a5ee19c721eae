#include "sigv4.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::kms;

namespace {

/// AWS's test suite for Signature Version 4.
const AwsCredentials kSuite{"AKIDEXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), Secret()};

std::string signed_as(http::Message message, const AwsCredentials& credentials = kSuite,
                      const std::string& service = "service", const std::string& region = "us-east-1") {
  sign_v4(message, credentials, region, service,
          std::chrono::system_clock::time_point(std::chrono::seconds(1440938160)));
  CHECK(message.headers.back().first == "Authorization");
  return message.headers.back().second;
}

http::Message to_example(const std::string& method) {
  http::Message message;
  message.method = method;
  message.headers = {{"Host", "example.amazonaws.com"}};
  return message;
}

}  // namespace

TEST_CASE("requests are signed as in AWS's test suite: get-vanilla, post-vanilla") {
  CHECK(signed_as(to_example("GET")) ==
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  CHECK_THAT(signed_as(to_example("POST")),
             ContainsSubstring("Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"));
}

TEST_CASE("a body is signed with its type as in AWS's test suite: post-x-www-form-urlencoded") {
  auto message = to_example("POST");
  message.headers.emplace_back("Content-Type", "application/x-www-form-urlencoded");
  message.body = "Param1=value1";
  CHECK_THAT(signed_as(message), ContainsSubstring("SignedHeaders=content-type;host;x-amz-date, Signature="
                                                   "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"));
}

TEST_CASE("a session token is signed as in AWS's test suite: post-sts-header-before") {
  auto credentials = kSuite;
  credentials.session_token = Secret(
      "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwt"
      "hAx7mSEI/qkPpKPi/"
      "kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXA"
      "kiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/"
      "oLxBA==");
  CHECK_THAT(signed_as(to_example("POST"), credentials),
             ContainsSubstring("SignedHeaders=host;x-amz-date;x-amz-security-token, Signature="
                               "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"));
}
