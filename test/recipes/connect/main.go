// Command connect is Redpanda Connect as far as it is its engine, Benthos, with the inputs, outputs
// and processors that need no other system.
package main

import (
	"context"

	_ "github.com/redpanda-data/benthos/v4/public/components/io"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure"
	"github.com/redpanda-data/benthos/v4/public/service"
)

func main() { service.RunCLI(context.Background()) }
