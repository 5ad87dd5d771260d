package login

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// cookiePrefix begins the names of the cookies. Browsers accept cookies with __Host- only from this host itself, and over TLS.
	cookiePrefix = "__Host-known-device-"
	knownFor     = 180 * 24 * time.Hour
)

// knownDevices makes and reads the cookie that a device gets with a login. The cookie is bound to the account that logged in, and
// expires. It does not replace the password: a device with the cookie only gets a limit of its own. A device that two people use has a
// cookie for each of their accounts. If your user store knows when a password was last changed, add that time to the signed text: then the
// cookies from before a change of the password are no longer valid.
type knownDevices struct {
	secret []byte
	now    func() time.Time
}

// cookie returns a new cookie for a device on which account has logged in.
func (k knownDevices) cookie(account string) *http.Cookie {
	device, expires := rand.Text(), strconv.FormatInt(k.now().Add(knownFor).Unix(), 10)
	return &http.Cookie{
		Name: k.cookieName(account), Value: device + "." + expires + "." + k.sign(account, device, expires), Path: "/",
		MaxAge: int(knownFor / time.Second), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// device returns the identity of the device that sent a request, if it has a valid cookie for account.
func (k knownDevices) device(r *http.Request, account string) (device string, ok bool) {
	cookie, err := r.Cookie(k.cookieName(account))
	if err != nil {
		return "", false
	}
	parts := strings.Split(cookie.Value, ".")
	if len(parts) != 3 || !hmac.Equal([]byte(parts[2]), []byte(k.sign(account, parts[0], parts[1]))) {
		return "", false
	}
	expires, err := strconv.ParseInt(parts[1], 10, 64)
	return parts[0], err == nil && k.now().Before(time.Unix(expires, 0))
}

// cookieName returns the name of the cookie for account. Nobody without the secret can tell from the name which account it is.
func (k knownDevices) cookieName(account string) string {
	mac := hmac.New(sha256.New, k.secret)
	_, _ = fmt.Fprintf(mac, "name of the cookie for %q", account) // a hash takes everything
	return cookiePrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:12])
}

// sign returns the signature of a cookie. The parts are quoted, so that different parts never sign the same text: a user may choose an account
// name that contains blanks and digits.
func (k knownDevices) sign(account, device, expires string) string {
	mac := hmac.New(sha256.New, k.secret)
	_, _ = fmt.Fprintf(mac, "known device %q %q %q", device, expires, account) // a hash takes everything
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
