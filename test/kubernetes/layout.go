package main

import (
	"os"
	"path/filepath"
)

// layout says where things lie below --dir.
type layout string

func (l layout) pki(file string) string { return filepath.Join(string(l), "pki", file) }
func (l layout) log(component string) string {
	return filepath.Join(string(l), "logs", component+".log")
}
func (l layout) etcd() string { return filepath.Join(string(l), "etcd") }
func (l layout) snapshot(name string) string {
	return filepath.Join(string(l), "snapshots", name+".db")
}
func (l layout) auditPolicy() string { return filepath.Join(string(l), "audit-policy.yaml") }
func (l layout) auditLog() string    { return filepath.Join(string(l), "audit.log") }
func (l layout) kwokConfig() string  { return filepath.Join(string(l), "kwok.yaml") }

// kubeconfig is the one of a component; the admin's lies where --kubeconfig says.
func (l layout) kubeconfig(component string) string {
	return filepath.Join(string(l), "pki", component+".kubeconfig")
}

func (l layout) create() error {
	for _, dir := range []string{"pki", "logs", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(string(l), dir), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces a file in one step, so that nobody who waits for it reads half of it.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if _, err := temp.Write(data); err != nil {
		temp.Close()
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
