#include "aws.hpp"

#include <boost/json/parse.hpp>

#include "cloud_scene.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

namespace json = boost::json;

const Secret kKey("w6XnDvKk3bO0u9pWm2Jq1rT5yZs=");
const std::string kWrapped = "AQIDBA==";

/// With what ceph-csi's aws-metadata needs.
struct Aws : CloudScene {
  Aws() {
    ask.section["AWS_REGION"] = "us-west-2";
    ask.owner = {"volume", "tenant"};
    transport.secrets["ceph/ceph-csi-aws-credentials"] = {
        {"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"},
        {"AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n"},
        {"AWS_CMK_ARN", "arn:aws:kms:us-west-2:1:key/k"}};
  }
  result<Secret> unwrap(std::string wrapped = kWrapped) { return loop.run(kms::aws::unwrap(transport, ask, wrapped)); }
  result<std::string> wrap(Secret key = kKey) { return loop.run(kms::aws::wrap(transport, ask, key)); }
  errc unwrap_error(unsigned status, std::string body) {
    answer(status, std::move(body));
    const auto key = unwrap();
    REQUIRE_FALSE(key);
    text = key.error().text;
    return key.error().code;
  }

  std::string text;
};

/// With what ceph-csi's aws-sts-metadata needs.
struct AwsSts : Aws {
  AwsSts() {
    ask.section = {};
    transport.secrets["tenant/ceph-csi-aws-credentials"] = {{"awsRoleARN", "arn:aws:iam::1:role/r"},
                                                            {"awsCMKARN", "arn:aws:kms:us-west-2:1:key/k"},
                                                            {"awsRegion", "us-west-2"}};
    transport.files["/run/secrets/tokens/oidc-token"] = "a.b+c/d.e";
  }
  result<Secret> unwrap() { return loop.run(kms::aws::unwrap_sts(transport, ask, kWrapped)); }
};

const std::string kAssumed =
    "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
    "<AssumeRoleWithWebIdentityResult><Credentials><SessionToken>session</SessionToken>"
    "<SecretAccessKey>wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY</SecretAccessKey>"
    "<Expiration>2015-08-30T13:36:00Z</Expiration><AccessKeyId>AKIDEXAMPLE</AccessKeyId></Credentials>"
    "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";

}  // namespace

TEST_CASE("AWS KMS unwraps a volume's key with a request that botocore signs the same") {
  Aws aws;
  aws.answer(200, R"({"KeyId":"k","Plaintext":"dzZYbkR2S2szYk8wdTlwV20ySnExclQ1eVpzPQ=="})");
  const auto key = aws.unwrap();
  REQUIRE(key);
  CHECK(key->reveal() == kKey.reveal());
  REQUIRE(aws.transport.requests.size() == 1);
  const auto& asked = aws.transport.requests[0];
  CHECK(asked.peer.text() == "kms.us-west-2.amazonaws.com:443");
  CHECK(asked.message.method + asked.message.target == "POST/");
  CHECK(asked.message.body == R"({"CiphertextBlob":"AQIDBA=="})");
  CHECK(asked.header("X-Amz-Target") == "TrentService.Decrypt");
  CHECK(asked.header("Host") == "kms.us-west-2.amazonaws.com");
  CHECK(asked.header("Authorization") ==
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-west-2/kms/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-target, "
        "Signature=6486a7ab50eb31e18b8ba36d169fa8c5fe166d68d6ede8d4d95298b44f61306f");
}

TEST_CASE("a key that AWS KMS wraps is kept as the base64 of its blob, as ceph-csi does") {
  Aws aws;
  aws.answer(200, R"({"CiphertextBlob":"AQIDBA==","KeyId":"k"})");
  CHECK(aws.wrap().value() == kWrapped);
  const auto body = json::parse(aws.transport.requests.at(0).message.body);
  CHECK(body.at("KeyId").as_string() == "arn:aws:kms:us-west-2:1:key/k");
  CHECK(body.at("Plaintext").as_string() == "dzZYbkR2S2szYk8wdTlwV20ySnExclQ1eVpzPQ==");
  CHECK(aws.transport.requests[0].header("X-Amz-Target") == "TrentService.Encrypt");
}

TEST_CASE("AWS KMS wraps and unwraps keys of ceph-csi's older and newer length") {
  Aws aws;
  aws.answer(200, R"({"Plaintext":")" + std::string(120, 'A') + R"("})");
  CHECK(aws.unwrap().value().reveal().size() == 90);
}

TEST_CASE("a refusal of AWS KMS says by its name whether to ask again, and never the key") {
  Aws aws;
  CHECK(aws.unwrap_error(400, R"({"__type":"AccessDeniedException","Message":"User: u is not authorized"})") ==
        errc::permission_denied);
  CHECK_THAT(aws.text, ContainsSubstring("User: u is not authorized") && ContainsSubstring("volume") &&
                           ContainsSubstring("Secret ceph/ceph-csi-aws-credentials"));
  CHECK(aws.unwrap_error(400, R"({"__type":"ThrottlingException","message":"Rate exceeded"})") == errc::unavailable);
  CHECK(aws.unwrap_error(429, "slow down") == errc::unavailable);
  CHECK(aws.unwrap_error(500, R"({"__type":"com.amazonaws.kms#KMSInternalException"})") == errc::unavailable);
  CHECK(aws.unwrap_error(403, "<html>") == errc::permission_denied);
  CHECK_THAT(aws.text, ContainsSubstring("answered 403: "));
  CHECK(aws.unwrap_error(400, R"({"__type":"UnrecognizedClientException"})") == errc::unauthenticated);
  CHECK(aws.unwrap_error(400, R"({"__type":"com.amazonaws.kms#NotFoundException"})") == errc::failed_precondition);
  CHECK_THAT(aws.text, !ContainsSubstring("EXAMPLEKEY"));
}

TEST_CASE("a key of AWS that is disabled or will be deleted is told for good with AWS's words") {
  Aws aws;
  for (const std::string name : {"DisabledException", "KMSInvalidStateException"}) {
    CHECK(aws.unwrap_error(400, R"({"__type":")" + name + R"(","message":"arn:k is pending deletion."})") ==
          errc::failed_precondition);
    CHECK_THAT(aws.text, ContainsSubstring(name + ": arn:k is pending deletion."));
  }
}

TEST_CASE("a volume key that another key of AWS wrapped is told apart from wrong credentials") {
  Aws aws;
  CHECK(aws.unwrap_error(400, R"({"__type":"InvalidCiphertextException"})") == errc::unauthenticated);
  CHECK_THAT(aws.text, ContainsSubstring("did not wrap the key in the image's metadata") &&
                           ContainsSubstring("nothing was changed"));
}

TEST_CASE("an answer of AWS KMS that is cut, or of another shape, is no key") {
  for (const char* body :
       {R"({"Plaintext":"dzZY)", "[]", "{}", R"({"Plaintext":7})", R"({"Plaintext":"%"})", R"({"Plaintext":""})"}) {
    Aws aws;
    CHECK(aws.unwrap_error(200, body) == errc::unavailable);
  }
}

TEST_CASE("text in the image's metadata that AWS KMS did not make is told before AWS is asked") {
  Aws aws;
  CHECK(aws.unwrap("{}").error().code == errc::state_corrupt);
  CHECK(aws.unwrap("").error().code == errc::state_corrupt);
  CHECK(aws.transport.requests.empty());
}

TEST_CASE("credentials for AWS KMS that are not there are named, with their Secret and key") {
  Aws aws;
  aws.transport.secrets["ceph/ceph-csi-aws-credentials"].erase("AWS_CMK_ARN");
  CHECK(aws.unwrap().error().code == errc::failed_precondition);
  CHECK_THAT(aws.unwrap().error().text, ContainsSubstring("AWS_CMK_ARN"));
  aws.ask.section["KMS_SECRET_NAME"] = "other";
  CHECK(aws.unwrap().error().code == errc::failed_precondition);
  CHECK_THAT(aws.unwrap().error().text, ContainsSubstring("ceph/other"));
  aws.transport.name_space = "";
  CHECK_THAT(aws.unwrap().error().text, ContainsSubstring("POD_NAMESPACE"));
}

TEST_CASE("an AWS KMS needs a region, which is one") {
  CHECK(kms::aws::check({{"AWS_REGION", "us-west-2"}}, "mine"));
  CHECK_THAT(kms::aws::check({{"KMS_SECRET_NAME", "s"}}, "mine").error().text, ContainsSubstring("AWS_REGION"));
  CHECK(kms::aws::check({{"AWS_REGION", "evil.example/"}}, "mine").error().code == errc::failed_precondition);
  CHECK(kms::aws::check({{"AWS_REGION", "us-west-2"}, {"KMS_SECRET_NAME", 7}}, "mine").error().code ==
        errc::failed_precondition);
  CHECK(kms::aws::check_sts({}, "mine"));
}

TEST_CASE("a region of AWS has the domain of its partition") {
  CHECK(kms::aws::host_of("kms", "eu-central-1") == "kms.eu-central-1.amazonaws.com");
  CHECK(kms::aws::host_of("sts", "cn-north-1") == "sts.cn-north-1.amazonaws.com.cn");
  CHECK(kms::aws::host_of("kms", "us-gov-west-1") == "kms.us-gov-west-1.amazonaws.com");
  CHECK(kms::aws::host_of("kms", "us-isob-east-1") == "kms.us-isob-east-1.sc2s.sgov.gov");
}

TEST_CASE("with the pod's OIDC token AWS lends a role, whose credentials unwrap the key") {
  AwsSts aws;
  aws.answer(200, kAssumed);
  aws.answer(200, R"({"Plaintext":"dzZYbkR2S2szYk8wdTlwV20ySnExclQ1eVpzPQ=="})");
  CHECK(aws.unwrap().value().reveal() == kKey.reveal());
  REQUIRE(aws.transport.requests.size() == 2);
  CHECK(aws.transport.requests[0].peer.text() == "sts.us-west-2.amazonaws.com:443");
  CHECK(aws.transport.requests[0].message.body ==
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&"
        "RoleSessionName=ceph-csi-aws-sts-metadata&WebIdentityToken=a.b%2Bc%2Fd.e");
  CHECK(aws.transport.requests[0].header("Authorization").empty());
  CHECK(aws.transport.requests[1].header("X-Amz-Security-Token") == "session");
  CHECK_THAT(aws.transport.requests[1].header("Authorization"),
             ContainsSubstring("Signature=e63ae31727bbaff197f4e875397482c2969e51ef81daafefd8b45515345e0b93"));
}

TEST_CASE("a role that AWS does not lend is told with AWS's reason") {
  AwsSts aws;
  aws.answer(403,
             "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
             "<Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>");
  auto key = aws.unwrap();
  CHECK(key.error().code == errc::permission_denied);
  CHECK_THAT(key.error().text, ContainsSubstring("Not authorized to perform") && !ContainsSubstring("a.b+c"));
  aws.answer(400, "<ErrorResponse><Error><Code>ExpiredTokenException</Code></Error></ErrorResponse>");
  CHECK(aws.unwrap().error().code == errc::unauthenticated);
  aws.answer(200, kAssumed.substr(0, kAssumed.size() / 2));
  CHECK(aws.unwrap().error().code == errc::unavailable);
}

TEST_CASE("a role of AWS needs the claim's namespace and the pod's OIDC token, and the error says so") {
  AwsSts aws;
  aws.transport.files.clear();
  CHECK_THAT(aws.unwrap().error().text, ContainsSubstring("ceph-csi-kms"));
  aws.ask.owner.tenant = "";
  CHECK(aws.unwrap().error().code == errc::failed_precondition);
  CHECK(aws.transport.requests.empty());
}
