//go:build !linux

package main

import (
	"syscall"
	"time"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func sleep(ns int64) { time.Sleep(time.Duration(ns)) }

// A load is measured only on Linux.
type load struct{}

func loadOf(...int) load         { return load{} }
func (load) others(load) float64 { return 0 }
