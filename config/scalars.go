package config

import "github.com/kubebridge/bridge/internal/settings"

// Size is a number of bytes, such as 64MiB.
type Size = settings.Size

// Secret is a password or a token. However it is printed, it is masked.
type Secret = settings.Secret

// URL is an address that may hold credentials. Printed, they are masked.
type URL = settings.URL
