//go:build !race

package model_test

const raced = false
