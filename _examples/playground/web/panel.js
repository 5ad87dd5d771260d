// The panel with the last responses, and the buttons that send requests by hand.
const heldAtOnce = 3 // a browser has six connections to a server, and the events use one of them

export class Panel {
  session = ""
  traffic = {} // the last response of each algorithm
  hand = {}
  counts = { sent: 0, served: 0, denied: 0 }
  waiting = 0
  leaky = new Set() // the algorithms that hold requests

  constructor() {
    this.choice = document.getElementById("algorithm")
    this.choice.addEventListener("change", () => this.show())
    document.getElementById("hammer").addEventListener("click", () => this.hit())
    document.getElementById("hammer-ten").addEventListener("click", () => { for (let i = 0; i < 10; i++) this.hit() })
  }

  // offer has the reader choose between the algorithms of lanes.
  offer(lanes) {
    this.leaky = new Set(lanes.filter((lane) => lane.leaky).map((lane) => lane.algorithm))
    for (const { algorithm, name } of lanes) this.choice.append(new Option(name, algorithm))
  }

  // answered handles a response that the server reports.
  answered({ algorithm, by, status, header, body }) {
    if (by === "hand" && algorithm === this.choice.value) this.count(status) // sent only by the server
    const text = [`${status} ${reason(status)}`, ...header, "", body.trim()].join("\n")
    if (by === "traffic") this.traffic[algorithm] = text
    else this.hand[algorithm] = text
    if (algorithm === this.choice.value) this.show()
  }

  // hit sends one request to the chosen algorithm; the server passes it on to the others. While a leaky bucket holds
  // several, only the server sends the next request: the browser would wait for a free connection.
  async hit() {
    const algorithm = this.choice.value
    const direct = this.waiting < heldAtOnce || !this.leaky.has(algorithm)
    this.counts.sent++
    this.waiting++
    this.show()
    try {
      const path = direct ? `hit/${algorithm}` : "hit"
      const answer = await fetch(`${path}?session=${this.session}`, { method: "POST", headers: { "X-Client": "a" } })
      const body = (await answer.text()).trim()
      this.count(answer.status)
      if (direct || !answer.ok) {
        this.hand[algorithm] = [`${answer.status} ${answer.statusText}`, ...[...answer.headers].map((h) => h.join(": ")), "", body].join("\n")
      }
    } catch (e) {
      this.hand[algorithm] = `No answer: ${e.message}`
    }
    this.waiting--
    this.show()
  }

  count(status) {
    if (status === 200) this.counts.served++
    if (status === 429) this.counts.denied++
  }

  show() {
    const algorithm = this.choice.value
    write("traffic-answer", this.traffic[algorithm] ?? "None yet.")
    write("hand-answer", this.hand[algorithm] ?? "Press Hammer.")
    const { sent, served, denied } = this.counts
    const parts = [`You sent ${sent}`, `${served} served`, `${denied} denied`]
    if (this.waiting > 0) parts.push(`${this.waiting} held`)
    write("hand-count", sent > 0 ? parts.join(", ") + "." : "")
  }
}

const reason = (status) => ({ 200: "OK", 429: "Too Many Requests", 503: "Service Unavailable" })[status] ?? ""

function write(id, text) {
  const e = document.getElementById(id)
  if (e.textContent !== text) e.textContent = text
}
