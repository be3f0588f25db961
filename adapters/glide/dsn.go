package glide

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-glide/go/v2/config"

	"github.com/leasecache/leasecache/driver/dsn"
)

var form = dsn.Form{
	Schemes:      []string{"redis", "rediss", "valkey", "valkeys"},
	MoreHosts:    "further hosts of a cluster, or replicas, go into the parameter addr",
	NeedPassword: true,
	Params: []dsn.Param{
		{Name: "addr", Value: dsn.Addr(), Repeated: true},
		{Name: "client_name", Value: dsn.Word("a name without spaces")},
		{Name: "cluster", Value: dsn.Bool()},
		{Name: "dial_timeout", Value: timeout},
		{Name: "request_timeout", Value: timeout},
		{Name: "skip_verify", Value: dsn.Bool(), Schemes: []string{"rediss", "valkeys"}},
	},
}

// timeout is what glide, which counts milliseconds, takes for one.
var timeout = dsn.Value{
	Valid: func(s string) bool {
		d, err := time.ParseDuration(s)
		return err == nil && d >= time.Millisecond && d <= 24*time.Hour
	},
	Want: "a duration such as 500ms, of 1ms to 24h",
}

// options are what a DSN says.
type options struct {
	hosts          []config.NodeAddress
	user, password string
	db             int
	tls            bool
	skipVerify     bool
	clientName     string
	dialTimeout    time.Duration
	requestTimeout time.Duration
	cluster        bool
}

// config returns the configuration of a client that is not for a cluster.
func (o options) config() *config.ClientConfiguration {
	c := config.NewClientConfiguration().
		WithUseTLS(o.tls).WithRequestTimeout(o.requestTimeout).WithClientName(o.clientName).WithDatabaseId(o.db).
		WithReconnectStrategy(reconnect()).
		WithAdvancedConfiguration(config.NewAdvancedClientConfiguration().
			WithConnectionTimeout(o.dialTimeout).WithTlsConfiguration(o.tlsConfig()))
	for i := range o.hosts {
		c.WithAddress(&o.hosts[i])
	}
	if o.password != "" {
		c.WithCredentials(config.NewServerCredentials(o.user, o.password))
	}
	return c
}

// clusterConfig returns the configuration of a client for a cluster.
func (o options) clusterConfig() *config.ClusterClientConfiguration {
	c := config.NewClusterClientConfiguration().
		WithUseTLS(o.tls).WithRequestTimeout(o.requestTimeout).WithClientName(o.clientName).WithDatabaseId(o.db).
		WithReconnectStrategy(reconnect()).
		WithAdvancedConfiguration(config.NewAdvancedClusterClientConfiguration().
			WithConnectionTimeout(o.dialTimeout).WithTlsConfiguration(o.tlsConfig()))
	for i := range o.hosts {
		c.WithAddress(&o.hosts[i])
	}
	if o.password != "" {
		c.WithCredentials(config.NewServerCredentials(o.user, o.password))
	}
	return c
}

// reconnect returns how often glide tries to connect, and how fast: at once, and
// after 0.1, 0.2 and 0.4 s, which it then repeats. With its own, of 3 s and more,
// opening a client ends by the timeout, and nobody is told what was wrong.
func reconnect() *config.BackoffStrategy { return config.NewBackoffStrategy(3, 50, 2) }

func (o options) tlsConfig() *config.TlsConfiguration {
	return config.NewTlsConfiguration().WithInsecureTLS(o.skipVerify)
}

// parseDSN returns the options of a DSN.
func parseDSN(s string) (options, error) {
	if scheme, _, ok := strings.Cut(s, "://"); ok && strings.EqualFold(scheme, "unix") {
		return options{}, errors.New("dsn: scheme unix: glide for Go has no unix sockets: write " + form.String())
	}
	d, err := form.Parse(s)
	if err != nil {
		return options{}, err
	}
	o := options{
		user:           d.User,
		password:       d.Password,
		db:             d.DB,
		tls:            d.TLS,
		skipVerify:     d.Bool("skip_verify"),
		clientName:     d.Get("client_name"),
		dialTimeout:    d.Duration("dial_timeout", 5*time.Second),
		requestTimeout: d.Duration("request_timeout", 5*time.Second),
		cluster:        d.Bool("cluster"),
	}
	for _, addr := range append([]string{d.Addr}, d.All("addr")...) {
		host, port, _ := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(port)
		o.hosts = append(o.hosts, config.NodeAddress{Host: host, Port: n})
	}
	return o, nil
}
