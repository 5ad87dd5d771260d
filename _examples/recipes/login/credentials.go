package login

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
)

const (
	maxBody    = 4 << 10 // bytes
	maxAccount = 254     // bytes, the length of the longest mail address
)

// credentials must never be logged, not even the account, because people type their password into the wrong field.
type credentials struct{ account, password string }

// readCredentials reads the body of a login, which is JSON or a form. If the body cannot be read, it returns the status of the answer. A field
// that is repeated, or spelled in another way ("USER"), does no harm: the account that is found here is both counted and checked.
func readCredentials(w http.ResponseWriter, r *http.Request) (given credentials, status int) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	var name string
	var err error
	switch media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media {
	case "application/json":
		name, given.password, err = readJSON(r.Body)
	case "application/x-www-form-urlencoded":
		err = r.ParseForm()
		name, given.password = r.PostForm.Get("user"), r.PostForm.Get("password") // r.Form would also contain the query of the URL
	default:
		return credentials{}, http.StatusUnsupportedMediaType
	}
	account, ok := accountOf(name)
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		return credentials{}, http.StatusRequestEntityTooLarge
	case err != nil || !ok:
		return credentials{}, http.StatusBadRequest
	}
	given.account = account
	return given, 0
}

// readJSON reads a body that is one JSON object and nothing else.
func readJSON(body io.Reader) (name, password string, err error) {
	var login struct {
		User     string `json:"user"`
		Password string `json:"password"`
	}
	decoder := json.NewDecoder(body)
	if err := decoder.Decode(&login); err != nil {
		return "", "", err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return "", "", errors.Join(errors.New("there is something behind the object"), err)
	}
	return login.User, login.Password, nil
}

// accountOf returns the name by which an account is counted and looked up. It must normalize names as your user store does, so that an account
// has only one name. It reports false if no account can have the name. Here names are in ASCII, without blanks inside: user stores differ in
// which other characters are the same to them, such as é in one code point and in two. If your names have others, normalize these, too.
func accountOf(name string) (account string, ok bool) {
	name = strings.TrimSpace(name)
	ascii := !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= unicode.MaxASCII })
	return strings.ToLower(name), name != "" && len(name) <= maxAccount && ascii
}
