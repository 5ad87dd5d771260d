package main

import (
	"context"
	"os/exec"
	"runtime"
)

// openBrowser opens url in the browser of the desktop. If there is no desktop, the user can
// still open the address that is printed.
func openBrowser(url string) {
	command := []string{"xdg-open", url}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open", url}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	}
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...) // url is an address of this program
	if err := cmd.Start(); err != nil {
		say(err)
		return
	}
	go func() { say(cmd.Wait()) }()
}
