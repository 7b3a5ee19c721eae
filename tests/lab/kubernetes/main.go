// The parts of Kubernetes that the lab needs, in one program: linked once. It is called by the name of one of them.
//
//	kube-apiserver, kube-controller-manager, kube-scheduler, kubectl    as upstream
//	hollow-kubelet containers SOCKET                                    the pretended containers, which stay while kubelets come and go
//	hollow-kubelet containers SOCKET IMAGES FOLDER                      containers that run (containers.go)
//	hollow-kubelet node NAME KUBECONFIG FOLDER SOCKET [ADDRESS]         the kubelet of the node NAME; at the address it answers kubectl exec and logs
//	cephcsi, csi-node-driver-registrar                                  ceph-csi's node plugin, as it is played (cephcsi.go)
//
// The kubelet's mounts are real: kubemark's pieces of the kubelet with this machine's own mounter and with a root folder that outlives the process.
//
// Built by scripts/lab/kubernetes within the source tree of Kubernetes 1.20.
package main

import (
	"flag"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
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

// pretended has the bookkeeping of sandboxes, containers and images.
func pretended() *fakeremote.RemoteRuntime {
	runtime := fakeremote.NewFakeRemoteRuntime()
	// kubelet takes an image without a size for none, and starts no second pod of it.
	runtime.ImageService.SetFakeImageSize(1)
	return runtime
}

func containers(socket string) {
	must(pretended().Start("unix://"+socket), "serving the pretended containers")
	select {}
}

func node(name, kubeconfig, folder, socket, address string) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(err, "reading "+kubeconfig)
	client, err := clientset.NewForConfig(access)
	must(err, "making a client")
	runtime, err := remote.NewRemoteRuntimeService("unix://"+socket, time.Minute)
	must(err, "connecting to the pretended containers")
	images, err := remote.NewRemoteImageService("unix://"+socket, time.Minute)
	must(err, "connecting to the pretended images")

	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubletOptions{NodeName: name, MaxPods: 110, KubeletPort: 10250})
	must(os.RemoveAll(flags.RootDirectory), "removing kubemark's own folder")
	flags.RootDirectory = folder
	config.StaticPodPath = ""
	config.EnableServer = address != ""
	flags.NodeIP = address
	flags.CertDirectory = filepath.Join(folder, "pki")
	config.ReadOnlyPort = 0
	config.SyncFrequency.Duration = 2 * time.Second

	kubelet := kubemark.NewHollowKubelet(flags, config, client, client, &cadvisortest.Fake{NodeName: name}, images, runtime, cm.NewStubContainerManager())
	mounter := mount.New("")
	kubelet.KubeletDeps.EventClient = client.CoreV1()
	kubelet.KubeletDeps.Mounter = mounter
	kubelet.KubeletDeps.HostUtil = hostutil.NewHostUtil()
	kubelet.KubeletDeps.Subpather = subpath.New(mounter)
	if config.EnableServer {
		kubelet.KubeletDeps.OSInterface = kubecontainer.RealOS{}
		kubelet.KubeletDeps.TLSOptions, err = kubeletapp.InitializeTLS(flags, config)
		must(err, "making the kubelet's certificate")
	}
	kubelet.Run()
}

func hollowKubelet() {
	flag.Parse()
	switch arguments := flag.Args(); {
	case len(arguments) == 2 && arguments[0] == "containers":
		containers(arguments[1])
	case len(arguments) == 4 && arguments[0] == "containers":
		runContainers(arguments[1], arguments[2], arguments[3])
	case len(arguments) == 5 && arguments[0] == "node":
		node(arguments[1], arguments[2], arguments[3], arguments[4], "")
	case len(arguments) == 6 && arguments[0] == "node":
		node(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5])
	default:
		klog.Fatal("usage: hollow-kubelet containers SOCKET [IMAGES FOLDER] | node NAME KUBECONFIG FOLDER SOCKET [ADDRESS]")
	}
}

func upstream(command *cobra.Command) {
	if command.Execute() != nil {
		os.Exit(1)
	}
}

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kube-apiserver":
		upstream(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		upstream(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		upstream(scheduler.NewSchedulerCommand())
	case "kubectl":
		upstream(kubectl.NewDefaultKubectlCommand())
	case "hollow-kubelet":
		hollowKubelet()
	case "cephcsi":
		cephCsi()
	case "csi-node-driver-registrar":
		registrar()
	default:
		klog.Fatalf("%s is none of this program's names", name)
	}
}
