// ceph-csi's node plugin for static volumes, played: the calls of kubelet, and what it leaves on a node and its devices (docs/sources.md), by the tools that
// it runs. And node-driver-registrar beside it. Its healer is not played: the story goes back as the documents say, with nothing left to heal.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/ioutil"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"
)

const config, keys, stash = "/etc/ceph-csi-config/config.json", "/tmp/csi/keys", "image-meta.json"

// given is a word of the command line: --NAME=VALUE.
func given(name string) string {
	for _, word := range os.Args[1:] {
		if strings.HasPrefix(word, "--"+name+"=") {
			return strings.TrimPrefix(word, "--"+name+"=")
		}
	}
	return ""
}

func listen(socket string) net.Listener {
	socket = strings.TrimPrefix(socket, "unix://")
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	must(err, "listening on "+socket)
	return listener
}

type plugin struct {
	csi.NodeServer
	csi.IdentityServer
}

func cephCsi() {
	if given("type") == "liveness" {
		select {}
	}
	server := grpc.NewServer()
	csi.RegisterNodeServer(server, &plugin{})
	csi.RegisterIdentityServer(server, &plugin{})
	must(server.Serve(listen(given("endpoint"))), "serving kubelet")
}

// call runs a tool and gives what it said.
func call(words ...string) (string, error) {
	said, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	klog.Infof("%v: %v %s", words, err, said)
	if err != nil {
		return "", fmt.Errorf("%v: %v: %s", words, err, said)
	}
	return strings.TrimSpace(string(said)), nil
}

func isMounted(path string) bool {
	points, err := mount.New("").List()
	must(err, "listing mounts")
	for _, point := range points {
		if point.Path == path {
			return true
		}
	}
	return false
}

func monitors(cluster string) string {
	var clusters []struct {
		ClusterID string   `json:"clusterID"`
		Monitors  []string `json:"monitors"`
	}
	text, err := ioutil.ReadFile(config)
	must(err, "reading "+config)
	must(json.Unmarshal(text, &clusters), "reading "+config)
	for _, one := range clusters {
		if one.ClusterID == cluster {
			return strings.Join(one.Monitors, ",")
		}
	}
	return ""
}

func mapped(id string, attributes, secrets map[string]string) (string, error) {
	key := filepath.Join(keys, id)
	if err := ioutil.WriteFile(key, []byte(secrets["userKey"]), 0o600); err != nil {
		return "", err
	}
	defer os.Remove(key)
	words := []string{"map", attributes["pool"] + "/" + id, "--id", secrets["userID"], "-m", monitors(attributes["clusterID"]), "--keyfile", key}
	if attributes["mounter"] != "rbd-nbd" {
		said, err := call(append([]string{"rbd"}, append(words, "-o", "noudev")...)...)
		return lastWord(said), err
	}
	words = append(words, "--try-netlink", "--cookie", id, "--reattach-timeout", "300", "--io-timeout", "0")
	if options := strings.TrimPrefix(attributes["mapOptions"], "nbd:"); options != "" {
		words = append(words, "--"+options)
	}
	// It becomes a daemon, which holds what it got for its output.
	out := filepath.Join(keys, id+".out")
	file, err := os.Create(out)
	if err != nil {
		return "", err
	}
	defer os.Remove(out)
	defer file.Close()
	command := exec.Command("rbd-nbd", words...)
	command.Stdout, command.Stderr = file, file
	err = command.Run()
	said, _ := ioutil.ReadFile(out)
	klog.Infof("rbd-nbd %v: %v %s", words, err, said)
	if err != nil {
		return "", fmt.Errorf("rbd-nbd: %v: %s", err, said)
	}
	return lastWord(string(said)), nil
}

func lastWord(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

func (p *plugin) NodeStageVolume(_ context.Context, asked *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	path, attributes := filepath.Join(asked.StagingTargetPath, asked.VolumeId), asked.VolumeContext
	if isMounted(path) {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	device, err := mapped(asked.VolumeId, attributes, asked.Secrets)
	if err != nil {
		return nil, err
	}
	nbd := attributes["mounter"] == "rbd-nbd"
	meta := map[string]interface{}{"Version": 3, "pool": attributes["pool"], "radosNamespace": "", "image": asked.VolumeId, "unmapOptions": "",
		"accessType": nbd, "encrypted": false}
	if nbd {
		meta["device"], meta["logDir"], meta["logFileStrategy"] = device, "/var/log/ceph", "remove"
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	if err := ioutil.WriteFile(filepath.Join(asked.StagingTargetPath, stash), text, 0o600); err != nil {
		return nil, err
	}
	if _, err := call("blkid", "-p", device); err != nil {
		if _, err := call("mkfs.ext4", "-q", device); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return nil, err
	}
	_, err = call("mount", "-t", "ext4", "-o", "_netdev", device, path)
	return &csi.NodeStageVolumeResponse{}, err
}

func (p *plugin) NodeUnstageVolume(_ context.Context, asked *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	path, file := filepath.Join(asked.StagingTargetPath, asked.VolumeId), filepath.Join(asked.StagingTargetPath, stash)
	if isMounted(path) {
		if _, err := call("umount", path); err != nil {
			return nil, err
		}
	}
	os.Remove(path)
	text, err := ioutil.ReadFile(file)
	if os.IsNotExist(err) {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	var meta struct {
		Pool, Image string
		AccessType  bool
		Device      string
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, err
	}
	if meta.AccessType {
		_, err = call("rbd-nbd", "unmap", meta.Device)
	} else {
		_, err = call("rbd", "unmap", "-o", "noudev", meta.Pool+"/"+meta.Image)
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, os.Remove(file)
}

func (p *plugin) NodePublishVolume(_ context.Context, asked *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if !isMounted(asked.TargetPath) {
		if err := os.MkdirAll(asked.TargetPath, 0o750); err != nil {
			return nil, err
		}
		if _, err := call("mount", "--bind", filepath.Join(asked.StagingTargetPath, asked.VolumeId), asked.TargetPath); err != nil {
			return nil, err
		}
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (p *plugin) NodeUnpublishVolume(_ context.Context, asked *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if isMounted(asked.TargetPath) {
		if _, err := call("umount", asked.TargetPath); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(asked.TargetPath); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (p *plugin) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: given("nodeid")}, nil
}

func (p *plugin) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}}}, nil
}

func (p *plugin) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: given("drivername"), VendorVersion: "played"}, nil
}

func (p *plugin) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// --- node-driver-registrar

type registered struct{ name, path string }

func (r *registered) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.path, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registered) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	klog.Infof("kubelet says: %v", status)
	if !status.PluginRegistered {
		// kubelet starts its container again.
		klog.Fatal("not registered")
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func registrar() {
	socket := given("csi-address")
	connection, err := grpc.Dial(socket, grpc.WithInsecure(), grpc.WithBlock(), grpc.WithContextDialer(
		func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	must(err, "connecting to "+socket)
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(context.Background(), &csi.GetPluginInfoRequest{})
	must(err, "asking for the driver's name")
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registered{info.Name, given("kubelet-registration-path")})
	must(server.Serve(listen("/registration/"+info.Name+"-reg.sock")), "serving kubelet")
}
