# An image that is there already: `rbd create --size 10G rbd/db`, then `nomad volume register volume.hcl`
id          = "db"
name        = "db"
type        = "csi"
plugin_id   = "corbd"
# The image's name. Two registered volumes must not name one image: Nomad would work on them at the same time.
external_id = "db"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

mount_options {
  fs_type = "ext4"
}

# A Ceph user with mon, osd and mgr `profile rbd`; the key is that of its keyring.
secrets {
  userID  = "nomad"
  userKey = "AQ=="
}

# docs/serving.md has them all.
context {
  staticVolume  = "true"
  clusterID     = "the cluster's fsid"
  pool          = "rbd"
  imageFeatures = "layering"
  mounter       = "rbd-nbd"
}
