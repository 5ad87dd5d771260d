package settings

// An Option changes Settings. Only this package implements it.
type Option interface {
	applyTo(s *Settings)
}

// An AnswerOption is an Option that only affects how a request is answered. Only this package
// implements it.
type AnswerOption interface {
	Option
	isAboutAnswers()
}

// NewOption returns the Option called name, which may be given only once. set changes the Settings.
func NewOption(name string, set func(s *Settings)) Option { return option{name, set} }

// NewAnswerOption is like NewOption, but returns an AnswerOption.
func NewAnswerOption(name string, set func(s *Settings)) AnswerOption {
	return answerOption{option{name, set}}
}

// NewRepeatable returns an Option that may be given several times. set is called each time.
func NewRepeatable(set func(s *Settings)) Option { return repeatable(set) }

type option struct {
	name string
	set  func(s *Settings)
}

func (o option) applyTo(s *Settings) {
	s.give(o.name)
	o.set(s)
}

type answerOption struct{ option }

func (answerOption) isAboutAnswers() {}

type repeatable func(s *Settings)

func (r repeatable) applyTo(s *Settings) { r(s) }
