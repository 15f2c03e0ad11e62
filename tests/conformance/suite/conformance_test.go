// Package suite runs the official conformance suite of the Gateway API. Every option is a flag of the suite's own.
package suite

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
