// Package recipes has a package for each recipe of docs/recipes.md that is too long to be shown there. They are meant to be copied: copy
// the files of a folder, except its tests, and change what differs in your service.
//
//	alert       one page for each outage of a Redis server, however many limiters use it
//	contracts   each customer has numbers of their own, which change while the service runs
//	limitsfile  limits from a file, which change while the service runs
//	login       logins that lock out who guesses passwords, and not the owner of the account
package recipes
