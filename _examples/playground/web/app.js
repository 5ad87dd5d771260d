// The playground's page: reads the server's events and draws them.
import { colours, draw } from "./draw.js"
import { makeLanes, summary, showLane } from "./lanes.js"
import { Panel } from "./panel.js"
import { Controls } from "./controls.js"

const byId = (id) => document.getElementById(id)
const lanes = [] // made when the server has said which algorithms there are
const controls = new Controls(byId("controls"), adjust)
const panel = new Panel()
const still = matchMedia("(prefers-reduced-motion: reduce)")
const dark = matchMedia("(prefers-color-scheme: dark)")
const page = { session: "", period: 5000, config: controls.config(), ahead: -Infinity, frozen: 0, colour: colours() }

dark.addEventListener("change", () => { page.colour = colours() })

// clock estimates Redis's clock from the events: those with the shortest delay are the nearest to it. Each event moves the
// estimate a little, because two clocks never run at the same rate.
const clock = () => performance.now() + page.ahead
const heard = (at) => { page.ahead = Math.max(page.ahead - 0.02, at - performance.now()) }

function follow() {
  const events = new EventSource("events")
  const on = (name, f) => events.addEventListener(name, (e) => f(JSON.parse(e.data)))
  on("hello", (e) => {
    if (lanes.length === 0) {
      lanes.push(...makeLanes(byId("lanes"), e.algorithms))
      panel.offer(lanes)
    }
    page.session = panel.session = e.id
    page.period = e.period
    page.ahead = -Infinity
    heard(e.at)
    say("Live", "live")
    if (!same(e.config, controls.config())) adjust(controls.config())
  })
  on("changed", (e) => {
    page.config = e.config
    for (const lane of lanes) lane.history.restart(e.at)
  })
  on("decision", (e) => {
    heard(e.at)
    lanes.find((lane) => lane.algorithm === e.algorithm)?.history.decide(e)
    if (e.source === "fallback") say("Redis does not answer: each limit holds in this process", "trouble")
    else if (e.source === "redis" && byId("state").className === "trouble") say("Live", "live")
  })
  on("levels", (e) => {
    for (const lane of lanes) {
      const { at, used } = e.levels[lane.algorithm]
      heard(at)
      lane.history.level(e.client, at, used)
    }
  })
  on("response", (e) => panel.answered(e))
  events.onerror = () => {
    page.session = panel.session = ""
    say("Not connected. Trying again.", "trouble")
    if (events.readyState !== EventSource.CLOSED) return
    setTimeout(follow, 3000) // the server is full, or did not answer: the browser does not try again by itself
  }
}

function say(text, kind) {
  const state = byId("state")
  if (state.textContent !== text) state.textContent = text
  state.className = kind
}

const same = (a, b) => Object.keys(a).every((key) => a[key] === b[key])

// adjust sends the server another configuration, and shows its error if it is refused.
async function adjust(config) {
  if (!page.session) return // it is sent once there is a session
  try {
    const answer = await fetch(`sessions/${page.session}`, { method: "PUT", body: JSON.stringify(config) })
    if (!answer.ok) say(await answer.text(), "trouble")
  } catch {
    say("Not connected. Trying again.", "trouble")
  }
}

byId("freeze").addEventListener("click", (e) => {
  page.frozen = page.frozen ? 0 : clock() - behind
  e.currentTarget.setAttribute("aria-pressed", String(page.frozen > 0))
})

// behind is the delay of the charts: they show only times for which all events have arrived.
const behind = 150 // ms

function render() {
  const width = lanes[0].canvas.clientWidth
  const span = Math.min(14, Math.max(9, width / 45)) * 1000
  const now = page.frozen || clock() - behind
  for (const lane of lanes) {
    draw(lane.canvas, lane.history, {
      now, span, period: page.period, limit: page.config.rate, windows: lane.windows, colour: page.colour,
      capacity: lane.bucket ? page.config.burst : page.config.rate,
      clients: page.config.shape === "clients" ? ["a", "b"] : ["a"],
    })
  }
}

// report writes the texts. Screen readers read the summary aloud, so it changes only once it is stable, and not too often.
const settle = 1200, listen = 4000 // ms
let [pending, since, spoken] = ["", 0, -listen]
function report() {
  for (const lane of lanes) {
    lane.history.forget(clock())
    showLane(lane, clock(), page.period, page.config)
  }
  const [text, now] = [summary(lanes, page.period, page.config), performance.now()]
  if (text !== pending) [pending, since] = [text, now]
  if (byId("summary").textContent === text || now - since < settle || now - spoken < listen) return
  byId("summary").textContent = text
  spoken = now
}

let drawn = 0
function frame(time) {
  requestAnimationFrame(frame)
  if (page.ahead === -Infinity || time - drawn < (still.matches ? 1000 : 30)) return
  drawn = time
  render()
}

follow()
setInterval(report, 250)
requestAnimationFrame(frame)
