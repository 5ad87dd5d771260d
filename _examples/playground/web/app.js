// The page of the playground: it reads the server's events and shows them.
import { colours, draw } from "./chart.js"
import { Code } from "./code.js"
import { Controls } from "./controls.js"
import { inRequests, makeLanes, showLane, summary } from "./lanes.js"
import { hot } from "./lease.js"
import { Panel } from "./panel.js"

const byId = (id) => document.getElementById(id)
export const lanes = [] // made when the server has sent which lanes there are
const controls = new Controls(byId("controls"), adjust)
const panel = new Panel()
const code = new Code()
const still = matchMedia("(prefers-reduced-motion: reduce)")
const dark = matchMedia("(prefers-color-scheme: dark)")
const page = {
  session: "", state: "connecting", period: 5000, config: controls.config(), ahead: -Infinity, paused: 0, colour: colours(),
  stopped: false, // whether this page has stopped Redis
  pressed: false, // whether Stop was pressed, and the limiters have not noticed yet
  away: false,    // whether the limiters have noticed that Redis does not answer
  back: false,    // whether Redis was started again, and the limiters have not noticed yet
  outages: [],    // [{from, to}], by Redis's clock
  turned: 0,      // when Redis last stopped or came back
}

dark.addEventListener("change", () => { page.colour = colours() })

// clock estimates Redis's clock from the times of the events: the events with the shortest delay are closest to it. Each event
// moves the estimate a little, because two clocks never run at the same rate.
const clock = () => performance.now() + page.ahead
const heard = (at) => { page.ahead = Math.max(page.ahead - 0.02, at - performance.now()) }

function follow() {
  const events = new EventSource("events?" + new URLSearchParams(controls.config()))
  const on = (name, f) => events.addEventListener(name, (e) => f(JSON.parse(e.data)))
  on("hello", (e) => {
    if (lanes.length === 0) {
      lanes.push(...makeLanes(e.lanes, e.period))
      for (const lane of lanes) lane.section.querySelector(".code").addEventListener("click", () => code.open(lane))
      panel.offer(lanes.filter((lane) => lane.group === "algorithms" || lane.group === "policies"))
    }
    page.session = panel.session = e.id
    page.period = e.period
    page.ahead = -Infinity
    heard(e.at)
    Object.assign(page, { stopped: false, away: false, back: false, outages: [], lost: 0 }) // the new session has a Redis that answers
    showRedis()
    show("live")
    if (Object.entries(controls.config()).some(([name, value]) => e.config[name] !== value)) adjust(controls.config())
  })
  on("changed", (e) => {
    page.config = e.config
    code.programs = e.code
    write("processes-text", `Each of three processes gets ${e.config.rate} requests in 5 s from one client, whose limit is ${e.config.rate}. Only what they share can hold it.`)
    for (const lane of lanes) {
      lane.history.restart(e.at)
      if (lane.group === "algorithms") lane.history.cost = e.config.cost
    }
  })
  on("outage", ({ state, at }) => {
    heard(at)
    if (state === "stopped" || state === "started") page.stopped = state === "stopped"
    if (state === "noticed" || state === "over") page.away = state === "noticed"
    page.back = state === "started" && page.away
    const last = page.outages.at(-1)
    if (!last || last.to < Infinity) page.outages.push({ from: at, to: Infinity })
    else if (!page.stopped && !page.away) last.to = at
    page.outages = page.outages.slice(-20)
    page.turned = at
    document.body.dataset.outage = "seen"
    showRedis()
    if (state !== "noticed" || !page.pressed) return
    page.pressed = false
    // The content above it grows until all lanes show where they decide now.
    const grows = new ResizeObserver(() => byId("outage").scrollIntoView({ block: "nearest", behavior: still.matches ? "auto" : "smooth" }))
    grows.observe(document.body)
    setTimeout(() => grows.disconnect(), 5000)
  })
  on("decision", (e) => {
    heard(e.at)
    lanes.find((lane) => lane.id === e.lane)?.history.decide(e)
  })
  on("levels", (e) => {
    for (const lane of lanes) {
      const level = e.levels[lane.id]
      if (!level) continue
      heard(level.at)
      lane.history.ban({ client: e.client, ...level })
      lane.history.read({ client: e.client, ...level })
    }
  })
  on("counted", (e) => lanes.find((lane) => lane.id === e.lane)?.tally.add(e))
  on("response", (e) => panel.answered(e))
  events.onerror = () => {
    page.session = panel.session = ""
    page.lost ||= clock() - behind
    show("lost")
    if (events.readyState !== EventSource.CLOSED) return
    setTimeout(follow, 3000) // the server is full, or did not answer: the browser does not retry automatically
  }
}

// show shows whether the page is live. A paused page stays paused, unless the connection to the server is lost.
function show(state, text = "") {
  page.state = state
  const shown = state === "live" && page.paused ? "paused" : state
  const words = { connecting: "Connecting", live: "Live", paused: "Paused", lost: "Not connected, retrying" }
  write("state", text || words[shown])
  byId("state").className = shown
  document.body.dataset.state = shown
}

function showRedis() {
  const stopped = page.stopped || page.away
  write("redis", page.stopped ? "Redis stopped" : page.back ? "Redis is back" : page.away ? "Redis does not answer" : "Redis answers")
  write("outage-text",
    page.back ? "Redis is back. The limiters ask it in the background, and notice within 5 s."
      : page.away ? "Redis does not answer. Each limiter follows its outage policy; the algorithms above fail local."
        : page.stopped ? "Redis is stopped. The next request will notice."
          : "Press Stop Redis. These three get the same steady traffic, twice their limit.")
  for (const button of document.querySelectorAll(".stop")) button.textContent = page.stopped ? "Start Redis" : "Stop Redis"
  byId("redis").className = stopped ? "stopped" : ""
  document.body.dataset.redis = stopped ? "stopped" : "answers"
}

// send sends a change to the server, and shows the error if the server refuses the change.
async function send(method, path, body) {
  if (!page.session) return // the change is sent when there is a session
  try {
    const answer = await fetch(`sessions/${page.session}${path}`, { method, body })
    if (!answer.ok) show("refused", await answer.text())
  } catch {
    show("lost")
  }
}

function adjust(config) {
  send("PUT", "", JSON.stringify(config))
}

for (const button of document.querySelectorAll(".stop")) {
  button.addEventListener("click", () => {
    page.pressed = !page.stopped
    send("POST", page.stopped ? "/redis/start" : "/redis/stop")
  })
}

byId("pause").addEventListener("click", () => {
  if (page.ahead === -Infinity) return
  page.paused = page.paused ? 0 : clock() - behind
  write("pause", page.paused ? "Resume" : "Pause")
  show(page.state)
})

// behind is the delay of the charts: they show only times for which all events have arrived.
const behind = 150 // ms

function render() {
  const now = page.paused || page.lost || clock() - behind
  for (const lane of lanes) {
    const { canvas: { clientWidth: width }, group, windows, slots, second } = lane
    const capacity = group === "leases" ? hot : group === "policies" ? 2 : lane.bucket ? page.config.burst : page.config.rate
    lane.words = draw(lane.canvas, lane.history, {
      now, span: Math.min(20, Math.max(10, width / 40)) * 1000, period: page.period, windows, slots, second,
      limit: page.config.rate, fits: group === "algorithms" ? inRequests(page.config).rate : page.config.rate,
      capacity, top: lane.id === "by_itself" ? 3 * capacity : capacity,
      rows: lane.rows.length > 0 ? lane.rows : page.config.shape === "clients" && group === "algorithms" ? ["a", "b"] : ["a"],
      promised: group === "algorithms" && !slots || group === "processes", broken: lane.verdict?.broken ?? false,
      tally: group === "leases" ? lane.tally : null, outages: page.outages, colour: page.colour,
    })
  }
}

// report writes the texts. Screen readers read the summary aloud, so it changes only once it is stable, and not too often.
const settle = 1200, listen = 4000 // ms
let [pending, since, spoken] = ["", 0, -listen]
function report() {
  if (page.ahead === -Infinity || page.lost) return
  const long = 600_000 // ms: a paused page keeps what it shows for this long
  for (const lane of lanes) {
    for (const past of [lane.history, lane.tally]) past.forget(page.paused && clock() - page.paused < long ? page.paused : clock())
  }
  if (page.paused) return
  for (const lane of lanes) {
    showLane(lane, clock(), page)
  }
  const [text, now] = [summary(lanes, page), performance.now()]
  if (text !== pending) [pending, since] = [text, now]
  const first = byId("summary").textContent === ""
  if (!first && (byId("summary").textContent === text || now - since < settle || now - spoken < listen)) return
  write("summary", text)
  spoken = now
}

function write(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text
}

let drawn = 0
function frame(time) {
  requestAnimationFrame(frame)
  if (page.ahead === -Infinity || time - drawn < (still.matches ? 1000 : 30)) return
  drawn = time
  render()
}

showRedis()
follow()
setInterval(report, 250)
requestAnimationFrame(frame)
