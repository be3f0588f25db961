package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// ownerLabel marks this package's containers with the process that started them, as "hostname/pid".
const ownerLabel = "io.github.leasecache.servertest.owner"

// dataDir is the working directory of every server image, official or local.
const dataDir = "/data"

// engineAnswers returns nil if there is a container engine. The first call sets the environment that doc.go describes and
// removes containers whose process is gone.
var engineAnswers = sync.OnceValue(func() error {
	setDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
	dockerHost := os.Getenv("DOCKER_HOST")
	if _, err := os.Stat("/.dockerenv"); err == nil && (dockerHost == "" || strings.HasPrefix(dockerHost, "unix:")) {
		setDefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return withClient(ctx, func(cli *testcontainers.DockerClient) error {
		if _, err := cli.Ping(ctx, client.PingOptions{}); err != nil {
			return err
		}
		removeOrphans(ctx, cli)
		return nil
	})
})

func setDefault(name, value string) {
	if _, ok := os.LookupEnv(name); !ok {
		os.Setenv(name, value)
	}
}

// removeOrphans removes the containers of processes on this host that have ended. A failure costs nothing but their memory.
func removeOrphans(ctx context.Context, cli *testcontainers.DockerClient) {
	list, err := cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", ownerLabel)})
	if err != nil {
		return
	}
	self, _ := os.Hostname()
	for _, c := range list.Items {
		host, pid, _ := strings.Cut(c.Labels[ownerLabel], "/")
		if n, err := strconv.Atoi(pid); err == nil && host == self && !alive(n) {
			_, _ = cli.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
}

// withClient runs f with a client of its own: an idle connection that outlived the test would look like a leak to it.
func withClient(ctx context.Context, f func(*testcontainers.DockerClient) error) error {
	cli, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer cli.Close()
	return f(cli)
}

func hasImage(ctx context.Context, image string) bool {
	return withClient(ctx, func(cli *testcontainers.DockerClient) error {
		_, err := cli.ImageInspect(ctx, image)
		return err
	}) == nil
}

func pullImage(ctx context.Context, image string) error {
	return withClient(ctx, func(cli *testcontainers.DockerClient) error {
		pull, err := cli.ImagePull(ctx, image, client.ImagePullOptions{})
		if err != nil {
			return err
		}
		defer pull.Close()
		return pull.Wait(ctx)
	})
}

// engineHost returns where published ports are reached.
func engineHost(ctx context.Context) (string, error) {
	provider, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(log.NewNoopLogger()))
	if err != nil {
		return "", err
	}
	defer provider.Close()
	host, err := provider.DaemonHost(ctx)
	if host == "localhost" {
		host = "127.0.0.1" // what servers announce must be an address, and may not be IPv6
	}
	return host, err
}

// containers is a group of servers in containers. Several share the network namespace of one more container, the holder,
// which outlives each of them: so they reach each other at the very addresses that the test dials, on every platform.
type containers struct {
	image  string
	host   string
	ports  []int
	holder *testcontainers.DockerContainer // nil for a single server
	all    []*testcontainers.DockerContainer
}

func newContainers(ctx context.Context, image string, ports []int, several bool) (*containers, error) {
	host, err := engineHost(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the container engine's address: %w", err)
	}
	g := &containers{image: image, host: host, ports: ports}
	if several {
		if !g.local() {
			return nil, fmt.Errorf("the container engine is at %s: servers that announce their addresses need one on this machine: set DOCKER_HOST or TESTCONTAINERS_HOST_OVERRIDE", host)
		}
		g.holder, err = g.run(ctx, testcontainers.WithCmd("sleep", "infinity"), g.publish())
		if err != nil {
			return g, fmt.Errorf("the container that holds the network: %w", err)
		}
	}
	return g, nil
}

func (g *containers) local() bool {
	addr, err := netip.ParseAddr(g.host)
	return err == nil && addr.IsLoopback()
}

func (g *containers) addr() string { return g.host }

// Inside a container every interface is as private as the container's network.
func (g *containers) bind() string { return "0.0.0.0" }

// publish publishes each port under its own number, which stays the same when a container is restarted, and only on the
// loopback interface if that is where the test dials: these servers have no password.
func (g *containers) publish() testcontainers.CustomizeRequestOption {
	var exposed []string
	bindings := network.PortMap{}
	binding := network.PortBinding{}
	if g.local() {
		binding.HostIP = netip.MustParseAddr(g.host)
	}
	for _, port := range g.ports {
		spec := fmt.Sprintf("%d/tcp", port)
		exposed = append(exposed, spec)
		binding.HostPort = strconv.Itoa(port)
		bindings[network.MustParsePort(spec)] = []network.PortBinding{binding}
	}
	return func(req *testcontainers.GenericContainerRequest) error {
		req.ExposedPorts = exposed
		req.HostConfigModifier = func(hc *container.HostConfig) { hc.PortBindings = bindings }
		return nil
	}
}

func (g *containers) run(ctx context.Context, opts ...testcontainers.ContainerCustomizer) (*testcontainers.DockerContainer, error) {
	self, _ := os.Hostname()
	opts = append(opts,
		testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithLabels(map[string]string{ownerLabel: fmt.Sprintf("%s/%d", self, os.Getpid())}))
	ctr, err := testcontainers.Run(ctx, g.image, opts...)
	if ctr != nil {
		g.all = append(g.all, ctr) // also a container that did not start must go
	}
	return ctr, err
}

func (g *containers) launch(ctx context.Context, n node) (instance, error) {
	// The program is named, since official images and local ones differ in entry point but not in this.
	opts := []testcontainers.ContainerCustomizer{testcontainers.WithCmd(append([]string{n.binary}, n.args...)...)}
	for name, content := range n.files {
		opts = append(opts, testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: strings.NewReader(content), ContainerFilePath: path.Join(dataDir, name), FileMode: 0o644,
		}))
	}
	if g.holder == nil {
		opts = append(opts, g.publish())
	} else {
		opts = append(opts, testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.NetworkMode = container.NetworkMode("container:" + g.holder.GetContainerID())
		}))
	}
	ctr, err := g.run(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &containerInstance{ctr}, nil
}

func (g *containers) close(ctx context.Context) error {
	var errs []error
	for i := range g.all {
		ctr := g.all[len(g.all)-1-i] // the holder last
		errs = append(errs, ctr.Terminate(ctx, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0)))
	}
	return errors.Join(errs...)
}

type containerInstance struct {
	ctr *testcontainers.DockerContainer
}

// The signals act on the server, which is the container's first process.
func (c *containerInstance) signal(ctx context.Context, sig signal) error {
	return withClient(ctx, func(cli *testcontainers.DockerClient) error {
		_, err := cli.ContainerKill(ctx, c.ctr.GetContainerID(), client.ContainerKillOptions{Signal: string(sig)})
		return err
	})
}

func (c *containerInstance) start(ctx context.Context) error {
	return withClient(ctx, func(cli *testcontainers.DockerClient) error {
		_, err := cli.ContainerStart(ctx, c.ctr.GetContainerID(), client.ContainerStartOptions{})
		return err
	})
}

func (c *containerInstance) running(ctx context.Context) (bool, error) {
	state, err := c.ctr.State(ctx)
	if err != nil {
		return false, err
	}
	return state.Running, nil
}

// A container sees its own process numbers, and its published port cannot be another server's.
func (c *containerInstance) pid() int { return 0 }

func (c *containerInstance) logs(ctx context.Context) string {
	r, err := c.ctr.Logs(ctx)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Sprintf("%s(log ends: %v)", text, err)
	}
	return string(text)
}
