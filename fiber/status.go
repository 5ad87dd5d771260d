package fiberlimit

import (
	"github.com/gofiber/fiber/v2"

	"github.com/redislimit/redislimit/core/guard"
)

// serveAndFinish serves the request and gives g the final status. An error is
// rendered at once, because only the application's ErrorHandler knows its status. A
// panic is 500: that is what recovering middleware further out answers.
func serveAndFinish(g *guard.Guard, v guard.Verdict, c *fiber.Ctx) error {
	status := fiber.StatusInternalServerError
	defer func() { g.Finish(c.UserContext(), v, status) }()
	if err := c.Next(); err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			return c.SendStatus(fiber.StatusInternalServerError) // as Fiber itself does
		}
	}
	status = c.Response().StatusCode()
	return nil
}

// An answerError is a status and the reason for it. Clients see only the status.
type answerError struct {
	status *fiber.Error
	reason error
}

func (e *answerError) Error() string   { return e.status.Error() }
func (e *answerError) Unwrap() []error { return []error{e.status, e.reason} }
