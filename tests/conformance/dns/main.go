// Command coredns is CoreDNS with the plugins that the conformance suite's manifests name.
package main

import (
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/whoami"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

func init() {
	// The order in which plugins see a query.
	dnsserver.Directives = []string{"errors", "log", "whoami", "forward"}
}

func main() {
	coremain.Run()
}
