// The registration of a driver that does not register itself with kubelet:
//
//	hollow-kubelet register FOLDER DRIVER ENDPOINT
package main

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type driver struct{ name, endpoint string }

func (d driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.name, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (d driver) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	klog.Infof("registered: %v %s", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func register(folder, name, endpoint string) {
	socket := filepath.Join(folder, name+"-reg.sock")
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	must(err, "listening at "+socket)
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, driver{name, endpoint})
	must(server.Serve(listener), "serving the registration")
}
