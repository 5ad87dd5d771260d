// This module is the controls: it returns their values as texts and as a configuration.
const hints = {
  boundary: "All at once before a window ends, and again after. Then a pause.",
  bursts: "All at once, in the middle of each window.",
  steady: "Evenly spread.",
  clients: "Client a sends steadily; client b half of the limit.",
  hand: "Nothing but what you send.",
}

export class Controls {
  constructor(form, changed) {
    this.form = form
    this.restore()
    let timer = 0
    form.addEventListener("submit", (e) => e.preventDefault())
    form.addEventListener("input", () => {
      this.describe()
      clearTimeout(timer)
      timer = setTimeout(() => { // waits, because a slider moves in many steps
        history.replaceState(null, "", "?" + new URLSearchParams(this.config()))
        changed(this.config())
      }, 150)
    })
    this.describe()
  }

  // restore sets the controls from the page's address, such as ?shape=steady&rate=20.
  restore() {
    for (const [name, value] of new URLSearchParams(location.search)) {
      const field = this.form.elements.namedItem(name)
      if (field?.type === "checkbox") field.checked = value === "true"
      if (field instanceof RadioNodeList || field?.type === "range") field.value = value
    }
  }

  config() {
    const { rate, burst, traffic, cost, shape, ban } = this.form.elements
    return {
      rate: rate.valueAsNumber, burst: burst.valueAsNumber, traffic: traffic.valueAsNumber, cost: cost.valueAsNumber,
      shape: shape.value || "boundary", ban: ban.checked,
    }
  }

  describe() {
    const c = this.config()
    document.getElementById("shape-hint").textContent = hints[c.shape]
    const words = { traffic: `${c.traffic} per 5 s`, rate: `${c.rate} per 5 s`, burst: `${c.burst}`, cost: `${c.cost} each` }
    for (const [name, text] of Object.entries(words)) {
      document.getElementById(`${name}-value`).textContent = text
      this.form.elements[name].setAttribute("aria-valuetext", text)
    }
    this.form.elements.traffic.disabled = c.shape === "hand"
    document.body.dataset.shape = c.shape
  }
}
