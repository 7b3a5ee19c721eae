# corbd as Nomad's node plugin, one on each client: README.md in this folder. `nomad job run plugin.nomad.hcl`
job "corbd" {
  type = "system"
  # Every allocation with a volume needs it.
  priority = 100

  # While a client has no agent, I/O of its volumes waits. So one client after the other is updated.
  update {
    max_parallel = 1
    stagger      = "1m"
  }

  group "node" {
    # However often the agent dies, the next one heals the volumes.
    restart {
      attempts = 1000
      interval = "30m"
      delay    = "1s"
      mode     = "delay"
    }

    task "corbd" {
      driver = "docker"

      config {
        image   = "corbd"
        command = "run"
        args = [
          "--standalone",
          "--keeper",
          "--nodeid=${node.unique.name}",
          "--kubelet-dir=/local/csi",
          "--metricsport=9680",
          # A volume's files come from whoever registered it. So no set-uid program and no device node among them works.
          "--mount-options=ext4:nosuid,nodev;ext3:nosuid,nodev;xfs:nosuid,nodev;btrfs:nosuid,nodev",
        ]
        entrypoint = ["corbd"]
        # Mounts that reach the host, and the host's devices.
        privileged = true
        # Before Linux 6.4 only the first network namespace has the NBD driver's netlink.
        network_mode = "host"
        # A helper may wait for a device until the next agent serves it; a PID namespace would not end before.
        pid_mode = "host"
        volumes = [
          "/dev:/dev",
          # The records and the Ceph keys of staged volumes: with them, and with nothing of Nomad's, the next agent heals.
          "/var/lib/corbd:/var/lib/corbd",
          "/run/corbd:/run/corbd",
          # fsid and mon_host of the cluster; or config.json of several in /etc/ceph-csi-config.
          "/etc/ceph:/etc/ceph:ro",
          # The agent asks systemd whether the client shuts down.
          "/run/dbus:/run/dbus:ro",
        ]
      }

      # Nomad sets CSI_ENDPOINT to the socket in mount_dir.
      csi_plugin {
        id                     = "corbd"
        type                   = "node"
        mount_dir              = "/csi"
        stage_publish_base_dir = "/local/csi"
        health_timeout         = "2m"
      }

      # When the client shuts down, the agent serves devices in use for --shutdown-grace (90 s), and then waits up to 90 s for a command to the kernel's driver.
      # So it gives up what is left by itself. The client's max_kill_timeout (30 s by default) must allow this: README.md.
      kill_timeout = "240s"

      resources {
        cpu        = 200
        memory     = 1024
        # Whoever kills the agent for its memory stalls every volume of the client.
        memory_max = 4096
      }
    }
  }
}
