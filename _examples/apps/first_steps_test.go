package apps

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// TestFirstSteps does what a new user does: it follows the "go get" of a document, writes the first program of the document,
// runs "go mod tidy", and builds the program, with an empty module cache. The library comes from its own address, behind
// which git finds a clone of HEAD. A release tests its tags in the same way: REDISLIMIT_CLONE names
// the clone that has them, and REDISLIMIT_VERSION the version.
//
// Until the first release, the other modules require a commit of the main branch for the main module.
// When they no longer compile with that commit, or the commit is gone, require a newer one:
//
//	version=v0.0.0-$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --abbrev=12 --format=%cd-%h COMMIT)
//	for mod in */go.mod; do go mod edit -require=github.com/redislimit/redislimit@$version $mod; done
//
// Then run "go mod tidy" in each folder that contains a go.mod.
func TestFirstSteps(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	check.Need(t, err)
	clone := cmp.Or(os.Getenv("REDISLIMIT_CLONE"), filepath.Join(scratch, "clone"))
	if os.Getenv("REDISLIMIT_CLONE") == "" {
		run(t, root, "git", "clone", "-q", "--no-local", root, clone)
	}
	setUserEnvironment(t, clone)

	documents := []string{"README.md", "docs/metrics.md"}
	more, err := filepath.Glob(filepath.Join(root, "_examples", "*", "README.md"))
	check.Need(t, err)
	for _, path := range more {
		relative, err := filepath.Rel(root, path)
		check.Need(t, err)
		documents = append(documents, relative)
	}
	var got []string
	for i, name := range documents {
		text, err := os.ReadFile(filepath.Join(root, name))
		check.Need(t, err)
		if strings.HasPrefix(name, "_examples") && !strings.Contains(string(text), "```go\npackage") {
			continue // the document shows only a part of a program
		}
		get := regexp.MustCompile("`go get ([^`]+)`").FindSubmatch(text)
		if get == nil || !strings.Contains(string(text), "`go mod tidy`") {
			t.Errorf("%s does not contain a `go get` command and `go mod tidy`, want both", name)
			continue
		}
		module := string(get[1])
		got = append(got, module)
		if version := os.Getenv("REDISLIMIT_VERSION"); version != "" {
			module += "@" + version
		}
		dir := filepath.Join(scratch, fmt.Sprint("user-", i))
		check.Need(t, os.Mkdir(dir, 0o750))
		check.Need(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(firstProgram(string(text))), 0o600))
		run(t, dir, "go", "mod", "init", "example.com/user")
		run(t, dir, "go", "get", module)
		run(t, dir, "go", "mod", "tidy")
		run(t, dir, "go", "build", "-o", os.DevNull, ".")
		if name == "README.md" {
			testModulesOfUser(t, dir)
		}
	}
	for module := range strings.FieldsSeq(run(t, root, "git", "ls-files", "*/go.mod")) {
		module = strings.TrimSuffix(module, "/go.mod")
		if !strings.HasPrefix(module, ".") && !strings.HasPrefix(module, "_") && !slices.Contains(got, library+"/"+module) {
			t.Errorf("no document contains the `go get` command of the module %s", module)
		}
	}
}

// setUserEnvironment sets an environment in which the module cache is empty, and git finds the library in clone.
// Other modules come from the usual module cache, if they are there.
func setUserEnvironment(t *testing.T, clone string) {
	t.Helper()
	env := func(name string) string {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		check.Need(t, err)
		return strings.TrimSpace(string(out))
	}
	for name, value := range map[string]string{
		"GOPROXY": "file://" + env("GOMODCACHE") + "/cache/download," + env("GOPROXY"),
		"GOSUMDB": "off", "GOPRIVATE": library, "GOMODCACHE": filepath.Join(scratch, "modules"), "GOTOOLCHAIN": "local",
		"GOFLAGS":            strings.TrimSpace(env("GOFLAGS") + " -trimpath -modcacherw -buildvcs=false"),
		"GIT_ALLOW_PROTOCOL": "file", "GIT_CONFIG_COUNT": "1",
		"GIT_CONFIG_KEY_0": "url.file://" + clone + ".insteadOf", "GIT_CONFIG_VALUE_0": "https://" + library,
	} {
		t.Setenv(name, value)
	}
}

// firstProgram returns the first Go code of a document as a program. The first code of docs/metrics.md is only a
// part of a program.
func firstProgram(document string) string {
	_, code, _ := strings.Cut(document, "```go\n")
	code, _, _ = strings.Cut(code, "```")
	if strings.HasPrefix(code, "package") {
		return code
	}
	return `package main

import (
	"` + library + `/core"
	otellimit "` + library + `/otel"
	"github.com/redis/go-redis/v9"
)

func main() {
	rdb := redis.NewClient(&redis.Options{})
	` + code + `
	_ = lim
}
`
}

// testModulesOfUser checks which modules a service with net/http needs, whose code is in dir. The service must
// compile only the modules in want, download no others for a build, and its go.sum must name no more modules than
// the go.sum of a program that uses only go-redis and httpsnoop.
func testModulesOfUser(t *testing.T, dir string) {
	t.Helper()
	compiled := strings.Fields(run(t, dir, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "."))
	slices.Sort(compiled)
	want := []string{
		"github.com/cespare/xxhash/v2", // required by go-redis
		"github.com/felixge/httpsnoop", // required by nethttp: it preserves the optional interfaces of a ResponseWriter
		"github.com/redis/go-redis/v9",
		library,
		"go.uber.org/atomic", // required by go-redis
		"golang.org/x/sys",   // required by xxhash
	}
	if compiled = slices.Compact(compiled); !slices.Equal(compiled, want) {
		t.Errorf("a service with net/http compiles the modules %q, want %q", compiled, want)
	}
	plain := filepath.Join(scratch, "plain")
	check.Need(t, os.Mkdir(plain, 0o750))
	const needs = "package main\n\nimport (\n\t_ \"github.com/felixge/httpsnoop\"\n\t_ \"github.com/redis/go-redis/v9\"\n)\n\nfunc main() {}\n"
	check.Need(t, os.WriteFile(filepath.Join(plain, "main.go"), []byte(needs), 0o600))
	run(t, plain, "go", "mod", "init", "example.com/plain")
	versions := run(t, dir, "go", "list", "-m", "-f", "-require={{.Path}}@{{.Version}}", "github.com/felixge/httpsnoop", "github.com/redis/go-redis/v9")
	run(t, plain, "go", append([]string{"mod", "edit"}, strings.Fields(versions)...)...)
	run(t, plain, "go", "mod", "tidy")
	if got, want := sumsOf(t, dir), sumsOf(t, plain); !slices.Equal(got, want) {
		t.Errorf("the go.sum of a service with net/http names %q, want %q, as without the library", got, want)
	}

	cache := filepath.Join(scratch, "downloads")
	before := os.Getenv("GOMODCACHE")
	t.Setenv("GOMODCACHE", cache)
	run(t, dir, "go", "build", "-o", os.DevNull, ".")
	t.Setenv("GOMODCACHE", before)
	if downloaded := downloadsIn(t, cache); !slices.Equal(downloaded, want) {
		t.Errorf("a service with net/http downloads the modules %q, want %q", downloaded, want)
	}

	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	check.Need(t, err)
	if found := regexp.MustCompile(`(?m)^\S*(gin-gonic|labstack|gofiber|valyala|gopher-lua|opentelemetry|google\.golang\.org)\S*`).FindAll(sums, -1); found != nil {
		t.Errorf("the go.sum of a service with net/http names %q, want none of these modules", found)
	}
}

// sumsOf returns the names of the modules in the go.sum of a folder, without the library.
func sumsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	check.Need(t, err)
	for line := range strings.Lines(string(sums)) {
		if name, _, _ := strings.Cut(line, " "); name != library {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// downloadsIn returns the modules whose code is in a module cache.
func downloadsIn(t *testing.T, cache string) (names []string) {
	t.Helper()
	root := filepath.Join(cache, "cache", "download")
	check.Need(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if name, _, ok := strings.Cut(strings.TrimPrefix(path, root+"/"), "/@v/"); ok && strings.HasSuffix(path, ".zip") {
			names = append(names, name)
		}
		return err
	}))
	slices.Sort(names)
	return slices.Compact(names)
}
