// A kubelet whose mounts are real and whose containers are pretended, for the lab: kubemark's pieces of the kubelet with this machine's own
// mounter and with a root folder that outlives the process.
//
//	hollow-kubelet containers SOCKET                       the pretended containers, which stay while kubelets come and go
//	hollow-kubelet node NAME KUBECONFIG FOLDER SOCKET      the kubelet of the node NAME
//
// Built by scripts/lab/kubernetes within the source tree of Kubernetes 1.20.
package main

import (
	"flag"
	"os"
	"time"

	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cri/remote"
	fakeremote "k8s.io/kubernetes/pkg/kubelet/cri/remote/fake"
	"k8s.io/kubernetes/pkg/kubemark"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

func must(err error, doing string) {
	if err != nil {
		klog.Fatalf("%s: %v", doing, err)
	}
}

func containers(socket string) {
	runtime := fakeremote.NewFakeRemoteRuntime()
	must(runtime.Start("unix://"+socket), "serving the pretended containers")
	select {}
}

func node(name, kubeconfig, folder, socket string) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(err, "reading "+kubeconfig)
	client, err := clientset.NewForConfig(access)
	must(err, "making a client")
	runtime, err := remote.NewRemoteRuntimeService("unix://"+socket, time.Minute)
	must(err, "connecting to the pretended containers")
	images, err := remote.NewRemoteImageService("unix://"+socket, time.Minute)
	must(err, "connecting to the pretended images")

	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubletOptions{NodeName: name, MaxPods: 110})
	must(os.RemoveAll(flags.RootDirectory), "removing kubemark's own folder")
	flags.RootDirectory = folder
	config.StaticPodPath = ""
	config.EnableServer = false
	config.ReadOnlyPort = 0
	config.SyncFrequency.Duration = 2 * time.Second

	kubelet := kubemark.NewHollowKubelet(flags, config, client, client, &cadvisortest.Fake{NodeName: name}, images, runtime, cm.NewStubContainerManager())
	mounter := mount.New("")
	kubelet.KubeletDeps.EventClient = client.CoreV1()
	kubelet.KubeletDeps.Mounter = mounter
	kubelet.KubeletDeps.HostUtil = hostutil.NewHostUtil()
	kubelet.KubeletDeps.Subpather = subpath.New(mounter)
	kubelet.Run()
}

func main() {
	flag.Parse()
	switch arguments := flag.Args(); {
	case len(arguments) == 2 && arguments[0] == "containers":
		containers(arguments[1])
	case len(arguments) == 5 && arguments[0] == "node":
		node(arguments[1], arguments[2], arguments[3], arguments[4])
	default:
		klog.Fatal("usage: hollow-kubelet containers SOCKET | node NAME KUBECONFIG FOLDER SOCKET")
	}
}
