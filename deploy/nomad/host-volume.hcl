# A dynamic host volume on an image that is there already: `rbd create --size 10G rbd/db`, then `nomad volume create host-volume.hcl`. docs/standalone.md says how.
type      = "host"
name      = "db"
plugin_id = "corbd-host-volume"

capability {
  access_mode     = "single-node-single-writer"
  attachment_mode = "file-system"
}

# The keys of a file of /etc/corbd/mounts.d, without `dir`. The client's /etc/corbd/host-volumes.conf must allow them.
parameters = {
  image   = "rbd/db"
  options = "noatime"
  user    = "nomad"
  keyring = "/etc/ceph/ceph.client.nomad.keyring"
}
