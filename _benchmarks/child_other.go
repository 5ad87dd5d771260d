//go:build !linux

package main

import (
	"syscall"
	"time"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func rest(ns int64) { time.Sleep(time.Duration(ns)) }

// A load is known on Linux only.
type load struct{}

func loadOf(...int) load         { return load{} }
func (load) others(load) float64 { return 0 }
