// This module is the panel with the last responses, and the buttons that send requests.
const heldAtOnce = 3 // a browser has six connections to a server, and the events use one of them

export class Panel {
  session = ""
  lanes = []
  traffic = {} // the last response of each lane
  hand = {}
  counts = {}  // how many requests by hand each lane has answered: {served, denied}
  sent = 0
  waiting = 0

  constructor() {
    this.choice = document.getElementById("lane-choice")
    this.choice.addEventListener("change", () => this.show())
    document.getElementById("send-one").addEventListener("click", () => this.hit())
    document.getElementById("send-ten").addEventListener("click", () => { for (let i = 0; i < 10; i++) this.hit() })
  }

  // offer lets the user choose a lane.
  offer(lanes) {
    this.lanes = lanes
    for (const { id, name } of lanes) {
      this.choice.append(new Option(name, id))
      this.counts[id] = { served: 0, denied: 0 }
    }
  }

  // answered handles a response that the server reports.
  answered({ lane, by, status, header, body }) {
    const text = [`${status} ${reason(status)}`, ...header, "", body.trim()].join("\n")
    if (by === "hand") this.count(lane, status)
    this[by === "hand" ? "hand" : "traffic"][lane] = text
    if (lane === this.choice.value) this.show()
  }

  // hit sends one request to the chosen lane; the server passes it on to the other lanes. While a lane holds
  // several requests, the server alone sends the next one, because the browser would wait for a free connection.
  async hit() {
    const id = this.choice.value
    const direct = this.waiting < heldAtOnce || !this.holds(id)
    document.body.dataset.hand = "seen"
    this.sent++
    this.waiting++
    this.show()
    try {
      const answer = await fetch(`${direct ? `hit/${id}` : "hit"}?session=${this.session}`, { method: "POST", headers: { "X-Client": "a" } })
      const body = (await answer.text()).trim()
      const limited = answer.headers.has("X-RateLimit-Limit") || body === "served" || answer.headers.get("Content-Type")?.includes("problem")
      if (direct && limited) this.count(id, answer.status)
      if (!limited && !answer.ok) this.sent-- // the playground itself has refused the request
      if (direct || !answer.ok) {
        const header = [...answer.headers].filter(([name]) => !["date", "content-length"].includes(name)).map(([name, value]) => `${canonical(name)}: ${value}`)
        this.hand[id] = [`${answer.status} ${answer.statusText}`, ...header, "", body].join("\n")
      }
    } catch (e) {
      this.sent--
      this.hand[id] = `No answer: ${e.message}`
    }
    this.waiting--
    this.show()
  }

  // holds reports whether requests to a lane are answered late.
  holds(id) {
    const lane = this.lanes.find((lane) => lane.id === id)
    return lane?.leaky || lane?.slots
  }

  count(id, status) {
    this.counts[id][status === 200 ? "served" : "denied"]++
  }

  show() {
    const id = this.choice.value
    write("traffic-answer", this.traffic[id] ?? "None yet.")
    write("hand-answer", this.hand[id] ?? "Press Send one.")
    const box = document.getElementById("traffic-answer")
    box.style.minHeight = `${box.offsetHeight}px` // short and long responses alternate, and the content below must not move
    const { served, denied } = this.counts[id] ?? { served: 0, denied: 0 }
    const parts = [`${served} of your ${this.sent} served`, `${denied} denied`]
    if (this.sent > served + denied) parts.push(`${this.sent - served - denied} waiting`)
    write("hand-count", this.sent > 0 ? `${this.choice.selectedOptions[0].text}: ${parts.join(", ")}.` : "")
  }
}

const reason = (status) => ({ 200: "OK", 429: "Too Many Requests", 503: "Service Unavailable" })[status] ?? ""

// canonical returns a header's name as the server writes it; browsers return names in lower case.
const canonical = (name) => name.replace(/(^|-)[a-z]/g, (letters) => letters.toUpperCase())

function write(id, text) {
  const e = document.getElementById(id)
  if (e.textContent !== text) e.textContent = text
}
