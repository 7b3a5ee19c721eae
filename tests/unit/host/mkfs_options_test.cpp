// What a volume may ask of mkfs.
#include "corbd/host/values.hpp"
#include "support/catch.hpp"

using namespace corbd;

namespace {

void check_refused(const char* fstype, const std::vector<const char*>& all, const char* what) {
  for (const auto* options : all) {
    CAPTURE(fstype, options);
    const auto checked = host::check_mkfs_options(fstype, options);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().code == errc::invalid_argument);
    CHECK_THAT(checked.error().text,
               ContainsSubstring("mkfsOptions: ") && ContainsSubstring(what) && ContainsSubstring("--mkfs-options"));
  }
}

}  // namespace

TEST_CASE("options of mkfs that concern the volume alone are allowed") {
  for (const auto* options :
       {"", "-m0 -Ediscard -i1024", "-m0 -Enodiscard,lazy_itable_init=1,lazy_journal_init=1", "-O ^has_journal",
        "-m 0 -O encrypt -E stride=16,stripe-width=64 -L data -U random", "-Fq -vm1 -T largefile", "-J size=64",
        "-b 4096 -I 256 -N 100000 -e remount-ro", "-b -1024"}) {
    CAPTURE(options);
    for (const auto* fstype : {"ext4", "ext3"}) CHECK(host::check_mkfs_options(fstype, options));
  }
  for (const auto* options : {"-K", "-i size=512 -n ftype=1", "-m reflink=0,crc=1", "-f -b size=4096 -L data",
                              "-d agcount=4,su=64k,sw=2 -l size=64m,su=64k -s size=4096 -q"})
    CHECK(host::check_mkfs_options("xfs", options));
  for (const auto* options : {"-K", "-f -n 16k -m single -d single -O ^no-holes",
                              "--label=data --nodesize 16k -R quota", "--csum xxhash --mixed --nodiscard"})
    CHECK(host::check_mkfs_options("btrfs", options));
}

TEST_CASE("a word that is no option of mkfs, nor the value of one, is refused: it would be the device") {
  for (const auto* fstype : {"ext4", "xfs", "btrfs"})
    check_refused(fstype, {"-f /dev/nbd7", "/dev/nbd7", "-K  -q", "-K ", " ", "-q nbd7", "-L data nbd7", "-q -"}, "");
  check_refused("ext4", {"-F nbd7", "-m 0 nbd7", "-L \"my label\""}, "neither an option nor the value of one");
}

TEST_CASE("an option of mkfs that copies a folder, or names a file or another device, is refused in every spelling") {
  check_refused("ext4", {"-d /run/corbd/keys", "-d/run/corbd/keys", "-Fd/run/corbd/keys", "-m0 -Fqd run"}, "-d is not");
  check_refused("ext4", {"-z undo", "-l blocks", "-c", "-cc", "-n", "-S", "-M x"}, "is not among the options");
  check_refused("ext4", {"-J device=/dev/nbd7", "-J size=4,device=LABEL=x", "-Jdevice=UUID=1"}, "-J");
  check_refused("ext4", {"-L /dev/nbd7", "-m -d/x", "-Ox/y", "-m --/x"}, "names a path");
  check_refused("xfs", {"-p proto", "-c options=x", "-r rtdev=x", "-fr rtdev=x", "-N"}, "is not among the options");
  check_refused("xfs", {"-l logdev=nbd7", "-fl size=1,logdev=nbd7", "-lname=nbd7", "-l file=1"}, "-l");
  check_refused("xfs", {"-dname=nbd7", "-d file", "-d size=1,name=nbd7"}, "-d");
  check_refused("btrfs",
                {"-r x", "-fr x", "--rootdir=x", "--rootdir x", "--rootd x", "--root=x", "--lab x", "--subvol x"},
                "is not among the options");
}

TEST_CASE("nothing ends the options of mkfs early, and none takes an argument of the agent") {
  for (const auto* fstype : {"ext4", "xfs", "btrfs"}) {
    check_refused(fstype, {"--", "-q -- x", "--=x"}, "is not among the options");
    check_refused(fstype, {"-L", "-q -b"}, "lacks its value");
  }
  check_refused("btrfs", {"--label", "--force=x", "--mixed=/x"}, "");
}

TEST_CASE("a tab or a new line in the options of mkfs is refused") {
  check_refused("ext4", {"-m0\t-d\tx", "-L a\nb"}, "blank or a control character");
  check_refused("ext4", {"\t-m0", "-F\t"}, "");
}

TEST_CASE("a filesystem of a volume does not ask for a panic of the node") {
  check_refused("ext4", {"-e panic", "-epanic"}, "-e panic");
}
