module github.com/kubebridge/bridge

go 1.26
