// Containers that run: runc makes each as containerd does from what kubelet asks for. An image that was imported (tests/lab/oci.py) is in the folder
// IMAGES/REFERENCE: root, and config.json, which is the image's own. Its containers have nothing else of this machine. IMAGES/account has what a cluster
// gives such a container of its pod's service account, and in the file environment the API server's address.
// In the place of any other image a container has this machine's own programs, and before them those of the folder IMAGES/NAME, where NAME is the last part
// of the image's name. IMAGES/NAME/environment has variables, one a line.
// All containers are in the node's network namespace.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/ioutil"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1alpha2"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/klog/v2"
	fakeremote "k8s.io/kubernetes/pkg/kubelet/cri/remote/fake"
	"k8s.io/kubernetes/pkg/kubelet/cri/streaming"
	utilexec "k8s.io/utils/exec"
)

type container struct {
	config  *runtimeapi.ContainerConfig
	sandbox *runtimeapi.PodSandboxConfig
	log     string
	ended   chan struct{} // nil until it is started; closed once it has ended
}

// The bookkeeping of sandboxes, containers and images is that of the pretended ones.
type runtime struct {
	*fakeremote.RemoteRuntime
	images, folder string
	streams        streaming.Server

	lock       sync.Mutex
	containers map[string]*container
}

func runContainers(socket, images, folder string) {
	r := &runtime{RemoteRuntime: pretended(), images: images, folder: folder, containers: map[string]*container{}}
	r.RuntimeService.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true}}}
	config := streaming.DefaultConfig
	config.Addr = "127.0.0.1:0"
	var err error
	r.streams, err = streaming.NewServer(config, r.asStreams())
	must(err, "making the server of streams")
	go func() { must(r.streams.Start(true), "serving streams") }()
	listener, err := net.Listen("unix", socket)
	must(err, "listening on "+socket)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	must(server.Serve(listener), "serving the containers")
}

func (r *runtime) runc(words ...string) *exec.Cmd {
	return exec.Command("runc", append([]string{"--root", filepath.Join(r.folder, "runc")}, words...)...)
}

func (r *runtime) find(id string) (*container, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if one := r.containers[id]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("there is no container %s", id)
}

// note changes what the bookkeeping says of a container.
func (r *runtime) note(id string, change func(*apitest.FakeContainer)) {
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	if one := r.RuntimeService.Containers[id]; one != nil {
		change(one)
	}
}

// A pod of the node's network has the node's address, and none of its own.
func (r *runtime) RunPodSandbox(ctx context.Context, asked *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	made, err := r.RemoteRuntime.RunPodSandbox(ctx, asked)
	if err == nil && asked.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		r.RuntimeService.Lock()
		defer r.RuntimeService.Unlock()
		r.RuntimeService.Sandboxes[made.PodSandboxId].Network.Ip = ""
	}
	return made, err
}

func (r *runtime) CreateContainer(ctx context.Context, asked *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	made, err := r.RemoteRuntime.CreateContainer(ctx, asked)
	if err != nil {
		return nil, err
	}
	one := &container{config: asked.Config, sandbox: asked.SandboxConfig, log: filepath.Join(asked.SandboxConfig.LogDirectory, asked.Config.LogPath)}
	r.lock.Lock()
	r.containers[made.ContainerId] = one
	r.lock.Unlock()
	r.note(made.ContainerId, func(status *apitest.FakeContainer) { status.LogPath = one.log })
	return made, nil
}

func (r *runtime) StartContainer(ctx context.Context, asked *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	one, err := r.find(asked.ContainerId)
	if err != nil {
		return nil, err
	}
	// Noted first: the container may end at once.
	done, err := r.RemoteRuntime.StartContainer(ctx, asked)
	if err != nil {
		return nil, err
	}
	if err := r.start(asked.ContainerId, one); err != nil {
		klog.Errorf("starting %s: %v", asked.ContainerId, err)
		r.exited(asked.ContainerId, 128)
		return nil, err
	}
	return done, nil
}

func (r *runtime) exited(id string, code int32) {
	r.note(id, func(status *apitest.FakeContainer) {
		status.State = runtimeapi.ContainerState_CONTAINER_EXITED
		status.FinishedAt = time.Now().UnixNano()
		status.ExitCode = code
		status.Reason = "Completed"
		if code != 0 {
			status.Reason = "Error"
		}
	})
}

func (r *runtime) start(id string, one *container) error {
	bundle := filepath.Join(r.folder, id)
	root := filepath.Join(bundle, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	var spec object
	var err error
	if image := r.imported(one); image != "" {
		spec, err = r.imageSpec(id, bundle, image, one)
	} else {
		spec, err = r.machineSpec(id, root, one)
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := ioutil.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(one.log), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(one.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	lines := &logFile{file: log}
	command := r.runc("run", "--bundle", bundle, id)
	ends := []*os.File{}
	for _, stream := range []struct {
		name string
		into *io.Writer
	}{{"stdout", &command.Stdout}, {"stderr", &command.Stderr}} {
		from, to, err := os.Pipe()
		if err != nil {
			return err
		}
		*stream.into = to
		ends = append(ends, to)
		go lines.copy(stream.name, from)
	}
	err = command.Start()
	for _, end := range ends {
		end.Close()
	}
	if err != nil {
		return err
	}
	one.ended = make(chan struct{})
	go func() {
		command.Wait()
		klog.Infof("%s ended: %v", id, command.ProcessState)
		r.runc("delete", "--force", id).Run()
		syscall.Unmount(root, syscall.MNT_DETACH)
		r.exited(id, int32(command.ProcessState.ExitCode()))
		close(one.ended)
	}()
	return nil
}

// logFile has the form in which kubelet reads a container's log.
type logFile struct {
	lock sync.Mutex
	file *os.File
}

func (l *logFile) copy(stream string, from *os.File) {
	defer from.Close()
	reader := bufio.NewReader(from)
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			l.lock.Lock()
			fmt.Fprintf(l.file, "%s %s F %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, strings.TrimSuffix(line, "\n"))
			l.lock.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// What the containers have of this machine's /etc; kubelet brings hosts.
var etc = []string{"alternatives", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mke2fs.conf", "nsswitch.conf", "passwd", "ssl"}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

var defaultCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"}

// linux/capability.h
var allCapabilities = append([]string{"DAC_READ_SEARCH", "LINUX_IMMUTABLE", "NET_BROADCAST", "NET_ADMIN", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE",
	"SYS_RAWIO", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "LEASE",
	"AUDIT_CONTROL", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ"}, defaultCapabilities...)

func capabilities(security *runtimeapi.LinuxContainerSecurityContext) []string {
	has := map[string]bool{}
	put := func(names []string, value bool) {
		for _, name := range names {
			if strings.EqualFold(name, "ALL") {
				for _, each := range allCapabilities {
					has[each] = value
				}
			}
			has[strings.TrimPrefix(strings.ToUpper(name), "CAP_")] = value
		}
	}
	put(defaultCapabilities, true)
	if security.GetPrivileged() {
		put(allCapabilities, true)
	}
	put(security.GetCapabilities().GetDropCapabilities(), false)
	put(security.GetCapabilities().GetAddCapabilities(), true)
	found := []string{}
	for _, name := range allCapabilities {
		if has[name] {
			found = append(found, "CAP_"+name)
		}
	}
	return found
}

type object map[string]interface{}

// own binds what a container has of its image. It is private: otherwise what is mounted on it would appear on the node's own, where kubelet later deletes it.
func own(path string, options ...string) object {
	return bind(path, path, append([]string{"rprivate"}, options...)...)
}

func bind(source, destination string, options ...string) object {
	return object{"type": "bind", "source": source, "destination": destination, "options": append([]string{"rbind"}, options...)}
}

// environment reads variables, one a line. There may be none.
func environment(path string) []string {
	text, _ := ioutil.ReadFile(path)
	return strings.FieldsFunc(string(text), func(each rune) bool { return each == '\n' })
}

// imported gives the folder of an image that was unpacked; "" for one that this machine's programs stand in for.
func (r *runtime) imported(one *container) string {
	folder, err := filepath.EvalSymlinks(filepath.Join(r.images, one.config.GetImage().GetImage()))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(folder, "root")); err != nil {
		return ""
	}
	return folder
}

// image gives its programs and variables: mounts and environment.
func (r *runtime) image(one *container) ([]object, []string, error) {
	name := path.Base(one.config.GetImage().GetImage())
	if colon := strings.LastIndex(name, ":"); colon >= 0 {
		name = name[:colon]
	}
	image := filepath.Join(r.images, name)
	mounts := []object{own(r.images, "ro")}
	entries, err := ioutil.ReadDir(image)
	if err != nil {
		return nil, nil, fmt.Errorf("there is no image %s: %v", one.config.GetImage().GetImage(), err)
	}
	for _, entry := range entries {
		program, err := filepath.EvalSymlinks(filepath.Join(image, entry.Name()))
		if err == nil && entry.Mode()&os.ModeSymlink != 0 && !strings.HasPrefix(program, "/usr/") {
			mounts = append(mounts, own(filepath.Dir(program), "ro"))
		}
	}
	return mounts, append([]string{"PATH=" + image + ":" + defaultPath}, environment(filepath.Join(image, "environment"))...), nil
}

// machineSpec is of a container that has this machine's programs.
func (r *runtime) machineSpec(id, root string, one *container) (object, error) {
	programs, variables, err := r.image(one)
	if err != nil {
		return nil, err
	}
	// A mount of its own: runc makes the mount that it is on private, and the node's must stay shared.
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return nil, fmt.Errorf("mounting %s: %v", root, err)
	}
	// What an image has besides. rbd-nbd aborts without its folders.
	for _, name := range []string{"run/ceph", "var/lib/ceph"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return nil, err
		}
	}
	for link, to := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin", "var/run": "../run"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			return nil, err
		}
	}
	mounts := []object{{"type": "tmpfs", "source": "tmpfs", "destination": "/tmp"}, own("/usr", "ro")}
	for _, name := range etc {
		if _, err := os.Stat("/etc/" + name); err == nil {
			mounts = append(mounts, own("/etc/"+name, "ro"))
		}
	}
	for _, each := range one.config.Envs {
		variables = append(variables, each.Key+"="+each.Value)
	}
	words := append(append([]string{}, one.config.Command...), one.config.Args...)
	return r.spec(id, root, one, words, one.config.WorkingDir, variables, append(mounts, programs...)), nil
}

// imageSpec is of a container of an imported image. Each has its own changes to the image's files, which go with it.
func (r *runtime) imageSpec(id, bundle, image string, one *container) (object, error) {
	text, err := ioutil.ReadFile(filepath.Join(image, "config.json"))
	if err != nil {
		return nil, err
	}
	var of struct {
		Config struct {
			User, WorkingDir     string
			Env, Entrypoint, Cmd []string
		} `json:"config"`
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, fmt.Errorf("%s/config.json: %v", image, err)
	}
	if of.Config.User != "" {
		return nil, fmt.Errorf("the image's user is %s, and only root is played here", of.Config.User)
	}
	upper, work, root := filepath.Join(bundle, "upper"), filepath.Join(bundle, "work"), filepath.Join(bundle, "root")
	for _, folder := range []string{upper, work} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if err := syscall.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%s/root,upperdir=%s,workdir=%s", image, upper, work)); err != nil {
		return nil, fmt.Errorf("mounting %s: %v", root, err)
	}
	// containerd, internal/cri/opts/spec_opts.go, WithProcessArgs: a command replaces Entrypoint and Cmd, and arguments replace Cmd.
	command, arguments := one.config.Command, one.config.Args
	if len(command) == 0 {
		command = of.Config.Entrypoint
		if len(arguments) == 0 {
			arguments = of.Config.Cmd
		}
	}
	folder := one.config.WorkingDir
	if folder == "" {
		folder = of.Config.WorkingDir
	}
	variables := append([]string{"PATH=" + defaultPath}, of.Config.Env...)
	for _, each := range one.config.Envs {
		variables = append(variables, each.Key+"="+each.Value)
	}
	account := filepath.Join(r.images, "account")
	mounts := []object{bind(account, "/var/run/secrets/kubernetes.io/serviceaccount", "rprivate", "ro")}
	if _, err := os.Stat("/etc/resolv.conf"); err == nil {
		mounts = append(mounts, own("/etc/resolv.conf", "ro"))
	}
	if !one.config.GetLinux().GetSecurityContext().GetPrivileged() {
		mounts = append(mounts, object{"type": "sysfs", "source": "sysfs", "destination": "/sys", "options": []string{"nosuid", "noexec", "nodev", "ro"}})
	}
	words := append(append([]string{}, command...), arguments...)
	// The last of a name counts: the service that kubelet names has no address here.
	return r.spec(id, root, one, words, folder, append(variables, environment(filepath.Join(account, "environment"))...), mounts), nil
}

// spec is of every container: words, folder and variables of its process, and its own mounts, which come before those of the pod.
func (r *runtime) spec(id, root string, one *container, words []string, folder string, variables []string, its []object) object {
	config, security := one.config, one.config.GetLinux().GetSecurityContext()
	rights := capabilities(security)
	mounts := []object{{"type": "proc", "source": "proc", "destination": "/proc"}}
	if security.GetPrivileged() {
		mounts = append(mounts, own("/dev"), own("/sys"))
	} else {
		mounts = append(mounts, object{"type": "tmpfs", "source": "tmpfs", "destination": "/dev", "options": []string{"nosuid", "strictatime", "mode=755"}})
	}
	mounts = append(mounts, its...)
	propagation := "rslave"
	for _, each := range config.Mounts {
		// kubelet's files for a message of a container's end.
		if each.ContainerPath == "/dev/termination-log" {
			continue
		}
		// containerd makes what is missing.
		if _, err := os.Stat(each.HostPath); os.IsNotExist(err) {
			must(os.MkdirAll(each.HostPath, 0o755), "making "+each.HostPath)
		}
		options := []string{"rprivate"}
		switch each.Propagation {
		case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			options, propagation = []string{"rshared"}, "rshared"
		case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
			options = []string{"rslave"}
		}
		if each.Readonly {
			options = append(options, "ro")
		}
		mounts = append(mounts, bind(each.HostPath, each.ContainerPath, options...))
	}
	namespaces := []object{{"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}
	if one.sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() != runtimeapi.NamespaceMode_NODE {
		namespaces = append(namespaces, object{"type": "pid"})
	}
	if folder == "" {
		folder = "/"
	}
	return object{
		"ociVersion": "1.0.2",
		"process": object{"args": words, "cwd": folder, "env": variables,
			"user": object{"uid": 0, "gid": 0}, "capabilities": object{"bounding": rights, "effective": rights, "permitted": rights}},
		"root":   object{"path": root, "readonly": security.GetReadonlyRootfs()},
		"mounts": mounts,
		"linux": object{"namespaces": namespaces, "rootfsPropagation": propagation, "cgroupsPath": "/corbd-lab/" + id,
			"resources": object{"devices": []object{{"allow": true, "access": "rwm"}}}}}
}

// stop ends a container that runs: SIGTERM, and SIGKILL to all its processes after the grace.
func (r *runtime) stop(id string, one *container, grace time.Duration) {
	if one.ended == nil {
		return
	}
	r.runc("kill", id, "TERM").Run()
	select {
	case <-one.ended:
		return
	case <-time.After(grace):
	}
	r.runc("kill", "--all", id, "KILL").Run()
	<-one.ended
}

func (r *runtime) StopContainer(ctx context.Context, asked *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	if one, err := r.find(asked.ContainerId); err == nil {
		r.stop(asked.ContainerId, one, time.Duration(asked.Timeout)*time.Second)
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *runtime) RemoveContainer(ctx context.Context, asked *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	if one, err := r.find(asked.ContainerId); err == nil {
		r.stop(asked.ContainerId, one, 0)
		os.RemoveAll(filepath.Join(r.folder, asked.ContainerId))
		os.Remove(one.log)
		r.lock.Lock()
		delete(r.containers, asked.ContainerId)
		r.lock.Unlock()
	}
	return r.RemoteRuntime.RemoveContainer(ctx, asked)
}

func (r *runtime) ExecSync(ctx context.Context, asked *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if asked.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(asked.Timeout)*time.Second)
		defer cancel()
	}
	words := append([]string{"--root", filepath.Join(r.folder, "runc"), "exec", asked.ContainerId}, asked.Cmd...)
	command := exec.CommandContext(ctx, "runc", words...)
	out, errors := &bytes.Buffer{}, &bytes.Buffer{}
	command.Stdout, command.Stderr = out, errors
	if err := command.Run(); command.ProcessState == nil || ctx.Err() != nil {
		return nil, fmt.Errorf("%v in %s: %v", asked.Cmd, asked.ContainerId, err)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: out.Bytes(), Stderr: errors.Bytes(), ExitCode: int32(command.ProcessState.ExitCode())}, nil
}

func (r *runtime) Exec(ctx context.Context, asked *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return r.streams.GetExec(asked)
}

// streams are those of kubectl exec. The rest is not played.
type streams struct{ r *runtime }

func (r *runtime) asStreams() streaming.Runtime { return &streams{r} }

func (s *streams) Exec(id string, words []string, in io.Reader, out, errors io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize) error {
	command := s.r.runc(append([]string{"exec", id}, words...)...)
	command.Stdin = in
	if out != nil {
		command.Stdout = out
	}
	if errors != nil {
		command.Stderr = errors
	}
	err := command.Run()
	if command.ProcessState != nil && command.ProcessState.Exited() && command.ProcessState.ExitCode() != 0 {
		return utilexec.CodeExitError{Err: err, Code: command.ProcessState.ExitCode()}
	}
	return err
}

func (s *streams) Attach(string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return fmt.Errorf("kubectl attach is not played")
}

func (s *streams) PortForward(string, int32, io.ReadWriteCloser) error {
	return fmt.Errorf("kubectl port-forward is not played")
}
