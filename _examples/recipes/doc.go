// Package recipes has a package for each recipe of docs/recipes.md that is too long for the document. To use a recipe, copy the files of its
// folder, except the tests, and adapt them to your service.
//
//	alert       one page for each outage of a Redis server, however many limiters use it
//	contracts   each customer has a limit of their own, which may change while the service runs
//	limitsfile  limits from a file, which may change while the service runs
//	login       logins that lock out clients that guess passwords, but not the owner of the account
package recipes
